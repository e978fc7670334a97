"""Programs read anew: names, attributes and types checked, whoever built them."""

from dataclasses import replace

from shardproof.verifier.kernel.program.errors import IRError, MalformedError
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.text.assemble import Assembly, mesh_of, tensor_type
from shardproof.verifier.text.digest import digest


def well_formed(
    program: Program, depth: int = 0, bodies: dict[int, Program] | None = None
) -> Program:
    """The program with types inferred anew. Raises IRError where it is not well formed.

    A body that several nodes share is read once, and shared again.
    """
    bodies = {} if bodies is None else bodies
    parts = Assembly(program.name, mesh_of(program.mesh.dims), depth)
    for item in program.inputs:
        kind = tensor_type(item.type.dtype, item.type.shape)
        parts.input(item.name, kind, item.role, item.path, parts.where(item.where))
    for node in program.nodes:
        body = None
        if node.body is not None:
            body = bodies.get(id(node.body)) or well_formed(node.body, depth + 1, bodies)
            bodies[id(node.body)] = body
        if body is not None and body.mesh != program.mesh:
            raise IRError(f"{program.name}: the body of {node.op} has another mesh")
        where = parts.where(node.where)
        try:
            parts.node(
                node.op,
                node.inputs,
                node.outputs,
                node.attrs,
                node.source,
                body,
                None,
                where,
                node.timing,
            )
        except MalformedError as error:
            raise error.at(f"{node.source}  %{node.outputs[0]} = {node.op}".strip()) from None
    for out in program.outputs:
        parts.output(out.value, out.role, out.path)
    return parts.build()


def shared(program: Program, bodies: dict[str, Program] | None = None) -> Program:
    """The program with equal bodies of repeated blocks made one object.

    What is done once for each body is then done once for equal ones, though they were read apart.
    """
    bodies = {} if bodies is None else bodies
    seen: dict[int, Program] = {}
    nodes: list[Node] = []
    for node in program.nodes:
        if node.body is not None:
            body = seen.get(id(node.body))
            if body is None:
                inner = shared(node.body, bodies)
                body = bodies.setdefault(_key(inner), inner)
                seen[id(node.body)] = body
            node = replace(node, body=body)
        nodes.append(node)
    return replace(program, nodes=tuple(nodes))


def _key(program: Program) -> str:
    """Equal programs, and places in the source, have one key; one that lacks types has its own."""
    if any(v not in scope.types for scope, node in program.walk() for v in node.outputs):
        return f"untyped {id(program)}"
    places = [repr(node.source) for _, node in program.walk()]
    return digest(program) + "\n".join(places)
