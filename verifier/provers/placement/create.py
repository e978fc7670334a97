"""Tensors made from nothing: equal entries, ramps and parts of one mask may be read as split."""

from collections.abc import Iterator
from itertools import pairwise, product

from shardproof.verifier.kernel.layout import Atom, Dim, Layout, global_extent, normal
from shardproof.verifier.kernel.ops import create
from shardproof.verifier.kernel.ops.create import strides_of
from shardproof.verifier.kernel.program.registry import (
    Op,
    Refused,
)
from shardproof.verifier.kernel.program.types import Affine
from shardproof.verifier.provers.placement.rule import Operands, Placed, of_ops
from shardproof.verifier.provers.placement.views import spreads


@of_ops(create.full)
def _full_place(op: Op, given: Operands) -> list[Placed]:
    out: list[Placed] = []
    shape = tuple(given.attr("shape"))
    for chosen in spreads(shape, given.mesh, frozenset(), given.known):
        layout = Layout(tuple(chosen[i] for i in range(len(shape))))
        attrs = dict(given.attrs)
        attrs["shape"] = layout.global_shape
        out.append(Placed((layout,), tuple(sorted(attrs.items()))))
    return out


@of_ops(create.iota)
def _iota_place(op: Op, given: Operands) -> list[Placed]:
    shape, dim, offset = tuple(given.attr("shape")), given.attr("dim"), given.attr("offset")
    affine = offset if isinstance(offset, Affine) else Affine.of(offset)
    atoms: list[Atom] = []
    inner = shape[dim]
    for name, step in sorted(affine.terms, key=lambda t: t[1]):
        if step != inner:
            raise Refused(f"an index ramp of {shape[dim]} entries starts at {affine}", name, None)
        inner *= given.mesh[name]
        atoms.insert(0, Atom(given.mesh[name], name))
    ramp: Dim = normal([*atoms, Atom(shape[dim])])
    used = frozenset(name for name, _ in affine.terms)
    extents = [None if i == dim else n for i, n in enumerate(shape)]
    out: list[Placed] = []
    for chosen in spreads(extents, given.mesh, used, given.known):
        layout = Layout(tuple(chosen.get(i, ramp) for i in range(len(shape))))
        attrs = dict(given.attrs)
        attrs["shape"], attrs["offset"] = layout.global_shape, affine.const
        out.append(Placed((layout,), tuple(sorted(attrs.items()))))
    return out


def _progression(steps: list[tuple[int, Atom]]) -> tuple[Dim, int] | None:
    """Atoms of one dim, outermost first, and its stride, where each steps over the next in full."""
    steps = sorted((s for s in steps if s[1].size != 1), key=lambda s: -s[0])
    for (outer, _), (inner, atom) in pairwise(steps):
        if outer != inner * atom.size:
            return None
    return normal(atom for _, atom in steps), steps[-1][0] if steps else 0


def _readings(given: Operands) -> Iterator[Placed]:
    shape, offset = given.numbers("shape"), given.attr("offset")
    strides = strides_of(shape, given.numbers("strides"))
    affine = offset if isinstance(offset, Affine) else Affine.of(offset)
    moving = [(c, Atom(given.mesh[n], n)) for n, c in affine.terms if given.mesh[n] > 1]
    for homes in product(range(len(shape)), repeat=len(moving)):
        dims: list[tuple[Dim, int]] = []
        for dim, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
            here = [step for step, home in zip(moving, homes, strict=True) if home == dim]
            found = _progression([(stride, Atom(extent)), *here])
            if found is None:
                break
            dims.append(found)
        else:
            layout = Layout(tuple(dim for dim, _ in dims))
            attrs = dict(given.attrs)
            attrs["shape"], attrs["offset"] = layout.global_shape, affine.const
            attrs["strides"] = tuple(s if global_extent(dim) != 1 else 0 for dim, s in dims)
            yield Placed((layout,), tuple(sorted(attrs.items())))


@of_ops(create.dropout_mask)
def _mask_place(op: Op, given: Operands) -> list[Placed]:
    if given.layouts[0].partial:
        name, fold = given.layouts[0].partial[0]
        raise Refused(f"the seed is a partial {fold} over {name}", name, 0)
    found = list(_readings(given))
    if not found:
        offset = given.attr("offset")
        name = offset.terms[0][0] if isinstance(offset, Affine) and offset.terms else None
        raise Refused(
            f"the masks of the ranks start at {offset} with strides "
            f"{list(strides_of(given.numbers('shape'), given.numbers('strides')))}: "
            "they are not the parts of one mask",
            name,
        )
    return found
