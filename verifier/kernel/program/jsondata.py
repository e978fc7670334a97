"""Reads untrusted JSON data: a cursor that says where a document is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import cast

from shardproof.verifier.kernel.program.errors import MalformedError

_RATIONAL = re.compile(r"-?[0-9]{1,2000}/[0-9]{1,2000}")


def sound(text: str) -> bool:
    """Whether a text has no half of a surrogate pair: `\\ud800` makes one, nothing can write it."""
    return not any("\ud800" <= c <= "\udfff" for c in text)


def _step(key: str) -> str:
    plain = key.replace("_", "").isalnum() and key.isascii()
    return f".{key}" if plain else f"[{json.dumps(key if len(key) <= 60 else key[:57] + '...')}]"


class Cursor:
    """A value in a document, with its path. Every reader raises MalformedError on another shape."""

    __slots__ = ("_above", "_key", "filename", "value")

    def __init__(
        self, value: object, filename: str, above: Cursor | None = None, key: str | int = 0
    ) -> None:
        self.value, self.filename, self._above, self._key = value, filename, above, key

    @property
    def path(self) -> str:
        """From the root `$`; put together where something is said of it."""
        if self._above is None:
            return "$"
        key = self._key
        return self._above.path + (_step(key) if isinstance(key, str) else f"[{key}]")

    def fail(self, what: str, expected: str = "") -> MalformedError:
        shown = json.dumps(self.value)
        got = shown if len(shown) <= 60 else f"{shown[:57]}..."
        return MalformedError(
            what, where=f"{self.filename}: {self.path}", expected=expected, got=got
        )

    @contextmanager
    def located(self) -> Generator[None]:
        """Errors raised inside are placed here."""
        try:
            yield
        except MalformedError as error:
            raise error.at(f"{self.filename}: {self.path}") from None

    def object(self) -> Mapping[str, object]:
        found = self.value
        if not isinstance(found, dict):
            raise self.fail("not an object", "{...}")
        return cast(Mapping[str, object], found)

    def only(self, *names: str) -> None:
        """The keys of this object are among `names`."""
        known = frozenset(names)
        for key in self.object():
            if key not in known:
                raise self.fail(f"unknown key {key!r}", f"one of {', '.join(names)}")

    def __contains__(self, key: str) -> bool:
        return key in self.object()

    def __getitem__(self, key: str) -> Cursor:
        found = self.object()
        if key not in found:
            raise self.fail(f"no key {key!r}", f"an object with {key!r}")
        return Cursor(found[key], self.filename, self, key)

    def get(self, key: str, default: object) -> Cursor:
        """What an object holds under a key that may be left out."""
        return self[key] if key in self else Cursor(default, self.filename, self, key)

    def items(self) -> list[Cursor]:
        found = self.value
        if not isinstance(found, list):
            raise self.fail("not a list", "[...]")
        items = cast(Sequence[object], found)
        return [Cursor(v, self.filename, self, i) for i, v in enumerate(items)]

    def tuple(self, size: int, expected: str) -> tuple[Cursor, ...]:
        """A list of so many items."""
        items = self.items()
        if len(items) != size:
            raise self.fail(f"not a list of {size}", expected)
        return (*items,)

    def entries(self) -> list[tuple[str, Cursor]]:
        """The keys of this object, with what they hold."""
        return [(key, self[key]) for key in self.object()]

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.fail("not a string", '"..."')
        if not sound(self.value):
            raise self.fail("half of a character", "a string of whole characters")
        return self.value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.fail("not a flag", "true or false")
        return self.value

    def integer(self) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.fail("not an integer", "an integer")
        return self.value

    def integers(self) -> tuple[int, ...]:
        """A list of integers."""
        found = self.value
        if isinstance(found, list) and all(type(n) is int for n in cast("list[object]", found)):
            return tuple(cast("list[int]", found))
        return tuple(item.integer() for item in self.items())

    def rational(self) -> Fraction:
        """A rational in lowest terms, `n/d`."""
        text = self.text()
        if not _RATIONAL.fullmatch(text) or text.endswith("/0"):
            raise self.fail("not a rational", '"n/d" with d > 0')
        out = Fraction(text)
        if f"{out.numerator}/{out.denominator}" != text:
            raise self.fail("rational not in lowest terms", f"{out.numerator}/{out.denominator}")
        return out
