"""Claims, as a certificate lists them, and what makes one well formed on a mesh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from verifier.kernel.contract import layout_from_json, where_from_json
from verifier.kernel.layout import Layout
from verifier.kernel.program.jsondata import Cursor
from verifier.kernel.program.types import Mesh
from verifier.kernel.program.where import EVERYWHERE, Where, ranks_where, show, within
from verifier.terms import Ref, Terms


class NotShownError(ValueError):
    """A claim that does not follow: why."""


def need(holds: bool, why: str) -> None:
    """Raises NotShownError unless the condition holds."""
    if not holds:
        raise NotShownError(why)


@dataclass(frozen=True, slots=True)
class Claim:
    """On the ranks of `where`, the pieces of a value make up `ref`, read by `layout`."""

    ref: Ref
    layout: Layout
    where: Where = EVERYWHERE

    @property
    def is_zero(self) -> bool:
        """The piece on every rank is the constant 0."""
        return self.ref.coef == 0 and not self.layout.partial


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a certificate, before it is checked."""

    of: str | None
    """The one-device value that the claim is a multiple of, None for an unnamed term."""
    factor: Fraction | None
    layout: Layout
    premises: tuple[int, ...]
    rule: str
    where: Where = EVERYWHERE


def read_row(at: Cursor) -> Row:
    """Raises MalformedError."""
    at.only("of", "factor", "layout", "from", "rule", "on")
    of = None if at["of"].value is None else at["of"].text()
    factor = None if at["factor"].value is None else at["factor"].rational()
    if (of is None) != (factor is None):
        raise at.fail("a claim names a value and a factor, or neither")
    premises = tuple(item.integer() for item in at["from"].items())
    where = where_from_json(at["on"]) if "on" in at else EVERYWHERE
    layout = layout_from_json(at["layout"])
    return Row(of, factor, layout, premises, at["rule"].text(), where)


def stands(where: Where, layout: Layout, mesh: Mesh, region: Where) -> None:
    """Ranks that a claim may speak of: some that hold the value, and no part of a pending fold.

    Raises NotShownError.
    """
    try:
        normal_form = ranks_where(mesh, dict(where))
    except ValueError as error:
        raise NotShownError(str(error)) from None
    need(normal_form == where, "ranks are not in normal form")
    need(within(where, region), f"the value lives on {show(region) or 'all ranks'}")
    need(not layout.pending & set(dict(where)), "a part of a pending fold")


def fits(layout: Layout, mesh: Mesh, local: tuple[int, ...]) -> None:
    """A layout that means something on the mesh, for pieces of shape `local`.

    Atoms are in normal form, each mesh dim is used once and at its size, all pending folds are
    one fold. Raises NotShownError.
    """
    used: list[str] = []
    for dim in layout.dims:
        free_before = False
        for atom in dim:
            need(atom.size > 1 or (atom.size == 0 and atom.mesh_dim is None), "an atom of size 1")
            if atom.mesh_dim is None:
                need(not free_before, "two free atoms side by side")
            else:
                need(atom.mesh_dim in mesh, f"no mesh dim {atom.mesh_dim}")
                need(mesh[atom.mesh_dim] == atom.size, f"{atom} on a mesh {mesh}")
                used.append(atom.mesh_dim)
            free_before = atom.mesh_dim is None
    for name, _ in layout.partial:
        need(name in mesh and mesh[name] > 1, f"a fold over {name} on a mesh {mesh}")
        used.append(name)
    need(len(set(used)) == len(used), f"a mesh dim is used twice in {layout}")
    need(layout.partial == tuple(sorted(layout.partial)), "pending folds out of order")
    folds = {fold for _, fold in layout.partial}
    need(folds in (set(), {"sum"}, {"max"}, {"min"}), f"unknown or mixed folds in {layout}")
    need(layout.local_shape == local, f"{layout} gives pieces {layout.local_shape}, not {local}")


def same(terms: Terms, a: Ref, b: Ref) -> bool:
    """Whether two refs are one: the constant 0 has one term a shape."""
    if a.coef == 0 and b.coef == 0:
        return terms.shape(a) == terms.shape(b)
    return a == b


def meant(row: Row, values: Mapping[str, Ref]) -> Ref | None:
    """The term a row names, None where it names none. Raises NotShownError."""
    if row.of is None or row.factor is None:
        return None
    need(row.of in values, f"the one-device program has no value %{row.of}")
    base = values[row.of]
    need(base.coef != 0 or row.factor == 1, "a multiple of the constant 0")
    return Ref(row.factor * base.coef, base.id)
