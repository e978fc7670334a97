"""Runs an edited program on field elements again, only as far as the edit reaches.

A node that cannot run (wrong ranks, shapes that do not meet) leaves its results out and the run
goes on: what else is right can still be seen.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.domains.field import Field
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.ops import Refused
from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Node, Output, Program
from shardproof.verifier.kernel.program.residency import region_of
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, contains, members
from shardproof.verifier.kernel.rank_sets import Regions, regions
from shardproof.verifier.refute.evaluate import Ranks, evaluate, run_node
from shardproof.verifier.refute.premises import Premises
from shardproof.verifier.refute.sampling import sample
from shardproof.verifier.refute.scatter import copies, gather, piece, scatter

CANNOT = (IRError, Refused, ValueError, KeyError, IndexError, StopIteration, AssertionError)


class Guesses(Field):
    """A field whose order has 1 on top: a factor `min(1, x)`, as of clipping, is x and is seen."""

    def _above(self, a: Array, b: Array) -> Array:
        return (a == 1) | ((b != 1) & super()._above(a, b))


@dataclass
class State:
    """Values of every rank of one program, and the ranks that should hold them."""

    program: Program
    ranks: Ranks
    held: dict[str, Where]
    dirty: list[str]
    """Values that differ from those of the state it was run from, in order."""
    stuck: dict[str, str]
    """Results of nodes that could not run, with the reason."""

    @cached_property
    def ran(self) -> set[int]:
        """The nodes that were run, by identity."""
        return {id(n) for n in self.program.nodes if n.outputs[0] in self.held}

    def parts(self, value: str) -> list[Array | None]:
        """A value on every rank, None where a rank has none."""
        return [local.get(value) for local in self.ranks]


class Machine:
    """Runs nodes of programs on one mesh over one domain."""

    def __init__(self, mesh: Mesh, domain: Domain) -> None:
        self.mesh, self.domain = mesh, domain
        self.coords = mesh.coords()
        self._parts: dict[tuple[object, ...], Program] = {}
        self._bodies: dict[int, tuple[Program, Program]] = {}

    def sizes(self, names: Collection[str]) -> int:
        """How many ranks a group over some mesh dims has."""
        return math.prod(self.mesh[name] for name in names)

    def start(self, program: Program, given: Sequence[Mapping[str, Array]]) -> State:
        """The inputs of each rank, nothing run yet."""
        ranks: Ranks = [
            {i.name: local[i.name] for i in program.inputs if contains(i.where, where)}
            for local, where in zip(given, self.coords, strict=True)
        ]
        return State(program, ranks, {i.name: i.where for i in program.inputs}, [], {})

    def run(self, program: Program, base: State, most: int = 1 << 30) -> State:
        """Run what differs from the program of `base`, at most `most` nodes of it."""
        known = base.ran
        ranks = [dict(local) for local in base.ranks]
        out = State(program, ranks, dict(base.held), [], dict(base.stuck))
        held, dirty = out.held, dict[str, None]()
        count = 0
        for node in program.nodes:
            if id(node) in known and (not dirty or dirty.keys().isdisjoint(node.inputs)):
                continue
            if count == most:
                break
            count += 1
            before = [[local.pop(v, None) for v in node.outputs] for local in ranks]
            where = held.get(node.outputs[0])
            self._step(node, out)
            after = [[local.get(v) for v in node.outputs] for local in ranks]
            same = where == held[node.outputs[0]] and all(
                (a is None and b is None)
                or (a is not None and b is not None and np.array_equal(a, b))
                for old, new in zip(before, after, strict=True)
                for a, b in zip(old, new, strict=True)
            )
            if not same or where is None:
                dirty |= dict.fromkeys(node.outputs)
        out.dirty += dirty
        return out

    def _step(self, node: Node, out: State) -> None:
        ranks, held, stuck = out.ranks, out.held, out.stuck
        types = [out.program.types[v] for v in node.inputs]
        for name in node.outputs:
            held[name] = node.where
            stuck.pop(name, None)
        try:
            part = self._part(node, types)
            local: Ranks = [
                {p.name: r[v] for p, v in zip(part.inputs, node.inputs, strict=True) if v in r}
                for r in ranks
            ]
            places = Regions(
                {p.name: held[v] for p, v in zip(part.inputs, node.inputs, strict=True)}
            )
            for inner in part.nodes:
                region = region_of(inner, [places.values[v] for v in inner.inputs], self.mesh)
                places.values |= dict.fromkeys(inner.outputs, region)
                if inner.body is not None:
                    places.bodies[inner.outputs[0]] = regions(inner.body, region)
                    if places.bodies[inner.outputs[0]].faults():
                        raise IRError(places.bodies[inner.outputs[0]].faults()[0].reason)
                run_node(inner, local, self.mesh, self.coords, self.domain, places)
        except CANNOT as error:
            stuck[node.outputs[0]] = str(error)
            return
        for name, end in zip(node.outputs, part.outputs, strict=True):
            held[name] = places.values[end.value]
            for rank, values in zip(ranks, local, strict=True):
                if end.value in values:
                    rank[name] = values[end.value]

    def _part(self, node: Node, types: Sequence[TensorType]) -> Program:
        """The node alone as a program of primitive ops, of inputs `0`, `1`, ..."""
        body = node.body
        if body is not None:
            kept = self._bodies.get(id(body))
            if kept is None:
                kept = self._bodies[id(body)] = (body, inline(body))
            body = kept[1]
        attrs = tuple(sorted(node.attrs.items()))
        key = (node.op, attrs, tuple(types), node.where, id(body), len(node.outputs))
        part = self._parts.get(key)
        if part is None:
            b = Builder("part", self.mesh)
            names = [b.input(f"in{k}", type) for k, type in enumerate(types)]
            outputs = [f"out{k}" for k in range(len(node.outputs))]
            b.add_node(node.op, names, node.attrs, outputs=outputs, body=body, where=node.where)
            for name in outputs:
                b.output(name)
            part = self._parts[key] = inline(b.build())
        return part


def primitive(program: Program) -> tuple[Program, dict[str, str]]:
    """The program in primitive ops, and what it calls the values that composite ops make."""
    names = list(program.types)
    every = replace(program, outputs=tuple(Output(name) for name in names))
    done = inline(every)
    called = {n: o.value for n, o in zip(names, done.outputs, strict=True) if n != o.value}
    outputs = (replace(o, value=called.get(o.value, o.value)) for o in program.outputs)
    return replace(done, outputs=tuple(outputs)), called


class Numbers:
    """Both programs of a question on one set of random field elements."""

    def __init__(
        self,
        sequential: Program,
        distributed: Program,
        contract: Contract,
        consts: Mapping[str, Array] | None = None,
        seed: int = 11,
    ) -> None:
        self.sequential, self.contract = sequential, contract
        self.mesh = distributed.mesh
        self.domain = Guesses(seed)
        self.machine = Machine(self.mesh, self.domain)
        rng = np.random.default_rng(seed)
        drawn = sample(sequential, self.domain, rng, consts or {})
        premises = Premises(sequential, contract, self.mesh, consts or {})
        inputs = premises.met(drawn, self.domain, rng) or drawn
        self.primitive, names = primitive(sequential)
        self.whole = evaluate(self.primitive, inputs, self.domain)
        self.whole |= {name: self.whole[other] for name, other in names.items()}
        pieces = {
            i.name: scatter(inputs[i.name], contract.inputs[i.name], self.mesh, self.domain, rng)
            for i in distributed.inputs
        }
        given = [{n: p[r] for n, p in pieces.items()} for r in range(self.mesh.size)]
        self.empty = self.machine.start(distributed, given)
        coords = self.mesh.coords()
        self.wanted: dict[str, tuple[Layout, list[int], Array, dict[int, Array]]] = {}
        for out in sequential.outputs:
            key, value = output_key(out), self.whole[out.value]
            layout = contract.outputs[key]
            asked = members(contract.wanted.get(key, EVERYWHERE), self.mesh)
            pieces_of = (
                {} if layout.partial else {r: piece(value, layout, coords[r]) for r in asked}
            )
            self.wanted[key] = layout, asked, value, pieces_of

    def wrong(self, state: State) -> set[str]:
        """Keys of the outputs that some rank has wrong, or not at all."""
        return {output_key(o) for o in state.program.outputs if not self.meets(o, state)}

    def meets(self, out: Output, state: State) -> bool:
        """Whether every rank that is asked for an output has its piece."""
        key = output_key(out)
        layout, asked, value, pieces = self.wanted[key]
        have = [local.get(out.value) for local in state.ranks]
        parts = [np.zeros(0) if h is None else h for h in have]
        if any(have[r] is None or parts[r].shape != layout.local_shape for r in asked):
            return False
        if not layout.partial:
            return all(np.array_equal(parts[r], pieces[r]) for r in asked)
        where = self.contract.wanted.get(key, EVERYWHERE)
        whole = gather(parts, layout, self.mesh, self.domain, where)
        return np.array_equal(whole, value) and all(
            np.array_equal(parts[a], parts[b]) for a, b in copies(layout, self.mesh, where)
        )


def first_step(
    node: Node, body: Program, ranks: Sequence[Mapping[str, Array]]
) -> list[dict[str, Array]] | None:
    """What the body of a scan is given in its first step, on every rank; None where unknown."""
    carry, xs, const = scan_parts(node.attrs, len(node.inputs))
    length = node.number("length")
    step = length - 1 if node.attrs.get("reverse") else 0
    out: list[dict[str, Array]] = []
    for local in ranks:
        if any(v not in local for v in node.inputs):
            return None
        given = [
            *(local[v] for v in node.inputs[carry]),
            *(local[v][step] for v in node.inputs[xs]),
            *(local[v] for v in node.inputs[const]),
        ]
        out.append({i.name: a for i, a in zip(body.inputs, given, strict=True)})
    return out
