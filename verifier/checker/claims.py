"""Claims, as a certificate lists them, and what makes one well formed on a mesh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

from shardproof.verifier.kernel.contract import layout_from_json, where_from_json
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.jsondata import Cursor
from shardproof.verifier.kernel.program.registry import ONE
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, ranks_where, show, within
from shardproof.verifier.terms import Ref, Terms, times


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
    cut: tuple[int, ...] = ()
    """Dim, start and stop of the slice of it that the claim is about; the whole where empty."""


@dataclass
class Named:
    """The layouts and the ranks that rows name by their place in a list."""

    layouts: list[Layout]
    ranks: list[Where]
    used: set[tuple[bool, int]] = field(default_factory=set[tuple[bool, int]])

    @classmethod
    def read(cls, at: Cursor) -> Named:
        """Of a certificate. Raises MalformedError."""
        layouts = [layout_from_json(item) for item in at["layouts"].items()]
        return cls(layouts, [where_from_json(item) for item in at["ranks"].items()])

    def row(self, at: Cursor) -> Row:
        """Raises MalformedError."""
        at.only("of", "factor", "layout", "from", "rule", "on", "cut")
        said = at.object()
        of = None if said.get("of", at) is None else at["of"].text()
        factor = None if said.get("factor", at) is None else _rational(at["factor"])
        if (of is None) != (factor is None):
            raise at.fail("a claim names a value and a factor, or neither")
        premises = at["from"].integers()
        where = self.ranks[self._place(at["on"], ranks=True)] if "on" in at else EVERYWHERE
        layout = self.layouts[self._place(at["layout"], ranks=False)]
        cut = at["cut"].integers() if "cut" in at else ()
        if "cut" in at and (of is None or len(cut) != 3):
            raise at.fail("a slice of a value has a dim, a start and a stop")
        return Row(of, factor, layout, premises, at["rule"].text(), where, cut)

    def _place(self, at: Cursor, ranks: bool) -> int:
        found = at.integer()
        if not 0 <= found < len(self.ranks if ranks else self.layouts):
            raise at.fail("no such place in the list")
        self.used.add((ranks, found))
        return found

    @property
    def spare(self) -> bool:
        """Whether something is listed that no row names."""
        return len(self.used) < len(self.layouts) + len(self.ranks)


def _rational(at: Cursor) -> Fraction:
    """As `Cursor.rational`, and 1 the one object that products look for."""
    return ONE if at.value == "1/1" else at.rational()


def stands(where: Where, layout: Layout, mesh: Mesh, region: Where) -> None:
    """Ranks that a claim may speak of: some that hold the value, and no part of a pending fold.

    Raises NotShownError.
    """
    if not where and not region:
        return
    _stands(where, layout, mesh, region)


@lru_cache(1 << 12)
def _stands(where: Where, layout: Layout, mesh: Mesh, region: Where) -> None:
    try:
        normal_form = ranks_where(mesh, dict(where))
    except ValueError as error:
        raise NotShownError(str(error)) from None
    need(normal_form == where, "ranks are not in normal form")
    need(within(where, region), f"the value lives on {show(region) or 'all ranks'}")
    need(not layout.pending & set(dict(where)), "a part of a pending fold")


@lru_cache(1 << 12)
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


def meant(row: Row, values: Mapping[str, Ref], terms: Terms) -> Ref | None:
    """The term a row names, None where it names none. Raises NotShownError."""
    if row.of is None or row.factor is None:
        return None
    need(row.of in values, f"the one-device program has no value %{row.of}")
    base = values[row.of]
    need(base.coef != 0 or row.factor == 1, "a multiple of the constant 0")
    whole = Ref(times(row.factor, base.coef), base.id)
    if not row.cut:
        return whole
    (dim, start, stop), shape = row.cut, terms.shape(whole)
    need(0 <= dim < len(shape) and 0 <= start <= stop <= shape[dim], "no such slice")
    attrs = {"dim": dim, "start": start, "stop": stop, "step": 1}
    return terms.apply("slice", [whole], attrs, ["f32"])
