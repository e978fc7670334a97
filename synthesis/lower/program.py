"""Lowers a one-device program to a distributed one, given where its inputs live.

Walks the program in order. Every value keeps the layouts it is available in; each op takes the
layouts its rule accepts at the least cost, and collectives are inserted where a layout has to
change. The result is a candidate: only the verifier decides whether it is right.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from shardproof.synthesis.autodiff.forward import forward_values
from shardproof.synthesis.lower.blocks import compute, run
from shardproof.synthesis.lower.emission import get, primary, rescale
from shardproof.synthesis.lower.local_attributes import without
from shardproof.synthesis.lower.state import (
    Choices,
    Lowered,
    LoweringError,
    Move,
    Setting,
    State,
    Value,
    scope_state,
    sources,
)
from shardproof.synthesis.planner.cost import Prices
from shardproof.verifier.kernel.contract import Balanced, Contract, output_key
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.program.program import Output, Program
from shardproof.verifier.kernel.program.types import Mesh, TensorType

STRIDE = 128
"""Ops of the forward pass from one stop to the next."""
LINES = 6
"""Forward passes whose stops are kept."""


class Ahead(NamedTuple):
    """A forward pass, as far as it is lowered."""

    lowered: Lowered
    since: int
    """The first op that was not there at the stop before."""
    ended: bool


Admit = Callable[[Ahead], None]
"""Is shown a forward pass at each stop, and may raise to have no more of it lowered."""


class Stop(NamedTuple):
    """A forward pass, lowered up to an op of the one-device program."""

    at: int
    state: State


@dataclass(eq=False)
class Line:
    """The stops of a forward pass."""

    choices: Choices
    stops: list[Stop]


@dataclass
class Lowering:
    """Lowers one program (primitives only) at many choices. A forward pass goes on from where it
    begins to differ from one before."""

    program: Program
    mesh: Mesh
    prices: Prices
    memo: dict[Any, Any] = field(default_factory=dict[Any, Any])
    """Prices and placements by what they depend on."""
    lines: list[Line] = field(default_factory=list[Line])
    """The latest first."""

    @cached_property
    def forward(self) -> frozenset[tuple[str, str]]:
        return frozenset(forward_values(self.program))

    @cached_property
    def end(self) -> int:
        """Of the ops of the forward pass."""
        nodes = enumerate(self.program.nodes)
        return 1 + max((k for k, n in nodes if ("", n.outputs[0]) in self.forward), default=-1)

    @cached_property
    def wanted(self) -> frozenset[tuple[str, str]]:
        """What is lowered for its own sake, not for the next value of a buffer."""
        return frozenset(forward_values(self.program, state=False))

    @cached_property
    def first(self) -> dict[str, int]:
        """The first op that reads an input, and the first of a module, behind a dot."""
        found: dict[str, int] = {}
        for k, node in enumerate(self.program.nodes):
            for name in (*node.inputs, f".{node.source.module}"):
                found.setdefault(name, k)
        return found

    def ahead(
        self,
        choices: Choices,
        paid: frozenset[Move] = frozenset(),
        admit: Admit | None = None,
    ) -> State:
        """The forward pass alone. `paid` are the moves of an earlier lowering at the same choices:
        each op then reckons that they are made.

        Raises:
            LoweringError: an op for which no distribution was found.
        """
        at, top, line = self._begun(choices, paid)
        while at < self.end:
            since, start = len(top.builder.nodes), at
            at = min(at + STRIDE, self.end)
            run(top, self.program.nodes[start:at])
            if admit is not None:
                ended = at == self.end
                made = self._so_far(top, self._ends(0 if ended else start, at, ended))
                admit(Ahead(made, 0 if ended else since, ended))
            if line is not None:
                line.stops.append(Stop(at, top.copied(choices)))
        return top

    def whole(
        self,
        choices: Choices,
        paid: frozenset[Move] = frozenset(),
        admit: Admit | None = None,
    ) -> Lowered:
        """The program as every rank runs it.

        Raises:
            LoweringError: an op for which no distribution was found.
        """
        top = self.ahead(choices, paid, admit)
        run(top, self.program.nodes[self.end :])
        outputs: dict[str, Layout] = {}
        for out in self.program.outputs:
            key = output_key(out)
            natural = primary(top, out.value).layout
            target = choices.outputs.get(key) or _result(natural, out.role, choices)
            found = get(top, out.value, target)
            if found is None:
                raise LoweringError(top.producer[out.value], f"{key} is not to be had as {target}")
            value = rescale(top, out.value, found)
            top.builder.output(value.name, out.role, out.path)
            outputs[key] = value.layout
        setting = top.setting
        balanced = tuple(
            Balanced(name, choices.dp or "", "the number of labels that count")
            for name in sorted(setting.balanced)
        )
        contract = Contract(dict(choices.inputs), outputs, balanced)
        pairs, moved = tuple(setting.pairs), frozenset(setting.moved)
        return Lowered(top.builder.build(), contract, pairs, moved)

    def _begun(self, choices: Choices, paid: frozenset[Move]) -> tuple[int, State, Line | None]:
        """Where a forward pass begins, in which state, and the line that its stops are kept in."""
        if paid:
            return 0, self._entered(choices, paid), None
        line, stop, near = Line(choices, []), None, list[Line]()
        for other in self.lines:
            alike = self._alike(other.choices, choices)
            for k, known in enumerate(other.stops):
                if known.at <= alike and (stop is None or known.at > stop.at):
                    stop, line.stops, near = known, other.stops[: k + 1], [other]
        rest = (other for other in self.lines if other not in near)
        self.lines = [line, *near, *rest][:LINES]
        if stop is None:
            return 0, self._entered(choices, paid), line
        top = stop.state.copied(choices)
        for k, item in enumerate(top.builder.inputs):
            layout = choices.inputs[item.name]
            if layout != stop.state.setting.choices.inputs[item.name]:
                type = TensorType(layout.local_shape, item.type.dtype)
                top.builder.inputs[k] = replace(item, type=type)
                top.builder.types[item.name] = type
                top.values[item.name] = [Value(item.name, layout)]
        top.gradients = self._gradients(top, choices)
        return stop.at, top, line

    def _alike(self, one: Choices, other: Choices) -> int:
        """How many ops of the forward pass are lowered alike at two choices."""
        had = one.inputs
        names = [n for n, x in other.inputs.items() if x is not had[n] and x != had[n]]
        rest = replace(other, inputs=one.inputs, compute=one.compute, whole=one.whole)
        gathered = any(
            c.compute.get(n, c.inputs[n]) != c.inputs[n] for n in names for c in (one, other)
        )
        if gathered or other.placed is not None or replace(rest, outputs=one.outputs) != one:
            return 0
        names += [f".{module}" for module in one.whole ^ other.whole]
        return min((self.first.get(n, self.end) for n in names), default=self.end)

    def _entered(self, choices: Choices, paid: frozenset[Move]) -> State:
        """Nothing but the inputs."""
        program = self.program
        setting = Setting(self.mesh, choices, self.prices, self.memo, self.forward, paid=paid)
        top = scope_state(setting, program)
        stacked = {
            v
            for node in program.nodes
            if node.op == "scan"
            for v in node.inputs[scan_parts(node.attrs, len(node.inputs))[1]]
        }
        for item in program.inputs:
            value = Value(item.name, choices.inputs[item.name])
            if item.role == "param":
                top.weights.add(item.name)
            top.enter(item.name, value, item.type.dtype, item.role, item.path)
            computed = choices.compute.get(item.name)
            if computed is not None and item.name not in stacked:
                compute(top, item.name, computed)
        top.gradients = self._gradients(top, choices)
        return top

    def _gradients(self, top: State, choices: Choices) -> frozenset[str]:
        grads = (out for out in self.program.outputs if out.role == "grad")
        split = [out.value for out in grads if _is_split(choices, output_key(out))]
        return sources(top.producer, split)

    def _ends(self, start: int, stop: int, ended: bool) -> list[Output]:
        """What some ops of the forward pass are lowered for."""
        if ended:
            return [o for o in self.program.outputs if o.role in ("output", "loss")]
        made = (v for node in self.program.nodes[start:stop] for v in node.outputs)
        return [Output(v, "output", v) for v in made if ("", v) in self.wanted]

    def _so_far(self, top: State, outs: Sequence[Output]) -> Lowered:
        """What stands of the forward pass: its values as they were made."""
        made = (
            replace(o, value=top.values[o.value][0].name) for o in outs if o.value in top.values
        )
        program = replace(top.builder.build(), outputs=tuple(made))
        return Lowered(program, Contract({}, {}), tuple(top.setting.pairs))


def lower(program: Program, mesh: Mesh, choices: Choices, prices: Prices) -> Lowered:
    """Lower a one-device program (primitives only) once.

    Raises:
        LoweringError: an op for which no distribution was found.
    """
    return Lowering(program, mesh, prices).whole(choices)


def _is_split(choices: Choices, key: str) -> bool:
    layout = choices.outputs.get(key)
    return layout is not None and choices.tp in layout.sharded


def _result(natural: Layout, role: str, choices: Choices) -> Layout:
    """Losses are whole everywhere; other outputs keep their batch split."""
    names = natural.mentioned if role == "loss" else natural.pending
    if choices.tp and choices.gather_outputs:
        names = names | {choices.tp}
    return without(natural, names)
