"""Errors of the language.

IRError
├── ShapeError      operands whose shapes an op does not accept
└── MalformedError       text or JSON that is not a program, located
"""

from __future__ import annotations


class IRError(ValueError):
    """A program that is not well formed: what, where, expected, got."""


class ShapeError(IRError):
    """Operands whose shapes (or dtypes) an op does not accept."""


class MalformedError(IRError):
    """Text or JSON that is not a program: one message, `where: what; expected, got; hint`."""

    def __init__(
        self, what: str, *, where: str = "", expected: str = "", got: str = "", hint: str = ""
    ) -> None:
        where = _one_line(where)
        what, expected, got, hint = (_one_line(_short(t)) for t in (what, expected, got, hint))
        self.what, self.where = what, where
        self.expected, self.got, self.hint = expected, got, hint
        detail = ", ".join(
            part
            for part in (f"expected {expected}" if expected else "", f"got {got}" if got else "")
            if part
        )
        message = "; ".join(part for part in (what, detail, hint) if part)
        super().__init__(f"{where}: {message}" if where else message)

    def at(self, where: str) -> MalformedError:
        """The same error with its place, unless it already has one."""
        if self.where:
            return self
        return MalformedError(
            self.what, where=where, expected=self.expected, got=self.got, hint=self.hint
        )


def _short(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:297]}..."


def _one_line(text: str) -> str:
    """The text, with what does not print escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
