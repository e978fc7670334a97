"""Instances of rules: one step of a proof, apart from the program it stands in."""

from dataclasses import dataclass
from typing import Any, cast

from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.types import Attr, Mesh
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where

JOINED = "joined"
"""In place of an op: a claim about a value that follows from other claims about it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What is claimed of one value: how its pieces lie in the whole, and on which ranks."""

    layout: Layout
    where: Where = EVERYWHERE
    dtype: str = "f32"
    zero: bool = False
    """The constant 0."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A rule applied: an op and its attributes, pieces given, piece made."""

    rule: str
    op: str
    attrs: tuple[tuple[str, Attr], ...]
    given: tuple[Piece, ...]
    made: Piece
    mesh: Mesh

    def attr(self, key: str) -> Any:
        return dict(self.attrs)[key]

    def __str__(self) -> str:
        operands = ", ".join(_piece(p) for p in self.given)
        attrs = "".join(f" {k}={_value(v)}" for k, v in self.attrs)
        return f"{self.rule}{attrs}: {operands} -> {_piece(self.made)} on {self.mesh}"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return f"({','.join(map(str, cast('tuple[object, ...]', value)))})"
    return str(value)


def _piece(piece: Piece) -> str:
    zero = "0" if piece.zero else ""
    where = "".join(f" {n}={','.join(map(str, at))}" for n, at in piece.where)
    return f"{piece.dtype}{zero}{piece.layout}{where}"
