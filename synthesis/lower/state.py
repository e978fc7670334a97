"""The state of one lowering: what was decided, what was built, and where each value stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from shardproof.synthesis.planner.cost import Prices
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.ops.classes import SPREADING, TRANSPARENT

ONE = Fraction(1)
Move = tuple[str, str, Layout]
"""A value wanted in a layout it did not stand in: (scope, value, layout)."""


class LoweringError(Exception):
    """No distribution of an op was found: which op, where, and why the last attempt failed."""

    def __init__(self, node: Node, why: str) -> None:
        super().__init__(f"{node.op} at {node.source or 'an unknown place'}: {why}")
        self.node = node


@dataclass(frozen=True, slots=True)
class Placed:
    """Layouts by (scope, value), chosen beforehand."""

    nodes: Mapping[tuple[str, str], tuple[tuple[Layout, ...], Layout]]
    """Of the operands of the node that makes a value, and of the value."""
    inputs: Mapping[tuple[str, str], Layout]
    """Of inputs of the program and of bodies, and of one slice of stacked results."""


@dataclass(frozen=True)
class Choices:
    """What a plan decides: layouts of inputs, of outputs, and of the carries of repeated blocks."""

    inputs: Mapping[str, Layout]
    """As stored between steps, by input name."""
    compute: Mapping[str, Layout]
    """As used by the ops, where that differs (parameters gathered over dp)."""
    outputs: Mapping[str, Layout]
    """By output key."""
    stream: str = "R"
    """Layout of the residual stream on tp: `R` or `S(1)`."""
    tp: str | None = None
    dp: str | None = None
    leaves: frozenset[str] = frozenset()
    """Modules that own parameters: a sum pending in one is taken before its result leaves."""
    whole: frozenset[str] = frozenset()
    """Modules whose result leaves them whole on tp: an output projection before a whole loss."""
    gather_outputs: bool = True
    """Outputs of the model are whole on tp; otherwise they stay as they come."""
    placed: Placed | None = None
    """Layouts of every op, chosen beforehand; otherwise each op takes the cheapest."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A one-device node beside the node that does its work on a rank."""

    scope: str
    """First result of the enclosing scan of the one-device program, '' at the top."""
    one: Node
    local: Node
    operands: tuple[Layout, ...]
    result: Layout


@dataclass(frozen=True)
class Lowered:
    """A distributed program, the contract it is meant to meet, and its ops beside the original."""

    program: Program
    contract: Contract
    pairs: tuple[Pair, ...]
    moved: frozenset[Move] = frozenset()
    """For `Lowering.whole(paid=...)`."""

    @property
    def stands_for(self) -> dict[tuple[str, str], tuple[str, str]]:
        """(scope, value) of the program -> (scope, value) of the one-device program."""
        return {(p.scope, p.local.outputs[0]): (p.scope, p.one.outputs[0]) for p in self.pairs}


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the distributed program: its layout, and the factor it stands at."""

    name: str
    layout: Layout
    factor: Fraction = ONE


@dataclass(frozen=True)
class Setting:
    """What all scopes of one lowering share."""

    mesh: Mesh
    choices: Choices
    prices: Prices
    memo: dict[Any, Any]
    """Prices and placements by what they depend on; valid for one program, mesh and cluster."""
    forward: frozenset[tuple[str, str]]
    """(scope, value) of the forward pass."""
    rows: dict[tuple[str, int], Layout] = field(default_factory=dict[tuple[str, int], Layout])
    """(adjoint op, extent) -> the layout that the lookup of the forward pass read its rows in."""
    pairs: list[Pair] = field(default_factory=list[Pair])
    balanced: set[str] = field(default_factory=set[str])
    """Counts of labels taken for their share of the whole."""
    paid: frozenset[Move] = frozenset()
    """Moves that an earlier lowering of the same program made: other readers share them."""
    moved: set[Move] = field(default_factory=set[Move])
    """Moves made by this one."""


@dataclass
class State:
    """One scope: the program or the body of a repeated block."""

    setting: Setting
    program: Program
    builder: Builder
    scope: str
    """First result of the enclosing scan, '' at the top."""
    producer: dict[str, Node]
    counts: frozenset[str]
    """Sums that count labels; see `counts_of`."""
    values: dict[str, list[Value]] = field(default_factory=dict[str, list[Value]])
    """Every layout a value of the one-device program is available in, the first one first."""
    weights: set[str] = field(default_factory=set[str])
    """Parameters and views of them."""
    gradients: frozenset[str] = frozenset()
    """Gradients of weights that are split over tp, and what they are views of."""

    def bind(self, name: str, value: Value) -> None:
        self.values.setdefault(name, []).append(value)

    def enter(self, name: str, value: Value, dtype: str, role: str, path: str) -> None:
        """Make an input of the distributed program."""
        self.builder.input(name, TensorType(value.layout.local_shape, dtype), role, path)
        self.bind(name, value)

    def copied(self, choices: Choices) -> State:
        """The same state of another lowering, which goes on by itself."""
        builder, held = copy(self.builder), self.setting
        builder.inputs, builder.outputs = list(builder.inputs), list(builder.outputs)
        builder.nodes = list(builder.nodes)
        builder.types, builder.held = dict(builder.types), dict(builder.held)
        setting = replace(
            held,
            choices=choices,
            rows=dict(held.rows),
            pairs=list(held.pairs),
            balanced=set(held.balanced),
            moved=set(held.moved),
        )
        values = {name: list(found) for name, found in self.values.items()}
        return replace(
            self, setting=setting, builder=builder, values=values, weights=set(self.weights)
        )

    def is_zero(self, name: str) -> bool:
        node = self.producer.get(name)
        return node is not None and node.op == "full" and node.attrs["value"] == 0

    def add(
        self,
        node: Node,
        inputs: list[str],
        attrs: Mapping[str, Any],
        operands: tuple[Layout, ...],
        result: Layout,
    ) -> str:
        """Build the local counterpart of a one-device node; returns the name of its result."""
        b = self.builder
        name = node.outputs[0] if node.outputs[0] not in b.types else b.fresh("again")
        b.add_node(node.op, inputs, dict(attrs), outputs=(name,), source=node.source)
        self.setting.pairs.append(Pair(self.scope, node, b.nodes[-1], operands, result))
        return name


def sources(producer: Mapping[str, Node], names: Iterable[str]) -> frozenset[str]:
    """Some values with what they are views of, as far as the program goes."""
    out: set[str] = set()
    for name in names:
        while name not in out:
            out.add(name)
            node = producer.get(name)
            if node is None or node.op not in TRANSPARENT:
                break
            name = node.inputs[0]
    return frozenset(out)


def scope_state(setting: Setting, program: Program, scope: str = "") -> State:
    """A fresh state for the program or for the body of the scan whose first result is `scope`."""
    builder = Builder(program.name, setting.mesh)
    builder.reserve(program.types)
    counts = frozenset[str]() if scope else counts_of(program)
    return State(setting, program, builder, scope, program.producers(), counts)


def counts_of(program: Program) -> frozenset[str]:
    """Sums that depend on index inputs alone: counts of labels."""
    index: set[str] = {i.name for i in program.inputs if not i.type.is_float}
    constant: set[str] = set()
    counts: set[str] = set()
    for node in program.nodes:
        if node.op in SPREADING and not node.inputs:
            constant |= set(node.outputs)
        elif node.op != "scan" and all(v in index or v in constant for v in node.inputs):
            if any(v in index for v in node.inputs):
                index |= set(node.outputs)
                if node.op == "sum":
                    counts |= set(node.outputs)
            else:
                constant |= set(node.outputs)
    return frozenset(counts)
