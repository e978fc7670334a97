"""Where each value of a program lives, and which nodes cannot run there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from verifier.ir.program import Node, Program
from verifier.ir.types import Mesh
from verifier.ir.where import EVERYWHERE, Where, common, show, within
from verifier.ops import Refused, lookup
from verifier.ops.collectives import mesh_dims


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A node that some rank cannot run, or waits in for ever."""

    node: Node
    reason: str
    mesh_dim: str | None = None


@dataclass
class Regions:
    """Ranks by value; bodies of repeated blocks by the first output of the scan."""

    values: dict[str, Where]
    wrong: list[Misplaced] = field(default_factory=list[Misplaced])
    bodies: dict[str, Regions] = field(default_factory=dict[str, "Regions"])

    def inside(self, node: Node) -> Regions:
        """The ranks of the values in the body of a scan."""
        assert node.body is not None
        return self.bodies.get(node.outputs[0]) or regions(node.body)

    def faults(self) -> list[Misplaced]:
        """All nodes that cannot run, those of bodies included."""
        return self.wrong + [m for inner in self.bodies.values() for m in inner.faults()]


def regions(
    program: Program,
    base: Where = EVERYWHERE,
    bodies: dict[tuple[int, Where], Regions] | None = None,
) -> Regions:
    """The ranks that hold each value. A body that several nodes share is walked once a region."""
    bodies = {} if bodies is None else bodies
    held: dict[str, Where] = {}
    for item in program.inputs:
        held[item.name] = common(base, item.where) or base
    out = Regions(held)
    if not _restricted(program) and not base:
        held |= dict.fromkeys(program.types, EVERYWHERE)
        return out
    for node in program.nodes:
        try:
            region = region_of(node, [held[v] for v in node.inputs], program.mesh, base)
        except Refused as refusal:
            out.wrong.append(Misplaced(node, refusal.reason, refusal.mesh_dim))
            region = node.where
        for name in node.outputs:
            held[name] = region
        if node.body is not None:
            key = id(node.body), region
            inner = bodies.get(key) or regions(node.body, region, bodies)
            out.bodies[node.outputs[0]] = bodies[key] = inner
    return out


def _restricted(program: Program) -> bool:
    return (
        any(i.where for i in program.inputs)
        or any(n.where for _, n in program.walk())
        or any(lookup(n.op).kind == "movement" for _, n in program.walk())
    )


def region_of(node: Node, wheres: Sequence[Where], mesh: Mesh, base: Where = EVERYWHERE) -> Where:
    """The ranks that hold the results of a node, from those that hold its operands.

    Raises:
        Refused: some rank cannot run the node, or waits in it for ever.
    """
    op = lookup(node.op)
    attrs = op.with_defaults(node.attrs)
    if op.region is not None:
        return op.region(attrs, wheres, node.where, mesh)
    held = common(base, *wheres)
    if held is None:
        shown = ", ".join(
            f"%{v} on {show(w) or 'all'}" for v, w in zip(node.inputs, wheres, strict=True)
        )
        raise Refused(f"no rank holds all operands: {shown}")
    if node.where and not within(node.where, held):
        for name, where in zip(node.inputs, wheres, strict=True):
            if not within(node.where, where):
                raise Refused(f"runs on {show(node.where)}, but %{name} lives on {show(where)}")
        raise Refused(f"runs on {show(node.where)}, outside {show(held)}")
    region = node.where or held
    if op.kind == "collective":
        for name in mesh_dims(attrs["mesh_dim"]):
            if name in dict(region):
                raise Refused(
                    f"only the ranks at {show(region)} call it: the others of the group over "
                    f"{name} never join, and these wait for ever",
                    name,
                )
    return region
