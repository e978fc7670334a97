"""Collectives over mesh dims: the value stays, up to a factor, and its layout moves."""

from fractions import Fraction
from itertools import zip_longest

from shardproof.verifier.kernel.layout import Atom, Layout, bound, split_leading
from shardproof.verifier.kernel.movements import movement, rooted
from shardproof.verifier.kernel.ops import collectives
from shardproof.verifier.kernel.program.registry import (
    Op,
    Refused,
)
from shardproof.verifier.kernel.program.types import Mesh, mesh_dims
from shardproof.verifier.provers.placement.rule import Operands, Placed, of_ops


def _settle(layout: Layout, name: str, size: int, how: str) -> tuple[Layout, Fraction]:
    """The layout and scale after a reduction over one mesh dim."""
    if size == 1:
        return layout, Fraction(1)
    pending = layout.fold(name)
    if name in layout.sharded:
        raise Refused(f"reduces over {name} a value that is sharded over {name}", name, 0)
    if pending is None:
        scale = Fraction(size) if how == "sum" else Fraction(1)
        return layout, scale
    if how in ("max", "min"):
        if pending != how:
            raise Refused(f"takes the {how} over {name} of a partial {pending}", name, 0)
        scale = Fraction(1)
    else:
        if pending != "sum":
            raise Refused(f"sums over {name} a partial {pending}", name, 0)
        scale = Fraction(1, size) if how == "avg" else Fraction(1)
    return layout.with_partial(p for p in layout.partial if p[0] != name), scale


def _other_folds(layout: Layout, names: tuple[str, ...], how: str) -> None:
    for name, fold in layout.partial:
        if name in names or fold == how or (fold == "sum" and how == "avg"):
            continue
        raise Refused(f"a {how} does not commute with the {fold} pending over {name}", name, 0)


def _reduced(given: Operands) -> tuple[Layout, Fraction]:
    """The operand with all that waits over the mesh dims reduced, and what it is multiplied by."""
    (layout,) = given.layouts
    scale = Fraction(1)
    names, how = mesh_dims(given.attr("mesh_dim")), given.attr("reduce")
    _other_folds(layout, names, how)
    for name in names:
        layout, factor = _settle(layout, name, given.mesh[name], how)
        scale *= factor
    return layout, scale


@of_ops(collectives.all_reduce, movement.reduce_to)
def _all_reduce_place(op: Op, given: Operands) -> list[Placed]:
    layout, scale = _reduced(given)
    return [Placed((layout,), scale=scale, moves=True)]


def _chunk(layout: Layout, name: str, size: int, dim: int) -> Layout:
    if size == 1:
        return layout
    if name in layout.mentioned:
        raise Refused(f"splits over {name} a value that already depends on {name}", name, 0)
    atoms = split_leading(layout.dims[dim], size, name)
    if atoms is None:
        raise Refused(f"dim {dim} does not divide into {size} equal pieces", name, 0)
    return layout.with_dim(dim, atoms)


@of_ops(collectives.reduce_scatter)
def _reduce_scatter_place(op: Op, given: Operands) -> list[Placed]:
    layout, scale = _reduced(given)
    for name in mesh_dims(given.attr("mesh_dim")):
        layout = _chunk(layout, name, given.mesh[name], given.attr("dim"))
    return [Placed((layout,), scale=scale, moves=True)]


def _gathered(layout: Layout, names: tuple[str, ...], mesh: Mesh, index: int) -> Layout:
    """Join the pieces of one dim over mesh dims, in that order.

    No free atom may stand before them; splits over other mesh dims may: they do not move.
    """
    dim = layout.dims[index]
    live = [name for name in names if mesh[name] > 1]
    if not live:
        return layout
    at = 0
    while at < len(dim) and dim[at].mesh_dim not in (None, live[0]):
        at += 1
    end = at + len(live)
    for name, atom in zip_longest(live, dim[at:end]):
        if atom is not None and atom.mesh_dim == name:
            continue
        if name in bound(dim):
            why = f"gathers dim {index} in rank order, but {name} is not outermost on a rank"
        else:
            why = f"gathers dim {index} over {name}, which does not split it"
        raise Refused(why, name, 0)
    return layout.with_dim(index, (*dim[:at], *(Atom(a.size) for a in dim[at:end]), *dim[end:]))


@of_ops(collectives.all_gather, rooted.gather)
def _all_gather_place(op: Op, given: Operands) -> list[Placed]:
    (layout,) = given.layouts
    names = mesh_dims(given.attr("mesh_dim"))
    return [Placed((_gathered(layout, names, given.mesh, given.attr("dim")),), moves=True)]


@of_ops(collectives.shard_slice, rooted.scatter)
def _shard_slice_place(op: Op, given: Operands) -> list[Placed]:
    (layout,) = given.layouts
    for name in mesh_dims(given.attr("mesh_dim")):
        layout = _chunk(layout, name, given.mesh[name], given.attr("dim"))
    return [Placed((layout,), moves=True)]


@of_ops(collectives.all_to_all)
def _all_to_all_place(op: Op, given: Operands) -> list[Placed]:
    (layout,) = given.layouts
    names = mesh_dims(given.attr("mesh_dim"))
    split, concat = given.attr("split_dim"), given.attr("concat_dim")
    if split == concat:
        return [Placed((_exchanged(layout, names, given.mesh, split),), moves=True)]
    layout = _gathered(layout, names, given.mesh, concat)
    for name in names:
        layout = _chunk(layout, name, given.mesh[name], split)
    return [Placed((layout,), moves=True)]


def _exchanged(layout: Layout, names: tuple[str, ...], mesh: Mesh, dim: int) -> Layout:
    """Chunks of a dim change places with the ranks that hold it: [n@r, n, k] becomes [n, n@r, k].

    What says the chunk on a rank says the rank afterwards, and what said the rank the chunk.
    """
    marked = {name: f"{name} to be" for name in names}
    for name in names:
        layout = _chunk(layout, marked[name], mesh[name], dim)
    layout = _gathered(layout, names, mesh, dim)
    back = {mark: name for name, mark in marked.items()}
    atoms = (Atom(a.size, back.get(a.mesh_dim or "", a.mesh_dim)) for a in layout.dims[dim])
    return layout.with_dim(dim, tuple(atoms))


@of_ops(collectives.on_coord)
def _on_coord_place(op: Op, given: Operands) -> list[Placed]:
    (layout,) = given.layouts
    (name,) = mesh_dims(given.attr("mesh_dim"))
    index = given.attr("index")
    if not 0 <= index < given.mesh[name]:
        raise Refused(f"coordinate {index} of {name}={given.mesh[name]}", name, 0)
    if given.mesh[name] == 1:
        return [Placed((layout,), moves=True)]
    if name in layout.mentioned:
        raise Refused(
            f"keeps one rank's part over {name} of a value that depends on {name}", name, 0
        )
    return [Placed((beside_zeros(layout, (name,)),), moves=True)]


@of_ops(collectives.shard_pad)
def _shard_pad_place(op: Op, given: Operands) -> list[Placed]:
    (layout,) = given.layouts
    names = mesh_dims(given.attr("mesh_dim"))
    joined = _gathered(layout, names, given.mesh, given.attr("dim"))
    waits = tuple(name for name in names if given.mesh[name] > 1)
    return [Placed((beside_zeros(joined, waits),), moves=True)]


def beside_zeros(layout: Layout, names: tuple[str, ...]) -> Layout:
    """Of a value that other ranks along these mesh dims have zeros for."""
    for other, fold in layout.partial:
        if fold != "sum":
            raise Refused(f"inserts zeros into a pending {fold} over {other}", other, 0)
    return layout.with_partial((*layout.partial, *((name, "sum") for name in names)))
