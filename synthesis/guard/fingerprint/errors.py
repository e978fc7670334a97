"""The one error of this package, and the checks of arguments that all of it shares."""

from operator import index


class FingerprintError(ValueError):
    """A call that has no answer: what, where, expected, got, what to try."""


def expect(value: object, kind: type, what: str) -> None:
    """Raise FingerprintError, with `what` was expected, where a value is of another type."""
    if not isinstance(value, kind):
        raise FingerprintError(f"{what}, got {value!r:.60}")


def integer(value: object, what: str, least: int | None = None) -> int:
    """A whole number (numpy's too) as Python's. Raises FingerprintError where it is none, or less
    than `least`."""
    try:
        number = index(value)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    except TypeError:
        raise FingerprintError(f"{what} is {value!r:.60}, expected an integer") from None
    if least is not None and number < least:
        raise FingerprintError(f"{what} is {number}, expected at least {least}")
    return number
