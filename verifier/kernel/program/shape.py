"""Attributes and blocks in a form that can be compared."""

from collections.abc import Hashable, Mapping

from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Attr


def frozen(attrs: Mapping[str, Attr]) -> Hashable:
    """Attributes that can be compared; true is not 1."""
    return tuple(
        sorted(((k, isinstance(v, bool), v) for k, v in attrs.items()), key=lambda i: i[0])
    )


def shape(body: Program | None) -> Hashable:
    """A repeated block up to the names of its values."""
    if body is None:
        return None
    number: dict[str, int] = {}
    for item in body.inputs:
        number[item.name] = len(number)
    nodes: list[Hashable] = []
    for node in body.nodes:
        operands = tuple(number[v] for v in node.inputs)
        nodes.append((node.op, operands, frozen(node.attrs), shape(node.body), node.timing))
        for out in node.outputs:
            number[out] = len(number)
    return (
        tuple((i.role, i.type) for i in body.inputs),
        tuple(nodes),
        tuple((o.role, number[o.value]) for o in body.outputs),
    )
