"""Lowers a class program to the core: one-device program, program of the ranks, contract.

The one-device program comes from the same ops, communication being the identity there, or from a
reference. While it lowers, the core relates each value of the ranks, so that an op that depends on
how its operand is split (a window of rows) can be written, and so that every name has a state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardproof.compat.errors import ProgramError
from shardproof.compat.mesh import DeviceMesh
from shardproof.compat.program import IROp, Program, Ranks
from shardproof.compat.sharding import Replicate, Shard, ShardingSpec, spec_of
from shardproof.compat.single import Given, Single, Tensors, at, folded, shares, stack
from shardproof.compat.tensor import TensorState
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.ops import Refused
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Node, Output, Program as CoreProgram
from shardproof.verifier.kernel.program.residency import region_of
from shardproof.verifier.kernel.program.types import Source, TensorType
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, common, members, ranks_where
from shardproof.verifier.kernel.rank_sets import Regions
from shardproof.verifier.provers.relate.facts import Break, Fact, Related, describe
from shardproof.verifier.provers.relate.rules import Rules
from shardproof.verifier.provers.relate.walk import relate
from shardproof.verifier.provers.sequential import Sequential, as_terms
from shardproof.verifier.terms import Ref


@dataclass
class Value:
    """One value of the program: its names in the two core programs, its facts, its state."""

    one: str
    many: str
    state: TensorState


@dataclass
class Lowered:
    """A class program as core programs."""

    program: Program
    mesh: DeviceMesh
    one: Sequential
    many: CoreProgram
    """The program of the ranks, without outputs."""
    values: dict[str, Value]
    """Last value of each name."""
    contract: Contract
    """Of the inputs; outputs are added per question."""
    facts: dict[str, list[Fact]]
    breaks: list[Break]
    places: dict[str, Where]
    made: dict[str, IROp] = field(default_factory=dict[str, IROp])
    """Value of the ranks -> the op that makes it."""
    unreceived: list[IROp] = field(default_factory=list[IROp])
    """Sends whose message nobody takes."""

    def fact(self, name: str) -> Fact | None:
        """What the last value of a name is, the one-device value of that name where it is."""
        return best(self.one, self.facts.get(self.values[name].many, []), self.want(name))

    def want(self, name: str) -> Ref | None:
        """The term of the one-device value of a name; None where it has none."""
        return self.one.values.get(self.values[name].one)

    def asked_on(self, name: str) -> Where:
        """The ranks on which an output is asked for.

        Everywhere, but for results that a rooted op leaves on its root, and in programs that give
        tensors to some devices or send them: there, where it lives.
        """
        value = self.values[name].many
        maker = self.made.get(value)
        staged = self.contract.held or any(op.is_p2p() for op in self.program.flat())
        if staged or type(maker).__name__ in ("Reduce", "Gather"):
            return self.places[value]
        return EVERYWHERE


def best(one: Sequential, facts: Sequence[Fact], want: Ref | None) -> Fact | None:
    """The fact that says most: of the wanted value first, then of a multiple of it."""
    if not facts:
        return None

    def worth(fact: Fact) -> tuple[bool, bool, bool, bool]:
        same = want is not None and fact.ref.id == want.id
        return (same and fact.ref == want, same, not fact.where, not fact.layout.partial)

    return max(facts, key=worth)


class Lowering(Tensors):
    """One pass over the ops for one device, one for the ranks."""

    def __init__(self, mesh: DeviceMesh, given: Mapping[str, Given]) -> None:
        super().__init__(mesh, given)
        self.rules = Rules(mesh.core)

    def lower(self, program: Program, reference: Program | None = None) -> Lowered:
        """Raises ProgramError where the program cannot run, or names what nothing defines."""
        for name, item in self.given.items():
            spec = item.state.sharding
            if spec is not None and spec.mesh.core != self.mesh.core:
                raise ProgramError(
                    f"tensor {name}: mesh mismatch, {spec.mesh.core} on the mesh {self.mesh.core}"
                )
        single = Single(self, reference or program)
        own = single if reference is None else Single(self, program)
        for name, op in own.read.items():
            if name not in single.read:
                single.input(name, op)
        single.finish()
        return _Ranked(self, program, single, own).run()


class _Ranked:
    """The program of the ranks of a class program, related as it grows."""

    def __init__(self, outer: Lowering, program: Program, single: Single, own: Single) -> None:
        self.outer, self.program, self.mesh = outer, program, outer.mesh
        self.single, self.own = single, own
        self.one = as_terms(single.built)
        self.b = Builder(program.name or "ranks", self.mesh.core)
        self.values: dict[str, Value] = {}
        self.contract = Contract({}, {})
        self.facts: dict[str, list[Fact]] = {}
        self.breaks: list[Break] = []
        self.made: dict[str, IROp] = {}
        self.count = 0
        self.sent: dict[tuple[int, int], list[tuple[IROp, Value]]] = {}
        """Messages on their way, by source and destination, in order."""

    def run(self) -> Lowered:
        for name in sorted(self.single.read.keys() | self.own.read.keys()):
            self._input(name)
        for index, op in enumerate(self.program.flat()):
            self._step(op, self.own.results[index])
        return Lowered(
            self.program, self.mesh, self.one, self.b.build(), self.values, self.contract,
            self.facts, self.breaks, self.b.held, self.made,
            [op for queue in self.sent.values() for op, _ in queue],
        )  # fmt: skip

    def _where(self, devices: tuple[int, ...] | None, name: str) -> Where:
        if devices is None:
            return EVERYWHERE
        coords = [self.mesh.device_to_coord(d) for d in devices]
        chosen = {n: {c[i] for c in coords} for i, n in enumerate(self.mesh.dim_names)}
        where = ranks_where(self.mesh.core, chosen)
        size = 1
        for n in self.mesh.dim_names:
            size *= len(chosen[n])
        if size != len(set(devices)):
            raise ProgramError(f"tensor {name}: devices {list(devices)} are no block of the mesh")
        return where

    def _input(self, name: str) -> None:
        item = self.outer.given[name]
        state, spec = item.state, item.state.spec
        where = self._where(item.devices, name)
        kind = self.outer.type_of(state)
        lead = shares(spec)
        plain = ShardingSpec(
            tuple(p if isinstance(p, Shard) else Replicate() for p in spec.placements), self.mesh
        )
        layout = plain.layout(state.global_shape)
        core = f"{name}.shares" if lead else name
        known = core in self.single.built.types
        if lead:
            whole = stack(kind, spec).shape
            front = Layout.replicate(whole[: len(lead)]).dims
            layout = Layout((*front, *layout.dims))
            for index, (mesh_dim, size, _) in enumerate(lead):
                spread = ShardingSpec(
                    tuple(Shard(0) if n == mesh_dim else Replicate() for n in self.mesh.dim_names),
                    self.mesh,
                ).layout((size,))
                layout = layout.with_dim(index, spread.dims[0])
        self.b.input(core, TensorType(layout.local_shape, kind.dtype), where=where)
        if known:
            self.contract.inputs[core] = layout
            if where:
                self.contract.held[core] = where
            ref = self.one.values[core]
            self.facts[core] = [Fact(ref, layout, (), "contract", where)]
        else:
            self.facts[core] = []
        value = core
        if lead:
            fragment = Builder("shares", self.mesh.core)
            fragment.input(core, self.b.types[core], where=where)
            fragment.output(folded(fragment, core, spec))
            (value,) = self._append(fragment.build(), f"{name}.whole")
        self.values[name] = Value(self.single.names.get(name, ""), value, replace(state))

    def _append(self, fragment: CoreProgram, hint: str) -> tuple[str, ...]:
        """Put the nodes of a fragment at the end, and relate them."""
        fragment = inline(fragment)
        rename = {i.name: i.name for i in fragment.inputs}
        nodes: list[Node] = []
        results = [o.value for o in fragment.outputs]
        for node in fragment.nodes:
            outputs: list[str] = []
            for name in node.outputs:
                last = results == [name] and hint not in self.b.types
                fresh = hint if last else self._fresh(hint)
                rename[name] = fresh
                outputs.append(fresh)
            moved = replace(
                node, inputs=tuple(rename[v] for v in node.inputs), outputs=tuple(outputs)
            )
            self.b.add_node(
                moved.op, moved.inputs, moved.attrs, outputs=moved.outputs,
                source=moved.source, where=moved.where, timing=moved.timing,
            )  # fmt: skip
            nodes.append(moved)
            try:
                region_of(moved, [self.b.held[v] for v in moved.inputs], self.mesh.core)
            except Refused as refusal:
                self.breaks.append(Break(moved, refusal, (), ""))
        piece = CoreProgram(hint, (), tuple(nodes), (), self.b.types, self.mesh.core)
        known = {v: self.facts[v] for n in nodes for v in n.inputs if v in self.facts}
        related: Related = relate(
            self.one, piece, known, self.contract, self.outer.rules, "", Regions(self.b.held)
        )
        for node in nodes:
            for name in node.outputs:
                self.facts[name] = related.facts.get(name, [])
        self.breaks += related.breaks
        return tuple(rename[v] for v in results)

    def _fresh(self, hint: str) -> str:
        while True:
            self.count += 1
            name = f"{hint}.{self.count}"
            if name not in self.b.types:
                return name

    def _step(self, op: IROp, singles: tuple[str, ...]) -> None:
        names = op.input_names
        operands = [self.values[n] for n in names]
        if getattr(op, "core", "") == "recv":
            operands = [self._received(op)]
        states = [v.state for v in operands]
        op.check(states)
        fragment = Builder("op", self.mesh.core)
        fragment.source = op.source
        given = list(dict.fromkeys(v.many for v in operands))
        for value in given:
            fragment.input(value, self.b.types[value], where=self.b.held[value])
        layouts = {v: f.layout for v in given if (f := best(self.one, self.facts[v], None))}
        site = Ranks(fragment, self.mesh, layouts, dict(zip(names, states, strict=True)))
        try:
            made = op.on_ranks(site, *(v.many for v in operands))
        except IRError as error:
            raise ProgramError(f"{op} on each rank: {self._shown(op)}: {error}{at(op)}") from None
        results = (made,) if isinstance(made, str) else tuple(made)
        for name in results:
            fragment.outputs.append(Output(name, "output", name))
        hint = op.output_names[0] if op.output_names else names[0]
        done = self._append(fragment.build(), hint)
        claim = getattr(op, "claim", None)
        if claim is not None:
            after = best(self.one, self.facts[done[0]], None)
            claim(layouts.get(operands[0].many), after.layout if after else None)
        outputs = op.output_names or [f"{names[0]} in flight"]
        for name, value, single in zip(outputs, done, singles, strict=False):
            one = self._twin(single, name)
            value = self._merged(name, value, op)
            state = self._state(name, value, one, op)
            op.mark(state, states)
            made_here = Value(one, value, state)
            if getattr(op, "core", "") == "send":
                self.sent.setdefault(_route(op), []).append((op, made_here))
            if op.output_names:
                self.values[name] = made_here
            self.made.setdefault(value, op)

    def _merged(self, name: str, value: str, op: IROp) -> str:
        """One value, where ranks that share no work receive their parts under one name."""
        before = self.values.get(name)
        if getattr(op, "core", "") != "recv" or before is None:
            return value
        maker = self.made.get(before.many)
        apart = common(self.b.held[before.many], self.b.held[value]) is None
        if not apart or getattr(maker, "core", "") != "recv":
            return value
        fragment = Builder("merge", self.mesh.core)
        fragment.source = op.source
        for part in (before.many, value):
            fragment.input(part, self.b.types[part], where=self.b.held[part])
        try:
            both = fragment.add("merge", before.many, value)
        except IRError as error:
            raise ProgramError(f"{op}: {name} was received otherwise: {error}{at(op)}") from None
        fragment.outputs.append(Output(both, "output", both))
        (joined,) = self._append(fragment.build(), name)
        return joined

    def _received(self, op: IROp) -> Value:
        """The oldest message between the two devices. It must be the one that is named."""
        queue = self.sent.get(_route(op), [])
        (name,) = op.input_names
        if not queue:
            raise ProgramError(f"{op}: no matching Send before it{at(op)}")
        sender, value = queue.pop(0)
        if name not in (*sender.input_names, *sender.output_names):
            raise ProgramError(f"{op}: the next message on this way is that of {sender}{at(op)}")
        return value

    def _twin(self, single: str, name: str) -> str:
        """The one-device value of the reference that goes by this name."""
        if self.single is self.own:
            return single
        return self.single.names.get(name, "")

    def _shown(self, op: IROp) -> str:
        parts: list[str] = []
        for name in op.input_names:
            state, local = self.values[name].state, self.b.types[self.values[name].many].shape
            how = str(state.sharding) if state.sharding else "no relation"
            parts.append(f"{name} is {list(local)} of {list(state.global_shape)} ({how})")
        return ", ".join(parts)

    def _state(self, name: str, value: str, one: str, op: IROp) -> TensorState:
        local = self.b.types[value].shape
        want = self.one.values.get(one)
        fact = best(self.one, self.facts[value], want)
        if fact is None:
            why = next((str(b.refused.reason) for b in reversed(self.breaks)), "")
            why = why or "what the ranks hold is no piece of one value"
            known = self.single.built.types
            whole = known[one].shape if one in known else local
            return TensorState(
                name, whole, local, None, expr=str(op), relation=f"no relation: {why}"
            )
        spec = spec_of(fact.layout, self.mesh)
        shape = fact.layout.global_shape
        found = describe(self.one, fact)
        held = self.b.held[value]
        ids = tuple(self.mesh.ids[r] for r in members(held, self.mesh.core)) if held else ()
        return TensorState(name, shape, local, spec, expr=str(op), devices=ids, relation=found)


def lower_against(outer: Lowering, program: Program, single: Single, own: Single) -> Lowered:
    """Lower for the ranks against a finished one-device program; `own` is that of `program`."""
    return _Ranked(outer, program, single, own).run()


def _route(op: IROp) -> tuple[int, int]:
    src, dst = (getattr(op, k) for k in ("src", "dst"))
    return src, dst


def source_of(lowered: Lowered, name: str) -> Source:
    """Where the last value of a name is made."""
    op = lowered.made.get(lowered.values[name].many)
    return op.source if op else Source()
