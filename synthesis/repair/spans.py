"""Where the parts of a program's text stand: statements, operands, attributes, returned values.

The text has been read before (`verifier.text.parser`), so it is well formed; this walks the same
grammar and keeps positions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from verifier.kernel.program.program import INPUT_ROLES
from verifier.text.tokens import Tokens


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
    op: Span = field(default_factory=lambda: Span(0, 0))
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


def spans(text: str) -> Scope:
    """The parts of a program's text.

    Raises:
        MalformedError: it is no program.
    """
    return _Walk(text).program()


class _Walk:
    def __init__(self, text: str) -> None:
        self.tokens = Tokens(text, "<text>")
        self.last = 0
        """Where the last token ended."""

    def take(self) -> str:
        self.last = self.tokens.start + len(self.tokens.text)
        return self.tokens.advance()

    def accept(self, text: str) -> bool:
        if self.tokens.text == text and self.tokens.kind in ("punct", "word"):
            self.take()
            return True
        return False

    def value(self) -> tuple[str, Span]:
        start, token = self.tokens.start, self.take()
        name = token[1:]
        if name.startswith('"'):
            name = self.tokens.unquote(name, start)
        return name, Span(start, self.last)

    def bracketed(self) -> Span:
        """A balanced part that begins with a bracket."""
        start, depth = self.tokens.start, 0
        while self.tokens.kind != "end":
            punct = self.tokens.kind == "punct"
            depth += punct and self.tokens.text in "([{"
            depth -= punct and self.tokens.text in ")]}"
            self.take()
            if depth == 0:
                break
        return Span(start, self.last)

    def program(self) -> Scope:
        self.take()  # program
        self.take()  # its name
        if self.accept("mesh"):
            self.bracketed()
        return self.scope()

    def scope(self) -> Scope:
        found = Scope(self.last)
        while not self.accept("return"):
            if self.tokens.kind == "end":
                raise self.tokens.fail("a program", "return")
            found.statements.append(
                self.statement() if self.tokens.kind == "value" else self.input()
            )
        while self.tokens.kind in ("value", "word"):
            if self.tokens.kind == "word":
                self.take()
            _, at = self.value()
            found.returned.append(Returned(at, self.string()))
            if not self.accept(","):
                break
        return found

    def input(self) -> Statement:
        start = self.tokens.start
        if self.tokens.text not in INPUT_ROLES:
            raise self.tokens.fail("a statement", "an input")
        self.take()
        name, _ = self.value()
        self.take()  # :
        self.type()
        self.string()
        if self.accept("on"):
            self.bracketed()
        return Statement((name,), Span(start, self.last), is_input=True)

    def string(self) -> Span | None:
        start = self.tokens.start
        if self.tokens.kind != "string":
            return None
        self.take()
        return Span(start, self.last)

    def type(self) -> Span:
        start = self.tokens.start
        self.take()
        self.bracketed()
        return Span(start, self.last)

    def statement(self) -> Statement:
        start = self.tokens.start
        names = [self.value()[0]]
        while self.accept(","):
            names.append(self.value()[0])
        self.take()  # =
        at = self.tokens.start
        self.take()
        found = Statement(tuple(names), Span(start, self.last), Span(at, self.last))
        while self.tokens.kind == "value":
            found.operands.append(self.value()[1])
            if not self.accept(","):
                break
        found.head_end = self.last
        if self.tokens.text == "{" and self.tokens.kind == "punct":
            found.attrs = self.attributes(found)
            found.head_end = self.last
        if self.tokens.text == "on" and self.tokens.kind == "word":
            begin = self.tokens.start
            self.take()
            self.bracketed()
            found.where = Span(begin, self.last)
        self.timing()
        if self.accept(":"):
            begin = self.tokens.start
            self.type()
            while self.accept(","):
                self.type()
            found.types = Span(begin, self.last)
        if self.tokens.text in ("body", "{") and self.tokens.kind in ("word", "punct"):
            if self.accept("body"):
                self.take()
            if self.accept("mesh"):
                self.bracketed()
            self.take()  # {
            found.note = self.note()
            found.body = self.scope()
            self.take()  # }
        else:
            found.note = self.note()
        found.whole = Span(start, self.last)
        return found

    def timing(self) -> None:
        self.accept("async")
        for word in ("stream", "into"):
            if self.accept(word):
                self.bracketed()

    def note(self) -> Span | None:
        if self.tokens.kind != "source":
            return None
        start = self.tokens.start
        text = self.take()
        self.last = start + len(text.rstrip())
        return Span(start, self.last)

    def attributes(self, found: Statement) -> Span:
        start = self.tokens.start
        self.take()  # {
        while not self.accept("}"):
            self.accept(",")
            name = self.take()
            self.take()  # =
            begin = self.tokens.start
            depth = 0
            while self.tokens.kind != "end":
                if self.tokens.kind == "punct":
                    if depth == 0 and self.tokens.text in ",}":
                        break
                    depth += self.tokens.text in "(["
                    depth -= self.tokens.text in ")]"
                self.take()
            found.values[name] = Span(begin, self.last)
        return Span(start, self.last)
