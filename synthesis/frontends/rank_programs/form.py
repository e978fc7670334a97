"""The concrete form: how one rank's program is written, and its lines without their numbers.

See docs/programs.md. A line is split into a skeleton (its tokens, with `#` for every integer) and
the integers. Numbers in names and strings, and decimals, stay in the skeleton.
"""

import re
from array import array
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.text.parser import read_mesh
from shardproof.verifier.text.tokens import Tokens, word

Ints = NDArray[np.int64]

_STRING = rb'"(?:[^"\\\n]|\\.)*"'
_TOKEN = re.compile(
    rb"""[ \t\r\f\v]+|\#.*
  | (?P<note>@.*)
  | (?P<int>-?[0-9]{1,18}(?![0-9]|/[0-9]|\.[0-9]|[eE][+-]?[0-9]))
  | (?P<token>%(?:[A-Za-z0-9_][A-Za-z0-9_.*/-]*|"""
    + _STRING
    + rb""")|-?[0-9]+(?:/[0-9]+|(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)|[A-Za-z_][A-Za-z0-9_.]*|"""
    + _STRING
    + rb"""|.)""",
    re.VERBOSE,
)
_NAME = re.compile(rb"%(?:" + _STRING + rb"|[^ ]+)")
BLANK = 0
"""The skeleton of a line with nothing on it."""
HOLE = "#"


class Lines(dict[bytes, int]):
    """Every line of text that was met, by number; equal lines may have two numbers, never unlike
    ones the same."""

    LIMIT = 400_000
    """So many lines are remembered; then they are forgotten, and met anew."""

    def __init__(self) -> None:
        super().__init__()
        self.skeletons: dict[bytes, int] = {b"": BLANK}
        self.texts: list[bytes] = [b""]
        self.notes: list[str] = [""]
        self._skeleton = array("i")
        self._start = array("q")
        self._numbers = array("q")

    def __missing__(self, line: bytes) -> int:
        if len(self) >= self.LIMIT:
            self.clear()
        tokens: list[bytes] = []
        numbers: list[int] = []
        note = b""
        for match in _TOKEN.finditer(line):
            kind = match.lastgroup
            if kind == "int":
                tokens.append(b"#")
                numbers.append(int(match.group()))
            elif kind == "token":
                tokens.append(match.group())
            elif kind == "note":
                note = match.group()
        text = b" ".join(tokens)
        skeleton = self.skeletons.get(text)
        if skeleton is None:
            skeleton = self.skeletons[text] = len(self.texts)
            self.texts.append(text)
            self.notes.append(note.decode("utf-8", "replace"))
        number = self[line] = len(self._skeleton)
        self._skeleton.append(skeleton)
        self._start.append(len(self._numbers))
        self._numbers.extend(numbers)
        return number

    def __len__(self) -> int:
        return super().__len__()

    @property
    def distinct(self) -> int:
        """How many lines were split."""
        return len(self._skeleton)

    def skeleton(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """The skeletons of lines."""
        return np.frombuffer(self._skeleton, dtype=np.int32)[ids]

    def numbers(self, ids: NDArray[Any], count: int) -> Ints:
        """The integers of lines of one skeleton that has `count` of them: one row each."""
        if count == 0:
            return np.zeros((len(ids), 0), np.int64)
        starts = np.frombuffer(self._start, dtype=np.int64)[ids]
        at = starts[:, None] + np.arange(count)
        return np.frombuffer(self._numbers, dtype=np.int64)[at]

    def unnamed(self, skeleton: int) -> bytes:
        """A skeleton without the names of its values."""
        return _NAME.sub(b"%", self.texts[skeleton])

    def tokens(self, skeleton: int) -> tuple[str, ...]:
        """The tokens of a skeleton. Raises MalformedError: no UTF-8."""
        return _decoded(self.texts[skeleton])


@lru_cache(maxsize=1 << 16)
def _decoded(text: bytes) -> tuple[str, ...]:
    try:
        return tuple(m.group() for m in _WORDS.finditer(text.decode("utf-8")))
    except UnicodeDecodeError as error:
        raise MalformedError(f"byte {error.start} is not UTF-8") from None


_WORDS = re.compile(r'%"(?:[^"\\]|\\.)*"|"(?:[^"\\]|\\.)*"|[^ ]+')


@lru_cache(maxsize=1 << 16)
def keys(tokens: tuple[str, ...]) -> tuple[str, ...]:
    """For each integer of a skeleton, the attribute that holds it; the rest is `:` (a type)."""
    out: list[str] = []
    depth, key, braces = 0, ":", False
    for i, token in enumerate(tokens):
        if token == "{":
            braces = True
        elif token == "}":
            braces, key = False, ":"
        elif token == "[":
            depth += 1
        elif token == "]":
            depth -= 1
        elif token == "," and depth == 0:
            key = ":"
        elif token == "=" and braces and depth == 0:
            key = tokens[i - 1]
        elif token == HOLE:
            out.append(key)
    return tuple(out)


def filled(tokens: tuple[str, ...], numbers: list[int]) -> str:
    """A line from its skeleton and integers, as a person would write it."""
    rest = iter(numbers)
    text = " ".join(str(next(rest)) if t == HOLE else t for t in tokens)
    text = re.sub(r" ([,\])}:])", r"\1", re.sub(r"([\[({]) ", r"\1", text))
    return re.sub(r"(\w) ([\[(])", r"\1\2", re.sub(r" = (?=[^%]*})", "=", text))


def header(name: str, mesh: Mesh) -> str:
    """The line that opens a set of rank programs."""
    dims = ", ".join(f"{word(n)}={size}" for n, size in mesh.dims)
    return f"ranks {mesh.size} of {word(name)} mesh({dims})"


def read_header(text: str, filename: str) -> tuple[str, Mesh]:
    """Name and mesh.

    Raises:
        MalformedError: no header, or a mesh that does not multiply out to the number of ranks.
    """
    tokens = Tokens(text, filename)
    tokens.expect("ranks", "rank programs start with `ranks COUNT of NAME mesh(...)`")
    count = tokens.integer("number of ranks")
    tokens.expect("of", "name of the program")
    name = tokens.name("name of the program")
    tokens.expect("mesh", "the mesh of the ranks")
    start = tokens.start
    mesh = read_mesh(tokens)
    if tokens.kind != "end":
        raise tokens.fail("text after the header", "nothing")
    if mesh.size != count:
        raise MalformedError(
            "the mesh does not multiply out to the number of ranks",
            where=tokens.place(start),
            expected=f"{count} ranks",
            got=f"mesh({mesh}), {mesh.size} ranks",
        )
    return name, mesh
