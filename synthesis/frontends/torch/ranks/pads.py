"""A value that is joined with zeros, by concatenation or a write into zeros, written as its pad."""

from dataclasses import replace

from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program


def as_pads(program: Program) -> Program:
    """The program with `pad` for each `concat` of one value and zeros, of floats or integers. One
    that slices alone read is left: its zeros are written over."""
    zeros: set[str] = set()
    nodes: list[Node] = []
    kept = {v for n in program.nodes if n.op != "slice" for v in n.inputs}
    kept |= {o.value for o in program.outputs}
    for node in program.nodes:
        if (node.op == "full" and node.attrs["value"] == 0) or _views(node, zeros):
            zeros.update(node.outputs)
        elif node.op == "concat" and not kept.isdisjoint(node.outputs):
            node = _pad(program, node, zeros)
        nodes.append(node)
    return replace(program, nodes=tuple(nodes))


def _views(node: Node, zeros: set[str]) -> bool:
    return lookup(node.op).kind == "view" and zeros.issuperset(node.inputs)


def _pad(program: Program, node: Node, zeros: set[str]) -> Node:
    held = [i for i, value in enumerate(node.inputs) if value not in zeros]
    if len(held) != 1:
        return node
    (at,), dim = held, node.number("dim")
    extents = [program.types[value].shape[dim] for value in node.inputs]
    attrs = {"dim": dim, "lo": sum(extents[:at]), "hi": sum(extents[at + 1 :])}
    return replace(node, op="pad", inputs=(node.inputs[at],), attrs=attrs)
