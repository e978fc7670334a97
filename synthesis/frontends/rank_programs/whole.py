"""The united steps of all classes: values, and nodes with the ranks that run them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from shardproof.synthesis.frontends.rank_programs.symbolic import LineError, Step
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Input, Node, Program
from shardproof.verifier.kernel.program.types import TensorType

Piece = tuple[int, int]
"""A value, and the ranks on which it is meant."""


def by_value(pieces: Iterable[Piece]) -> dict[int, int]:
    """For each value, all the ranks on which it is meant."""
    out: dict[int, int] = {}
    for value, mask in pieces:
        out[value] = out.get(value, 0) | mask
    return out


@dataclass
class United:
    """One node of the whole program."""

    node: Node
    operands: tuple[int, ...]
    runs: int
    """The ranks that run it."""
    outputs: tuple[int, ...]
    types: tuple[TensorType, ...]
    names: tuple[str, ...]
    classes: set[int]
    pieces: tuple[Piece, ...] = ()
    """Of a merge: what it is made of."""
    dims: tuple[str, ...] = ()
    index: int = 0
    """Its place among the nodes."""
    inner: Whole | None = None
    """Of a repeated block that is not the same on all ranks: its united steps."""


@dataclass
class Value:
    """A value of the whole program: what it is called, and the ranks that hold it."""

    name: str
    type: TensorType
    region: int


@dataclass
class Whole:
    """The united steps of all classes."""

    values: list[Value] = field(default_factory=list[Value])
    inputs: dict[str, tuple[Input, int, int]] = field(
        default_factory=dict[str, tuple[Input, int, int]]
    )
    """By name: the input, its value, the ranks that take it."""
    nodes: list[United] = field(default_factory=list[United])
    outputs: dict[tuple[str, str], list[Piece]] = field(
        default_factory=dict[tuple[str, str], list[Piece]]
    )


class BlockedError(Exception):
    """No class can go on, and these have not ended: class, line."""

    def __init__(self, waiting: dict[int, int]) -> None:
        super().__init__("no class can go on")
        self.waiting = waiting


class ClassError(Exception):
    """A line of one class that does not go with the others."""

    def __init__(self, index: int, error: LineError) -> None:
        super().__init__(str(error))
        self.index, self.error = index, error


def joins(step: Step) -> str:
    """The result that a step makes."""
    return step.node.outputs[0] if step.node is not None else ""


def alike(a: Step, b: Step) -> bool:
    """Whether two ranks call the same collective."""
    if b.kind != "collective" or a.node is None or b.node is None:
        return False
    x, y = a.node, b.node
    return (
        x.op == y.op
        and lookup(x.op).with_defaults(x.attrs) == lookup(y.op).with_defaults(y.attrs)
        and x.timing == y.timing
        and _signature(x.body) == _signature(y.body)
    )


def _signature(body: Program | None) -> Hashable:
    """What a repeated block takes and gives."""
    if body is None:
        return None
    return (
        tuple((i.role, i.type) for i in body.inputs),
        tuple((o.role, body.types[o.value]) for o in body.outputs),
    )
