"""Splits program text into tokens, with the place of each."""

import json
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress

from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.jsondata import sound
from shardproof.verifier.text.spans import Span

STRING = r'"(?:[^"\\\n]|\\.)*"'
_TOKEN = re.compile(
    rf"""
    (?P<skip>[ \t\r\n]+|\#[^\n]*)
  | (?P<value>%(?:[A-Za-z0-9_][A-Za-z0-9_.*/-]*|{STRING}))
  | (?P<number>-?[0-9]+(?:/[0-9]+|(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?))
  | (?P<word>[A-Za-z_][A-Za-z0-9_.]*)
  | (?P<string>{STRING})
  | (?P<source>@[^\n]*)
  | (?P<punct>[=:,(){{}}\[\]*+])
  | (?P<bad>.)
    """,
    re.VERBOSE,
)
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
VALUE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.*/-]*")


class Tokens:
    """A cursor over tokens: `kind` and `text` of the current one, `kind` `end` after the last."""

    def __init__(self, text: str, filename: str) -> None:
        self.source, self.filename = text, filename
        self._stream = self._scan()
        self.kind, self.text, self.start = "", "", 0
        self.end = 0
        """Where the last token ended, white space after a source note left out."""
        self.advance()

    def _scan(self) -> Iterator[tuple[str, str, int]]:
        for match in _TOKEN.finditer(self.source):
            kind = match.lastgroup or ""
            if kind != "skip":
                yield kind, match.group(), match.start()

    def advance(self) -> str:
        """Move on; returns the text of the token left behind."""
        before = self.text
        self.end = self.start + len(before.rstrip() if self.kind == "source" else before)
        self.kind, self.text, self.start = next(self._stream, ("end", "", len(self.source)))
        return before

    def place(self, position: int | None = None) -> str:
        """`file:line:column` of a position (of the current token)."""
        at = self.start if position is None else position
        line = self.source.count("\n", 0, at) + 1
        column = at - (self.source.rfind("\n", 0, at) + 1) + 1
        return f"{self.filename}:{line}:{column}"

    @contextmanager
    def located(self, start: int) -> Generator[None]:
        """An error within gets the place of a character, where it has none."""
        try:
            yield
        except MalformedError as error:
            raise error.at(self.place(start)) from None

    def fail(self, what: str, expected: str = "", hint: str = "") -> MalformedError:
        """An error at the current token."""
        return MalformedError(
            what, where=self.place(), expected=expected, got=self.shown(), hint=hint
        )

    def shown(self) -> str:
        if self.kind == "end":
            return "the end of the text"
        if self.kind == "bad" and self.text == '"':
            return "a string that does not end on its line"
        text = self.text if len(self.text) <= 40 else f"{self.text[:37]}..."
        return f"{text!r}"

    def since(self, start: int) -> Span:
        """From a character to the end of the last token."""
        return Span(start, self.end)

    def read(self, start: int) -> Span | None:
        """The same; None where no token from there on was read."""
        return Span(start, self.end) if self.end > start else None

    def accept(self, text: str) -> bool:
        """Consume the punctuation or word `text` if it is next."""
        if self.text == text and self.kind in ("punct", "word"):
            self.advance()
            return True
        return False

    def expect(self, text: str, what: str) -> None:
        if not self.accept(text):
            raise self.fail(what, f"{text!r}")

    def listed(self, end: str, what: str) -> Iterator[None]:
        """Once for each item that follows, up to `end`; commas stand between them."""
        first = True
        while not self.accept(end):
            if not first:
                self.expect(",", what)
            first = False
            yield

    def take(self, kind: str, what: str, expected: str) -> str:
        if self.kind != kind:
            raise self.fail(what, expected)
        return self.advance()

    def value(self, what: str) -> str:
        """A value name, without its `%`."""
        start = self.start
        text = self.take("value", what, "a value such as %x")[1:]
        return self.unquote(text, start) if text.startswith('"') else text

    def integer(self, what: str) -> int:
        start = self.start
        text = self.take("number", what, "an integer")
        if not text.lstrip("-").isdecimal() or len(text) > 400:
            raise MalformedError(
                what, where=self.place(start), expected="an integer", got=repr(text[:40])
            )
        return int(text)

    def unquote(self, text: str, start: int) -> str:
        with self.located(start):
            return unquote(text)

    def name(self, what: str) -> str:
        """A word, or a string where it is none."""
        if self.kind == "string":
            start = self.start
            return self.unquote(self.advance(), start)
        return self.take("word", what, "a word or a string")


def unquote(literal: str) -> str:
    """The text of a string literal. Raises MalformedError."""
    with suppress(ValueError):
        text = str(json.loads(literal, strict=False))
        if sound(text):
            return text
    raise MalformedError("string with a bad escape", got=literal[:40])


def quote(text: str) -> str:
    """A string literal; anything that does not print is escaped."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def word(text: str) -> str:
    """A word, quoted where it must be."""
    return text if WORD.fullmatch(text) else quote(text)


def value(name: str) -> str:
    """`%name`, quoted where it must be."""
    return f"%{name}" if VALUE.fullmatch(name) else f"%{quote(name)}"
