"""Drops tensors without entries: there is nothing in them to compute, to train or to split."""

from dataclasses import replace

from shardproof.verifier.kernel.program.program import Node, Program, live


def without_empties(program: Program) -> Program:
    """The program without parameters that have no entries, their gradients, and such operands of
    joins."""
    types = program.types
    empty = {v for v, t in types.items() if t.size == 0}
    if not empty:
        return program
    same: dict[str, str] = {}
    nodes: list[Node] = []
    for node in program.nodes:
        operands = tuple(same.get(v, v) for v in node.inputs)
        if node.op == "concat" and node.outputs[0] not in empty:
            operands = tuple(v for v in operands if v not in empty)
            if len(operands) == 1:
                same[node.outputs[0]] = operands[0]
                continue
        nodes.append(replace(node, inputs=operands))
    kept = [o for o in program.outputs if o.role != "grad" or o.value not in empty]
    outputs = tuple(replace(o, value=same.get(o.value, o.value)) for o in kept)
    kept_types = {v: t for v, t in types.items() if v not in same}
    found = live(replace(program, nodes=tuple(nodes), outputs=outputs, types=kept_types))
    read = {v for n in found.nodes for v in n.inputs} | {o.value for o in outputs}
    gone = {i.name for i in found.inputs if i.name in empty and i.role == "param"} - read
    inputs = tuple(i for i in found.inputs if i.name not in gone)
    return replace(
        found, inputs=inputs, types={v: t for v, t in found.types.items() if v not in gone}
    )
