"""The text form of event programs.

    events exchange
    communicator tp = (0, 1) (2, 3)
    ranks 0-3
      holds w
      F0: compute reads x, w writes h                      @ model.py:14
      all_reduce tp size 64 reads h writes h handle ar
      compute reads x writes side
      wait ar
      compute reads h from ar0 writes y
    rank 0
      send to 1 via fwd as F0 size 16 reads y
      group handle g { send to 1 reads a; recv from 1 writes b }

Before the ranks: `machine concurrent`, `machine buffered`, `condition NAME [local]`,
`shared BUFFERS`, `communicator NAME = (RANKS) ...`; each rank means the group it is in. A section
says `rank N` or `ranks 0, 2-5`; sections of one rank are joined. In a section `communicator`
says how these ranks see it. Events may have `LABEL:` in front and, in any order, `reads`, `writes`,
`handle`, `stream`, `when [not] NAME`, `size`, `root`, `via` (channel), `as` (what is carried).
A peer is a rank, `rank+1`, `rank-1` or `rank+1%4`. Others: `wait HANDLE`, `record MARK`,
`await MARK`, `join STREAM` (its own `stream` waits for that one), `alloc`, `free`, `sync`.
`#` starts a comment, `@ file:line` says where the event comes from.
"""

import difflib
import re
from collections.abc import Sequence
from typing import Any

from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.types import Source
from shardproof.verifier.order import events as ev
from shardproof.verifier.order.builder import RankBuilder, TimeBuilder, access
from shardproof.verifier.text import source_note

_TOKEN = re.compile(
    r"(?P<access>[A-Za-z_][\w./*-]*\[\d+:\d+\])"
    r"|(?P<peer>rank[+-]\d+(?:%\d+)?)"
    r"|(?P<word>[A-Za-z_](?:[\w./*-]*[\w*])?)"
    r"|(?P<number>\d+(?:-\d+)?)"
    r"|(?P<punct>[=:,;(){}])"
    r"|(?P<skip>\s+)"
    r"|(?P<bad>.)"
)
_HEADS = ("events", "machine", "condition", "shared", "communicator", "rank", "ranks")
_VERBS = (*ev.VERBS, "holds", "communicator", *ev.COLLECTIVES)
_OPTIONS = ("reads", "writes", "handle", "stream", "when", "size", "root", "via", "as")


class _Line:
    """A cursor over the tokens of one line."""

    def __init__(self, text: str, number: int, filename: str) -> None:
        self.number, self.filename = number, filename
        found = [m for m in _TOKEN.finditer(text) if m.lastgroup != "skip"]
        self.tokens = [(m.lastgroup or "", m.group(), m.start() + 1) for m in found]
        self.end = len(text.rstrip()) + 1
        self.at = 0

    @property
    def kind(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else "end"

    @property
    def text(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def fail(self, what: str, expected: str, hint: str = "") -> MalformedError:
        column = self.tokens[self.at][2] if self.at < len(self.tokens) else self.end
        return MalformedError(
            what,
            where=f"{self.filename}:{self.number}:{column}",
            expected=expected,
            got=repr(self.text) if self.text else "the end of the line",
            hint=hint,
        )

    def accept(self, text: str) -> bool:
        if self.text == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str, what: str) -> None:
        if not self.accept(text):
            raise self.fail(what, repr(text))

    def take(self, what: str, *kinds: str, expected: str = "a name") -> str:
        if self.kind not in kinds:
            raise self.fail(what, expected)
        self.at += 1
        return self.tokens[self.at - 1][1]

    def name(self, what: str) -> str:
        return self.take(what, "word")

    def integer(self, what: str) -> int:
        text = self.take(what, "number", expected="a number")
        if "-" in text or len(text) > 18:
            self.at -= 1
            raise self.fail(what, "a number")
        return int(text)

    def ranks(self, what: str) -> list[int]:
        """`0, 2-5`."""
        out: list[int] = []
        while True:
            text = self.take(what, "number", expected="a rank or a range such as 0-3")
            lo, _, hi = text.partition("-")
            if len(text) > 12 or int(hi or lo) < int(lo) or int(hi or lo) - int(lo) > 100_000:
                self.at -= 1
                raise self.fail(what, "a rank or a range such as 0-3")
            out += range(int(lo), int(hi or lo) + 1)
            if not self.accept(","):
                return out


def parse_text(text: str, filename: str = "<text>") -> ev.TimeProgram:
    """Read the text form.

    Raises:
        MalformedError: one message with file, line and column.
    """
    reader = _Reader(filename)
    for number, raw in enumerate(text.splitlines(), 1):
        reader.line(raw, number)
    return reader.build()


class _Reader:
    def __init__(self, filename: str) -> None:
        self.filename = filename
        self.built = TimeBuilder()
        self.flags: set[str] = set()
        self.section: list[RankBuilder] = []

    def line(self, raw: str, number: int) -> None:
        body, _, note = _without_comment(raw).partition("@")
        line = _Line(body, number, self.filename)
        if line.kind == "end":
            if note:
                raise line.fail("a source note", "an event before it")
            return
        source = self._source(raw, note, number)
        try:
            if line.text in _HEADS and not (line.text == "communicator" and self.section):
                self._head(line)
            else:
                self._statement(line, source)
            if line.kind != "end":
                hint = _near(line.text, _OPTIONS)
                raise line.fail("text after an event", f"one of {', '.join(_OPTIONS)}", hint)
        except MalformedError as error:
            raise error.at(f"{self.filename}:{number}") from None

    def build(self) -> ev.TimeProgram:
        self.built.machine = ev.Machine("concurrent" in self.flags, "buffered" in self.flags)
        try:
            return self.built.build()
        except MalformedError as error:
            raise error.at(self.filename) from None

    def _source(self, raw: str, note: str, number: int) -> Source:
        if note:
            try:
                return source_note.read(f"@{note}")
            except MalformedError as error:
                raise error.at(f"{self.filename}:{number}:{raw.index('@') + 1}") from None
        return Source(self.filename, number)

    def _head(self, line: _Line) -> None:
        word = line.name("a declaration")
        match word:
            case "events":
                self.built.name = line.name("the name of the program")
            case "machine":
                at = line.name("a machine")
                if at not in ("concurrent", "buffered"):
                    line.at -= 1
                    raise line.fail("a machine", "concurrent or buffered")
                self.flags.add(at)
            case "condition":
                self.built.condition(line.name("a condition"), local=line.accept("local"))
            case "shared":
                self.built.shared.update(self._names(line, "a shared buffer"))
            case "communicator":
                name = line.name("a communicator")
                line.expect("=", f"communicator {name}")
                groups: list[list[int]] = []
                while line.accept("("):
                    groups.append(line.ranks(f"ranks of {name}"))
                    line.expect(")", f"ranks of {name}")
                self.built.communicator(name, *groups)
            case _:
                ranks = line.ranks("the ranks of a section")
                line.accept(":")
                self.section = [self.built.rank(rank) for rank in ranks]

    def _statement(self, line: _Line, source: Source) -> None:
        if not self.section:
            hint = _near(line.text, _HEADS) or "begin a section with rank 0"
            raise line.fail("an event outside of a section", f"one of {', '.join(_HEADS)}", hint)
        begin = line.at
        for built in self.section:
            line.at = begin
            if line.accept("holds"):
                built.holds(*self._names(line, "a buffer"))
            elif line.accept("communicator"):
                name = line.name("a communicator")
                line.expect("=", f"communicator {name}")
                line.expect("(", f"ranks of {name}")
                built.groups[name] = tuple(line.ranks(f"ranks of {name}"))
                line.expect(")", f"ranks of {name}")
            else:
                built.add(_event(line, built.rank, source))

    def _names(self, line: _Line, what: str) -> list[str]:
        names = [line.name(what)]
        while line.accept(","):
            names.append(line.name(what))
        return names


def _near(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, 1)
    return f"did you mean {near[0]}?" if near else ""


def _without_comment(raw: str) -> str:
    at, note = raw.find("#"), raw.find("@")
    return raw if at < 0 or 0 <= note < at else raw[:at]


def _event(line: _Line, rank: int, source: Source) -> ev.Event:
    label, after = "", line.tokens[line.at + 1 : line.at + 2]
    if line.kind == "word" and after and after[0][1] == ":":
        label = line.name("a label")
        line.expect(":", "a label")
    start = line.at
    verb = line.name("an event")
    if verb not in _VERBS:
        line.at = start
        raise line.fail("an event", f"one of {', '.join(_VERBS)}", _near(verb, _VERBS))
    made: dict[str, Any] = {}
    make = _verb(line, verb, rank, made)
    parts = _options(line, made, rank, group=verb == "group")
    if verb == "group":
        made["parts"] = parts
    wrong = sorted(set(made) - set(make.__dataclass_fields__))
    if wrong:
        raise MalformedError(
            f"{verb} with {wrong[0]}",
            where=f"{line.filename}:{line.number}",
            expected=f"{verb} without it",
        )
    return make(label=label, source=source, **made)


def _verb(line: _Line, verb: str, rank: int, made: dict[str, Any]) -> type[ev.Event]:
    """Reads what belongs to the verb into `made`."""
    kind = ev.VERBS.get(verb, ev.Collective)
    if kind in ev.NAMED:
        name, what = ev.NAMED[kind]
        made[name] = line.name(what)
    elif kind in (ev.Send, ev.Recv):
        line.expect("to" if kind is ev.Send else "from", f"the peer of a {verb}")
        made["peer"] = _peer(line, rank)
    elif kind in (ev.Alloc, ev.Free):
        made["writes"] = _accesses(line)
    elif kind is ev.Collective:
        made |= {"op": verb, "comm": line.name(f"the communicator of {verb}")}
    return kind


def _peer(line: _Line, rank: int) -> int:
    if line.kind != "peer":
        return line.integer("a peer")
    text = line.take("a peer", "peer")[4:]
    offset, _, modulus = text.partition("%")
    peer = rank + int(offset)
    if modulus and int(modulus) == 0:
        line.at -= 1
        raise line.fail("a peer", "a modulus above 0")
    return peer % int(modulus) if modulus else peer


_FIELDS = {"handle": "handle", "stream": "stream", "via": "channel", "as": "tag"}


def _options(
    line: _Line, made: dict[str, Any], rank: int, *, group: bool
) -> tuple[ev.Transfer, ...]:
    when: list[tuple[str, bool]] = []
    parts: tuple[ev.Transfer, ...] = ()
    while line.text in _OPTIONS or (group and line.text == "{"):
        start = line.at
        word = line.tokens[line.at][1]
        line.at += 1
        if word == "{":
            parts = _parts(line, rank)
            break
        name = _FIELDS.get(word, word)
        if name in made and word != "when":
            line.at = start
            raise line.fail(f"{word} given twice", "each once")
        if word in ("reads", "writes"):
            made[name] = _accesses(line)
        elif word == "when":
            value = not line.accept("not")
            when.append((line.name("a condition"), value))
        elif word in ("size", "root"):
            made[name] = line.integer(f"the {word}")
        else:
            made[name] = line.name(f"a name after {word}")
    if when:
        made["when"] = tuple(when)
    if group and not parts:
        raise line.fail("a group", "its sends and receives in braces")
    return parts


def _parts(line: _Line, rank: int) -> tuple[ev.Transfer, ...]:
    parts: list[ev.Transfer] = []
    while not line.accept("}"):
        if parts:
            line.expect(";", "parts of a group")
        if line.text not in ("send", "recv"):
            raise line.fail("part of a group", "send or recv")
        verb = line.name("part of a group")
        made: dict[str, Any] = {}
        make = _verb(line, verb, rank, made)
        _options(line, made, rank, group=False)
        wrong = sorted(set(made) & {"handle", "stream", "when", "root"})
        if wrong:
            raise line.fail(f"{wrong[0]} of a part", "it on the group, not on its parts")
        part = make(**made)
        assert isinstance(part, ev.Transfer)
        parts.append(part)
    return tuple(parts)


def _accesses(line: _Line) -> tuple[ev.Access, ...]:
    out: list[ev.Access] = []
    while True:
        text = line.take("a buffer", "word", "access", expected="a buffer such as g or g[0:4]")
        if line.accept("from"):
            text = f"{text} from {line.name('the label of its write')}"
        out.append(access(text))
        if not line.accept(","):
            return tuple(out)
