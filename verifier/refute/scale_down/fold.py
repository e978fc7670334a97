"""Nodes that compute the same on several sets of ranks, written as one."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.shape import frozen, shape
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.kernel.program.where import Where, common, joined

APART = ("collective", "movement", "control")


def folded(program: Program) -> Program | None:
    """The program with local nodes of one op and equal operands on unlike ranks as one node.

    A `merge` of one value is that value. None where such nodes stand on ranks that are together
    no product of coordinates.
    """
    return _folded(program, program.mesh, {})


def each(
    program: Program,
    changed: Callable[[Program, Node], Node],
    bodies: dict[int, Program] | None = None,
) -> Program:
    """The program with every node changed, those of blocks too; itself where none is. A block that
    several nodes share stays shared."""
    bodies, nodes = {} if bodies is None else bodies, list[Node]()
    for node in program.nodes:
        body = node.body
        if body is None:
            nodes.append(changed(program, node))
            continue
        if id(body) not in bodies:
            bodies[id(body)] = each(body, changed, bodies)
        nodes.append(with_body(node, bodies[id(body)]))
    return program if same(nodes, program.nodes) else replace(program, nodes=tuple(nodes))


def _folded(program: Program, mesh: Mesh, bodies: dict[int, Program | None]) -> Program | None:
    names: dict[str, str] = {}
    known: dict[Hashable, list[int]] = {}
    nodes: list[Node] = []
    wheres: list[list[Where]] = []
    for old in program.nodes:
        node = renamed(old, names)
        if node.op == "merge" and len(set(node.inputs)) == 1:
            names[node.outputs[0]] = node.inputs[0]
            continue
        if node.body is not None:
            if id(node.body) not in bodies:
                bodies[id(node.body)] = _folded(node.body, mesh, bodies)
            body = bodies[id(node.body)]
            if body is None:
                return None
            node = with_body(node, body)
        key = node.op, node.inputs, frozen(node.attrs), node.timing, shape(node.body)
        alike = known.setdefault(key, []) if lookup(node.op).kind not in APART else []
        place = next((i for i in alike if _apart(node.where, wheres[i])), None)
        if place is not None:
            wheres[place].append(node.where)
            names |= zip(node.outputs, nodes[place].outputs, strict=True)
            continue
        alike.append(len(nodes))
        nodes.append(node)
        wheres.append([node.where])
    for i, parts in enumerate(wheres):
        if len(parts) > 1:
            where = _union(parts, mesh)
            if where is None:
                return None
            nodes[i] = replace(nodes[i], where=where)
    if not names and same(nodes, program.nodes):
        return program
    outputs = tuple(replace(o, value=names.get(o.value, o.value)) for o in program.outputs)
    types = {v: t for v, t in program.types.items() if v not in names}
    return replace(program, nodes=tuple(nodes), outputs=outputs, types=types)


def renamed(node: Node, names: Mapping[str, str]) -> Node:
    """The node with its operands renamed; itself where none is."""
    inputs = tuple(names.get(v, v) for v in node.inputs)
    return node if inputs == node.inputs else replace(node, inputs=inputs)


def with_body(node: Node, body: Program) -> Node:
    """The node with this block; itself where it has it."""
    return node if body is node.body else replace(node, body=body)


def same(nodes: Sequence[Node], others: Sequence[Node]) -> bool:
    """Whether nothing was changed."""
    return len(nodes) == len(others) and all(a is b for a, b in zip(nodes, others, strict=True))


def _apart(where: Where, parts: Sequence[Where]) -> bool:
    return all(common(where, part) is None for part in parts)


def _union(parts: Sequence[Where], mesh: Mesh) -> Where | None:
    """The ranks of all parts, where they are a product of coordinates."""
    left = list(parts)
    while len(left) > 1:
        found = _pair(left, mesh)
        if found is None:
            return None
        i, j, where = found
        left = [*(w for k, w in enumerate(left) if k not in (i, j)), where]
    return left[0]


def _pair(parts: Sequence[Where], mesh: Mesh) -> tuple[int, int, Where] | None:
    for i, one in enumerate(parts):
        for j, other in enumerate(parts[:i]):
            where = joined(one, other, mesh)
            if where is not None:
                return i, j, where
    return None
