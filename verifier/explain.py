"""Names the op to blame when an output is not as the contract asks."""

from collections.abc import Sequence
from math import prod

from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.where import Where
from shardproof.verifier.kernel.rank_sets import regions
from shardproof.verifier.provers.relate.facts import Break, Fact, Related, describe
from shardproof.verifier.provers.sequential import Sequential
from shardproof.verifier.verdict import Location, Relation


def show(node: Node) -> str:
    """A node as text, without its types."""
    attrs = ", ".join(f"{k}={v}" for k, v in node.attrs.items())
    left = ", ".join("%" + v for v in node.outputs)
    right = ", ".join("%" + v for v in node.inputs)
    return f"{left} = {node.op} {right}" + (f" {{{attrs}}}" if attrs else "")


def place(node: Node, reason: str) -> Location:
    """A node as the place of what is wrong."""
    return Location(node.op, show(node), reason, node.source)


def locate(
    one: Sequential,
    distributed: Program,
    related: Related,
    contract: Contract,
    wrong: dict[str, list[Fact]],
) -> Location | None:
    """The first op without a relation, else the output whose relation is not the one asked for."""
    if related.breaks:
        return _from_break(one, distributed, related, related.breaks[0])
    stray = _first_stray(
        one, distributed, related, [o.value for o in distributed.outputs if output_key(o) in wrong]
    )
    producers = distributed.producers()
    wanted = {output_key(o): one.values[o.value] for o in one.program.outputs}
    for out in distributed.outputs:
        key = output_key(out)
        if key not in wrong:
            continue
        node = stray or producers.get(out.value)
        want = Fact(wanted[key], contract.outputs[key])
        have = wrong[key]
        found = describe(one, have[0]) if have else "no relation"
        reason = f"{key} must be {describe(one, want)}; it is {found}"
        pending = sorted(have[0].layout.pending) if have else []
        mesh_dim = pending[0] if pending else None
        if node is None:
            return Location("output", f"%{out.value}", reason, mesh_dim=mesh_dim)
        operands = tuple(
            f"%{v}: {describe(one, f[0])}" for v in node.inputs if (f := related.facts.get(v))
        )
        return Location(node.op, show(node), reason, node.source, operands, mesh_dim)
    return None


def _from_break(one: Sequential, distributed: Program, related: Related, broken: Break) -> Location:
    body = broken.node.body
    root = _first_lost(one, distributed, related, broken.node.inputs, body is not None)
    if root is not None:
        return _strayed(one, related, root)
    if body is not None and broken.node.outputs[0] in related.bodies:
        scan, inner = related.bodies[broken.node.outputs[0]]
        stray = _first_stray(scan.inner, body, inner, [o.value for o in body.outputs])
        if stray is not None:
            return _strayed(scan.inner, inner, stray)
    node = broken.node
    if "split differently" in broken.refused.reason or "local extents" in broken.refused.reason:
        odd = [v for v in node.inputs if _strange(one, related.facts.get(v, []))]
        lost = odd if 0 < len(odd) < len(node.inputs) else []
        start = _first_lost(one, distributed, related, lost, True)
        if start is not None and start is not node:
            return _strayed(one, related, start)
    operands = tuple(
        f"%{v}: {f.layout}" for v, f in zip(broken.node.inputs, broken.operands, strict=False)
    )
    return Location(
        broken.node.op,
        show(broken.node),
        broken.refused.reason,
        broken.node.source,
        operands,
        broken.refused.mesh_dim,
    )


def _first_lost(
    one: Sequential, distributed: Program, related: Related, values: Sequence[str], strange: bool
) -> Node | None:
    """The first op from which on some ranks hold what the one-device program never has.

    Followed back from the values along operands of which that is true; where it is true of none
    of the values, None. Unless `strange`, it starts from values of which nothing at all is known
    on some ranks.
    """
    producers = distributed.producers()
    if not any(v in producers for v in values):
        return None
    places = regions(distributed).values

    def partly(value: str) -> bool:
        if value not in places:
            return False
        return sum(map(ranks, {f.where for f in related.facts.get(value, [])})) < ranks(
            places[value]
        )

    def lost(value: str) -> bool:
        return _strange(one, related.facts.get(value, [])) or partly(value)

    def ranks(where: Where) -> int:
        chosen = dict(where)
        return prod(len(chosen.get(n, range(size))) for n, size in distributed.mesh.dims)

    seen: set[str] = set()
    todo = [v for v in values if (lost(v) if strange else partly(v))]
    starts: set[str] = set()
    while todo:
        value = todo.pop()
        if value in seen or value not in producers:
            continue
        seen.add(value)
        before = [v for v in producers[value].inputs if lost(v)]
        todo += before
        if not before:
            starts.add(value)
    return next((n for n in distributed.nodes if starts & set(n.outputs)), None)


def _strayed(one: Sequential, related: Related, stray: Node) -> Location:
    reason = "computes what the one-device block does not, on some ranks or on all"
    operands = tuple(
        f"%{v}: {describe(one, f[0])}" for v in stray.inputs if (f := related.facts.get(v))
    )
    return Location(stray.op, show(stray), reason, stray.source, operands)


def _first_stray(
    one: Sequential, distributed: Program, related: Related, wrong: list[str]
) -> Node | None:
    """The first op that a wrong value depends on whose value the one-device program never has.

    Or that has no relation, where all its operands have one: pieces of different values, merged. It
    is followed back along such values only: what became a value of that program again did no harm.
    """
    producers = distributed.producers()
    reach: set[str] = set()
    todo = list(wrong)
    while todo:
        value = todo.pop()
        if value in reach:
            continue
        reach.add(value)
        if value in producers:
            for read in producers[value].inputs:
                facts = related.facts.get(read, [])
                if not facts or _strange(one, facts):
                    todo.append(read)
    for node in distributed.nodes:
        if not any(v in reach for v in node.outputs):
            continue
        facts = related.facts.get(node.outputs[0], [])
        lost = not facts and all(related.facts.get(v) for v in node.inputs)
        if lost or _strange(one, facts):
            return node
    return None


def _strange(one: Sequential, facts: list[Fact]) -> bool:
    """Whether the value is, on some ranks, nothing that the one-device program has."""
    known = {f.where for f in facts if f.ref.id in one.known}
    return any(f.where not in known for f in facts)


def relations(
    one: Sequential, program: Program, related: Related, prefix: str = ""
) -> list[Relation]:
    """What every value was found to be, in program order, bodies of repeated blocks included."""
    out = [
        Relation(f"{prefix}{i.name}", i.role, _found(one, related, i.name)) for i in program.inputs
    ]
    for node in program.nodes:
        if node.body is not None and node.outputs[0] in related.bodies:
            scan, inner = related.bodies[node.outputs[0]]
            out += relations(scan.inner, node.body, inner, f"{prefix}{node.outputs[0]}/")
        for name in node.outputs:
            found = _found(one, related, name)
            out.append(Relation(f"{prefix}{name}", node.op, found, node.source))
    return out


def _found(one: Sequential, related: Related, name: str) -> tuple[str, ...]:
    return tuple(describe(one, fact) for fact in related.facts.get(name, ()))
