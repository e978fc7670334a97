"""A program beside its one-device counterpart: which values are right, where it goes astray.

The body of a repeated block is seen in its first step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from shardproof.synthesis.repair.claims import Claim, Index
from shardproof.synthesis.repair.numbers import Machine, Numbers, State, first_step, primitive
from shardproof.verifier.domains.base import Array
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program, leading_to
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.evaluate import simulate
from shardproof.verifier.refute.search import too_large

IDLE = 6
"""Results that nothing reads which are looked at."""
SEEDS = (11, 12, 13)
"""Random inputs that are tried until they show a fault."""
UNMET = 4
"""Ops of the frontier, and strays, that are looked at before others."""


@dataclass
class Device:
    """The one-device side of a view: its program, as written and in primitive ops, and values."""

    program: Program
    primitive: Program
    whole: dict[str, Array]
    index: Index
    blocks: dict[int, Device] = field(default_factory=dict[int, "Device"])

    @cached_property
    def nodes(self) -> list[Node]:
        """Every op by which a value can be made, as written first."""
        made = {n.outputs[0]: n for n in self.primitive.nodes if n.body is None}
        written = [n for n in self.program.nodes if len(n.outputs) == 1 and n.body is None]
        made |= {n.outputs[0]: n for n in written if n.outputs[0] in self.whole}
        return list(made.values())


def device(numbers: Numbers) -> Device:
    """The one-device side of a whole question."""
    index = Index(numbers.whole, numbers.mesh)
    return Device(numbers.sequential, numbers.primitive, numbers.whole, index)


@dataclass
class View:
    """One scope of the distributed program beside the one-device program."""

    scope: tuple[str, ...]
    device: Device
    machine: Machine
    state: State
    claims: dict[str, list[Claim]]
    wrong: set[str]
    """Values that are wrong as results of the scope."""

    @property
    def program(self) -> Program:
        return self.state.program

    @cached_property
    def producers(self) -> dict[str, Node]:
        return self.program.producers()

    @cached_property
    def readers(self) -> dict[str, list[Node]]:
        out: dict[str, list[Node]] = {}
        for node in self.program.nodes:
            for value in dict.fromkeys(node.inputs):
                out.setdefault(value, []).append(node)
        return out

    @cached_property
    def idle(self) -> list[str]:
        """Results that nothing reads, a few."""
        ends = {o.value for o in self.program.outputs}
        made = (v for n in self.program.nodes for v in n.outputs)
        return [v for v in made if v not in self.readers and v not in ends][:IDLE]

    @cached_property
    def covered(self) -> dict[str, list[str]]:
        """For each one-device value, the distributed values that are exactly it, in pieces."""
        out: dict[str, list[str]] = {}
        for value in self.program.types:
            for claim in self.claims.get(value, ()):
                if claim.scale == 1:
                    out.setdefault(claim.of, []).append(value)
        return out

    @cached_property
    def cone(self) -> set[str]:
        """Values that a wrong result depends on."""
        return set(self.wrong).union(*(n.inputs for n in self.leading))

    @cached_property
    def leading(self) -> list[Node]:
        """Nodes that a wrong result depends on, in order."""
        return list(leading_to(self.wrong, self.program.nodes))

    @cached_property
    def lost(self) -> set[str]:
        """Values without a claim from which no claimed value leads to a wrong result."""
        return self._leading({v for v in self.program.types if not self.claims.get(v)})

    @cached_property
    def off(self) -> set[str]:
        """The same of values that are at most a multiple of something."""
        return self._leading({v for v in self.program.types if not self.exact(v)})

    def _leading(self, bad: set[str]) -> set[str]:
        """Bad values that lead to a wrong result through bad values alone."""
        out = bad & self.wrong
        for node in reversed(self.program.nodes):
            mine = bad.intersection(node.outputs) & self.cone
            if mine:
                after = (n for v in mine for n in self.readers.get(v, ()))
                if any(not out.isdisjoint(n.outputs) for n in after):
                    out |= mine
        return out

    def strays(self) -> list[Node]:
        """Where the program goes astray, in order: ops that lose what their operands are.

        Then those that make a wrong result of the scope though they are a piece of something.
        """
        first = [
            n
            for n in self.program.nodes
            if any(
                not bad.isdisjoint(n.outputs) and bad.isdisjoint(n.inputs)
                for bad in (self.lost, self.off)
            )
        ]
        ends = [self.producers[v] for v in self.wrong - self.lost if v in self.producers]
        seen = {n.outputs[0]: n for n in (*first, *ends)}
        order = {n.outputs[0]: i for i, n in enumerate(self.program.nodes)}
        return sorted(seen.values(), key=lambda n: order[n.outputs[0]])

    @cached_property
    def frontier(self) -> list[Node]:
        """One-device ops whose operands are all found and whose result is not, in order."""
        return [
            n
            for n in self.device.nodes
            if n.outputs[0] not in self.covered and all(v in self.covered for v in n.inputs)
        ]

    def unmet(self) -> list[Node]:
        """Ops that read what those of the frontier read, and compute something else."""
        place = {n.outputs[0]: i for i, n in enumerate(self.device.primitive.nodes)}
        first = sorted(self.frontier, key=lambda n: place.get(n.outputs[0], len(place)))
        out: dict[str, Node] = {}
        for theirs in first[:UNMET]:
            held = {u for v in theirs.inputs[:1] for u in self.covered[v]}
            for reader in dict.fromkeys(
                n.outputs[0] for u in held for n in self.readers.get(u, ())
            ):
                node = self.producers[reader]
                if node.op == theirs.op and reader in self.cone:
                    out.setdefault(reader, node)
        return list(out.values())[: 2 * UNMET]

    def collectives(self) -> list[Node]:
        """Collectives that make a value which is lost, in order."""
        return [
            n
            for n in self.program.nodes
            if n.outputs[0] in self.lost and lookup(n.op).kind == "collective"
        ]

    def suspects(self) -> Iterator[Node]:
        """Ops to edit, nearest to where the program goes astray first."""
        seen: set[str] = set()
        order = {n.outputs[0]: i for i, n in enumerate(self.program.nodes)}
        strays = self.strays()
        ring = strays[:UNMET] + [n for n in self.unmet() if n not in strays[:UNMET]]
        ring += [n for n in strays[UNMET:] if n not in ring]
        while ring:
            after: dict[str, Node] = {}
            for node in ring:
                if node.outputs[0] in seen:
                    continue
                seen.add(node.outputs[0])
                yield node
                for value in node.inputs:
                    if value in self.producers:
                        after[self.producers[value].outputs[0]] = self.producers[value]
                for value in node.outputs:
                    for reader in self.readers.get(value, ()):
                        if not self.cone.isdisjoint(reader.outputs):
                            after[reader.outputs[0]] = reader
            ring = sorted(after.values(), key=lambda n: order[n.outputs[0]])
        for node in self.program.nodes:
            if node.outputs[0] in self.cone and node.outputs[0] not in seen:
                yield node

    def exact(self, value: str) -> list[Claim]:
        return [c for c in self.claims.get(value, ()) if c.scale == 1]


def claims_of(
    device: Device, state: State, known: dict[str, list[Claim]] | None = None
) -> dict[str, list[Claim]]:
    """Claims of every value; those in `known` are kept for values that did not change."""
    kept = {v: c for v, c in (known or {}).items() if v not in set(state.dirty)}
    return {
        v: kept[v] if v in kept else device.index.claims(state.parts(v))
        for v in state.program.types
    }


def root(numbers: Numbers, one: Device, state: State, before: View | None = None) -> View:
    """The view of a whole program, with the claims of an earlier one where nothing changed."""
    bad = numbers.wrong(state)
    wrong = {o.value for o in state.program.outputs if output_key(o) in bad}
    claims = claims_of(one, state, before.claims if before else None)
    return View((), one, numbers.machine, state, claims, wrong)


def strays(problem: Problem) -> list[Node]:
    """Where the numbers of the distributed program leave those of one device, in order; none where
    the programs are too large to be run, or random numbers show no difference."""
    one, many = problem.sequential, problem.distributed
    if too_large(one, many):
        return []
    for seed in SEEDS:
        numbers = Numbers(one, many, problem.contract, problem.consts, seed)
        found = root(numbers, device(numbers), numbers.machine.run(many, numbers.empty))
        if found.wrong:
            return found.strays()
    return []


def block(outer: View, node: Node) -> View | None:
    """The view of the body of a scan in its first step, beside the block it most looks like."""
    body = node.block
    given = first_step(node, body, outer.state.ranks)
    if given is None:
        return None
    theirs = _counterpart(outer, node)
    if theirs is None or theirs.body is None:
        return None
    one = outer.device.blocks.get(id(theirs))
    if one is None:
        start = first_step(theirs, theirs.body, [outer.device.whole])
        if start is None:
            return None
        plain, names = primitive(theirs.body)
        (whole,) = simulate(plain, start, outer.machine.domain)
        whole |= {name: whole[other] for name, other in names.items()}
        one = Device(theirs.body, plain, whole, Index(whole, outer.machine.mesh))
        outer.device.blocks[id(theirs)] = one
    machine = outer.machine
    state = machine.run(body, machine.start(body, given))
    claims = claims_of(one, state)
    wrong = {o.value for o in body.outputs}
    return View((*outer.scope, node.outputs[0]), one, machine, state, claims, wrong)


def _counterpart(outer: View, node: Node) -> Node | None:
    """The one-device scan of the same length whose operands are most like those of the node."""
    taken = {c.of for v in node.inputs for c in outer.claims.get(v, ())}
    scans = [n for n in outer.device.program.nodes if n.body is not None]

    def alike(scan: Node) -> int:
        return len(taken.intersection(scan.inputs)) + (scan.attrs["carry"] == node.attrs["carry"])

    same = (n for n in scans if n.attrs["length"] == node.attrs["length"])
    return max(same, key=alike, default=None)


__all__ = ["Device", "View", "block", "claims_of", "device", "root", "strays"]
