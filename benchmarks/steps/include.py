"""Puts the nodes of one program into another that is being built, in several goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from shardproof.synthesis.autodiff.autodiff import expand
from shardproof.synthesis.training.microbatch import added, include, repeated, row
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Node, Program

BATCH = ("ids", "labels", "weight")
"""Inputs with a leading dim of micro-batches."""


@dataclass(frozen=True)
class Joint:
    """A program with its gradients, and how many of its nodes are forward."""

    program: Program
    forward: int


def accumulated(b: Builder, joint: Joint, count: int, *, scan: bool) -> dict[str, str]:
    """The sums of all micro-batches by output key: of one repeated block, or of a copy for each."""
    program = joint.program
    if scan:
        return repeated(b, program, count, BATCH)
    sums: dict[str, str] = {}
    for m in range(count):
        bound = {i.name: i.name for i in program.inputs if i.name not in BATCH}
        bound |= {name: row(b, name, m) for name in BATCH}
        added(b, sums, include(b, program, bound, f"mb{m}."))
    return sums


class Part:
    """One use of a program inside another; its nodes may go in at several points.

    `forward` adds the nodes before the backward ones, `backward` the rest: a joint program is
    cut where the gradients begin. Only nodes that some output needs are added, each once.
    """

    def __init__(self, program: Program, forward: int, prefix: str) -> None:
        self.program, self.cut, self.prefix = program, forward, prefix
        self.names: dict[str, str] = {}
        self.needed = needed(program, (o.value for o in program.outputs))
        self.added: set[int] = set()

    def bind(self, inputs: Mapping[str, str]) -> None:
        """Say which outer values the inputs are."""
        self.names.update(inputs)

    def forward(self, b: Builder) -> None:
        self._add(b, range(self.cut), self.needed)

    def backward(self, b: Builder, toward: str = "") -> None:
        """The backward nodes; only those that the output `toward` (a key) needs, if it is given."""
        ends = [o.value for o in self.program.outputs if output_key(o) == toward]
        wanted = needed(self.program, ends) if toward else self.needed
        self._add(b, range(self.cut, len(self.program.nodes)), wanted)

    def outputs(self) -> dict[str, str]:
        """Outer values by output key, `role:path`, of what was added so far."""
        return {
            output_key(o): self.names[o.value]
            for o in self.program.outputs
            if o.value in self.names
        }

    def _add(self, b: Builder, indices: Iterable[int], needed: frozenset[str]) -> None:
        for index in indices:
            node = self.program.nodes[index]
            if index in self.added or not any(v in needed for v in node.outputs):
                continue
            self.added.add(index)
            named = tuple(f"{self.prefix}{v}" for v in node.outputs)
            b.add_node(
                node.op,
                tuple(self.names[v] for v in node.inputs),
                node.attrs,
                outputs=named,
                body=node.body,
                where=node.where or None,
                timing=node.timing,
            )
            self.names.update(zip(node.outputs, named, strict=True))


def needed(program: Program, values: Iterable[str]) -> frozenset[str]:
    """These values, and all that they are made of."""
    wanted = set(values)
    for node in reversed(program.nodes):
        if any(v in wanted for v in node.outputs):
            wanted.update(node.inputs)
    return frozenset(wanted)


def forward_nodes(program: Program) -> int:
    """How many nodes of `grad(program)` are forward."""
    return len(expand(program).nodes)


def renamed(program: Program, names: Mapping[str, str], paths: Mapping[str, str]) -> Program:
    """The program with other names of its inputs, and other paths of inputs and outputs."""

    def name(value: str) -> str:
        return names.get(value, value)

    return replace(
        program,
        inputs=tuple(
            replace(i, name=name(i.name), path=paths.get(i.path, i.path)) for i in program.inputs
        ),
        nodes=tuple(replace(n, inputs=tuple(map(name, n.inputs))) for n in program.nodes),
        outputs=tuple(
            replace(o, value=name(o.value), path=paths.get(o.path, o.path)) for o in program.outputs
        ),
        types={name(value): type for value, type in program.types.items()},
    )


def shared(program: Program, bodies: dict[str, Program]) -> Program:
    """The program with equal bodies of repeated blocks made one object, kept in `bodies`."""
    nodes: list[Node] = []
    for node in program.nodes:
        if node.body is not None:
            body = shared(node.body, bodies)
            node = replace(node, body=bodies.setdefault(repr(body), body))
        nodes.append(node)
    return program.with_nodes(nodes, program.types)
