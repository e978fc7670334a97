"""How values are written: sizes, times, counts, and strings that may hide something."""

import dataclasses
import math
import unicodedata
from typing import Any, cast

from shardproof.verifier.kernel.program.types import Source

HIDING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that change how other text is shown, or are not shown themselves."""


def visible(text: str) -> str:
    """Write control, bidi, zero-width and surrogate characters as escapes; keep newline and tab."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(c) if unicodedata.category(c) in HIDING else c for c in text)


def _escape(char: str) -> str:
    if char in "\n\t":
        return char
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def legible(value: Any) -> Any:
    """The same data with every string in it made `visible`."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, tuple | list):
        items = cast("tuple[Any, ...] | list[Any]", value)
        return type(items)(legible(item) for item in items)
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {legible(key): legible(item) for key, item in items}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value)]
        return dataclasses.replace(value, **{n: legible(getattr(value, n)) for n in names})
    return value


def three(amount: float) -> str:
    """Three digits, never an exponent for amounts of everyday size."""
    return f"{amount:.0f}" if 99.95 <= abs(amount) < 1e6 else f"{amount:.3g}"


def size(count: int | float | None) -> str:
    """Bytes in binary units, three digits."""
    if count is None:
        return "–"
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(amount) < 1000 or unit == "TiB":
            return f"{three(amount)} {unit}"
        amount /= 1024
    raise AssertionError


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if not math.isfinite(seconds):
        return str(seconds)
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (120.0, 1.0, "s")):
        if seconds < limit:
            return f"{three(seconds * factor)} {unit}"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def count(number: int | float | None) -> str:
    return "–" if number is None else f"{number:,}"


def small(number: float) -> str:
    """A relative difference."""
    return "0" if number == 0 else f"{number:.1e}"


def times(before: float, after: float) -> str:
    """How many times less `after` is."""
    return f"{three(before / after)}×" if after > 0 else ""


def shape(extents: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, extents)) + "]"


def short(at: Source) -> str:
    """`file:line`, the last two parts of a long path."""
    parts = at.file.split("/")
    long = len(at.file) > 40 and len(parts) > 2
    return f"{'…/' + '/'.join(parts[-2:]) if long else at.file}:{at.line}" if at.file else ""


def number(value: float) -> str:
    """An element of a small tensor, at most six characters or so."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e5:
        return str(int(value))
    return f"{value:.3g}"


def clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


def leaf(path: str) -> tuple[str, str]:
    """A module path as (everything up to the last dot, last name)."""
    head, dot, tail = path.rpartition(".")
    return head + dot, tail or path
