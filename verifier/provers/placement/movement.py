"""Values that change ranks."""

from shardproof.verifier.kernel.layout import Layout, bound, normal
from shardproof.verifier.kernel.movements import movement
from shardproof.verifier.kernel.program.registry import (
    Op,
    Refused,
)
from shardproof.verifier.provers.placement.rule import Operands, Placed, of_ops


def _across(given: Operands, what: str) -> Layout:
    """The layout of a value that changes its coordinate along a mesh dim it must not depend on."""
    layout, name = given.layouts[0], given.attr("mesh_dim")
    if name in layout.mentioned:
        raise Refused(f"{what} over {name} a value that depends on {name}", name, 0)
    return layout


@of_ops(movement.send, movement.recv)
def _send_place(op: Op, given: Operands) -> list[Placed]:
    return [Placed((_across(given, "sends"),), moves=True)]


@of_ops(movement.only, movement.wait)
def _same_place(op: Op, given: Operands) -> list[Placed]:
    return [Placed((given.layouts[0],), moves=True)]


@of_ops(movement.merge)
def _merge_place(op: Op, given: Operands) -> list[Placed]:
    if any(layout != given.layouts[0] for layout in given.layouts):
        raise Refused("merges pieces that are laid out differently")
    return [Placed((given.layouts[0],), moves=True)]


def leading(layout: Layout, name: str) -> int | None:
    """The dim that a mesh dim splits outermost, and nothing else does."""
    for index, dim in enumerate(layout.dims):
        if dim and dim[0].mesh_dim == name and bound(dim) == (name,):
            return index
    return None


def without(layout: Layout, name: str) -> Layout:
    """The layout of one piece along a mesh dim."""
    dims = tuple(normal(a for a in dim if a.mesh_dim != name) for dim in layout.dims)
    return Layout(dims, layout.partial)


@of_ops(movement.broadcast)
def _broadcast_place(op: Op, given: Operands) -> list[Placed]:
    return [Placed((_across(given, "broadcasts"),), moves=True)]


@of_ops(movement.ring_shift)
def _ring_place(op: Op, given: Operands) -> list[Placed]:
    layout, name = given.layouts[0], given.attr("mesh_dim")
    if name in layout.sharded:
        raise Refused(f"turns the pieces over {name} around", name, 0)
    return [Placed((layout,), moves=True)]
