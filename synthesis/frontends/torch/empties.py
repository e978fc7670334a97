"""Drops tensors without entries: there is nothing in them to compute, to train or to split."""

from dataclasses import replace

from shardproof.verifier.kernel.program.program import Node, Program


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
    read, kept_nodes = {o.value for o in outputs}, list[Node]()
    for node in reversed(nodes):  # what ranks send stays, though no output depends on it
        if not empty.issuperset(node.outputs) or not read.isdisjoint(node.outputs):
            kept_nodes.append(node)
            read.update(node.inputs)
    inputs = tuple(i for i in program.inputs if i.role != "param" or i.name not in empty - read)
    names = {i.name for i in inputs} | {v for n in kept_nodes for v in n.outputs}
    return replace(
        program,
        inputs=inputs,
        nodes=tuple(reversed(kept_nodes)),
        outputs=outputs,
        types={v: t for v, t in types.items() if v in names},
    )
