"""Where each value of a program lives, and which nodes cannot run there."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardproof.verifier.kernel.ops import Refused, lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.residency import region_of
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, common, show, within


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
    plain: dict[int, Regions] = field(default_factory=dict[int, "Regions"])
    """By the `id` of each body, where all ranks hold all of it."""

    def inside(self, node: Node) -> Regions:
        """The ranks of the values in the body of a scan."""
        body = node.block
        if node.outputs[0] in self.bodies:
            return self.bodies[node.outputs[0]]
        if id(body) not in self.plain:
            self.plain[id(body)] = regions(body)
        return self.plain[id(body)]

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
        where = common(base, item.where)
        held[item.name] = base if where is None else where
    out = Regions(held)
    if not base and not _restricted(program):
        held |= dict.fromkeys(program.types, EVERYWHERE)
        return out
    for node in program.nodes:
        if node.body is not None:
            _scan(node, program.mesh, base, bodies, out)
            continue
        try:
            region = region_of(node, [held[v] for v in node.inputs], program.mesh, base)
        except Refused as refusal:
            out.wrong.append(Misplaced(node, refusal.reason, refusal.mesh_dim))
            region = node.where
        for name in node.outputs:
            held[name] = region
    return out


def _scan(
    node: Node,
    mesh: Mesh,
    base: Where,
    bodies: dict[tuple[int, Where], Regions],
    out: Regions,
) -> None:
    """The ranks of a repeated block: where its inputs say `on(...)`, each on ranks of its own."""
    body = node.block
    apart = any(item.where for item in body.inputs)
    wheres = [EVERYWHERE if apart else out.values[v] for v in node.inputs]
    region = node.where
    try:
        region = region_of(node, wheres, mesh, base)
    except Refused as refusal:
        out.wrong.append(Misplaced(node, refusal.reason, refusal.mesh_dim))
    key = id(body), region
    inner = bodies.get(key) or regions(body, region, bodies)
    out.bodies[node.outputs[0]] = bodies[key] = inner
    for item, value in zip(body.inputs, node.inputs, strict=True):
        mine, given = inner.values[item.name], out.values[value]
        if common(region, item.where) is None:
            reason = f"%{item.name} is read on {show(item.where)}, outside {show(region)}"
            out.wrong.append(Misplaced(node, reason))
        elif not within(mine, given):
            reason = (
                f"%{item.name} is read on {show(mine) or 'all'}, %{value} lives on {show(given)}"
            )
            out.wrong.append(Misplaced(node, reason))
    carries = node.number("carry")
    for k, name in enumerate(node.outputs):
        made = inner.values[body.outputs[k].value]
        if k < carries:
            mine = inner.values[body.inputs[k].name]
            if not within(mine, made):
                reason = (
                    f"the next step reads %{body.inputs[k].name} on {show(mine) or 'all'}, this "
                    f"one leaves it on {show(made)}"
                )
                out.wrong.append(Misplaced(node, reason))
            made = mine
        out.values[name] = made


def _restricted(program: Program) -> bool:
    return any(i.where for i in program.inputs) or any(
        n.where or lookup(n.op).kind == "movement" for _, n in program.distinct()
    )
