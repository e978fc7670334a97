"""On which ranks a node runs."""

from collections.abc import Sequence

from shardproof.verifier.kernel.program.program import Node
from shardproof.verifier.kernel.program.registry import Refused, lookup
from shardproof.verifier.kernel.program.types import Mesh, mesh_dims
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, common, show, within


def region_of(node: Node, wheres: Sequence[Where], mesh: Mesh, base: Where = EVERYWHERE) -> Where:
    """The ranks that hold the results of a node, from those that hold its operands.

    Raises:
        Refused: some rank cannot run the node, or waits in it for ever.
    """
    op = lookup(node.op)
    if op.region is not None:
        return op.region(op.with_defaults(node.attrs), wheres, node.where, mesh)
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
        for name in mesh_dims(op.with_defaults(node.attrs)["mesh_dim"]):
            if name in dict(region):
                raise Refused(
                    f"only the ranks at {show(region)} call it: the others of the group over "
                    f"{name} never join, so these deadlock",
                    name,
                )
    return region
