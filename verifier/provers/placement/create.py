"""Tensors made from nothing: equal entries, and ramps, may be read as split."""

from shardproof.verifier.kernel.layout import Atom, Dim, Layout, normal
from shardproof.verifier.kernel.ops import create
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
