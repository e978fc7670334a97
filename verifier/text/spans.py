"""Where the parts of a program's text stand: statements, operands, attributes, returned values."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Span:
    """From a character to before another."""

    start: int
    end: int


@dataclass
class Statement:
    """An input, or one op application with its source note and body."""

    names: tuple[str, ...]
    """What it defines."""
    whole: Span
    op: Span = Span(0, 0)
    operands: list[Span] = field(default_factory=list[Span])
    attrs: Span | None = None
    values: dict[str, Span] = field(default_factory=dict[str, Span])
    """The value of each attribute."""
    where: Span | None = None
    types: Span | None = None
    body: Scope | None = None
    is_input: bool = False
    note: Span | None = None
    """The source note, from its `@`."""
    head_end: int = 0
    """Where `on(...)` would be added."""


@dataclass
class Returned:
    value: Span
    path: Span | None


@dataclass
class Scope:
    """A program, or the body of a repeated block."""

    start: int
    """Where its first statement may stand."""
    statements: list[Statement] = field(default_factory=list[Statement])
    returned: list[Returned] = field(default_factory=list[Returned])
