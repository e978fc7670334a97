"""The collectives that take a value from one layout to another, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from verifier.ir.types import Attr, Mesh
from verifier.layout import Atom, Layout, bound, normal, split_leading


@dataclass(frozen=True, slots=True)
class Step:
    """One collective: its op, its attributes and the layout after it."""

    op: str
    attrs: tuple[tuple[str, Attr], ...]
    layout: Layout


def _place_of(layout: Layout, name: str) -> tuple[str, int]:
    fold = layout.fold(name)
    if fold:
        return fold, -1
    for i, dim in enumerate(layout.dims):
        if name in bound(dim):
            return "shard", i
    return "replicate", -1


def _ungather(layout: Layout, name: str, dim: int) -> Layout | None:
    """The layout after gathering `name` on `dim`; None where its split is strided."""
    atoms = layout.dims[dim]
    for at, atom in enumerate(atoms):
        if atom.mesh_dim == name:
            return layout.with_dim(dim, normal([*atoms[:at], Atom(atom.size), *atoms[at + 1 :]]))
        if atom.mesh_dim is None:
            return None
    return None


@lru_cache(maxsize=100_000)
def path(source: Layout, target: Layout, mesh: Mesh, mean: str | None = None) -> tuple[Step, ...] | None:
    """Steps from `source` to `target`, or None where collectives cannot do it directly.

    Along `mean` sums are averaged (data-parallel gradients of local means).
    """
    if source == target:
        return ()
    if source.global_shape != target.global_shape:
        return None
    steps: list[Step] = []
    layout = source
    changed = [n for n in mesh.names if _place_of(source, n) != _place_of(target, n)]
    for name in reversed(changed):
        kind, dim = _place_of(layout, name)
        if kind == "shard":
            gathered = _ungather(layout, name, dim)
            if gathered is None:
                return None
            layout = gathered
            steps.append(Step("all_gather", (("dim", dim), ("mesh_dim", name)), layout))
    for name in changed:
        kind, _ = _place_of(layout, name)
        goal, to = _place_of(target, name)
        if kind in ("sum", "max", "min"):
            if goal not in ("replicate", "shard"):
                return None
            how = "avg" if mean == name and kind == "sum" else kind
            layout = layout.with_partial(p for p in layout.partial if p[0] != name)
            if goal == "shard" and kind == "sum":
                chunk = split_leading(layout.dims[to], mesh[name], name)
                if chunk is None:
                    return None
                layout = layout.with_dim(to, chunk)
                attrs = (("dim", to), ("mesh_dim", name), ("reduce", how))
                steps.append(Step("reduce_scatter", attrs, layout))
                continue
            steps.append(Step("all_reduce", (("mesh_dim", name), ("reduce", how)), layout))
        elif goal not in ("replicate", "shard"):
            return None
        if goal == "shard":
            chunk = split_leading(layout.dims[to], mesh[name], name)
            if chunk is None:
                return None
            layout = layout.with_dim(to, chunk)
            if steps and steps[-1].op == "all_gather" and dict(steps[-1].attrs)["mesh_dim"] == name:
                was = dict(steps[-1].attrs)["dim"]
                attrs2 = (("concat_dim", was), ("mesh_dim", name), ("split_dim", to))
                steps[-1] = Step("all_to_all", attrs2, layout)
            else:
                steps.append(Step("shard_slice", (("dim", to), ("mesh_dim", name)), layout))
    return tuple(steps) if layout == target else None


def volumes(source: Layout, steps: tuple[Step, ...]) -> Iterator[tuple[str, str, int]]:
    """(op, mesh dim, elements of the whole tensor that the collective works on) of each step."""
    before = source
    for step in steps:
        size = 1
        big = before if step.op != "all_gather" else step.layout
        for extent in big.local_shape:
            size *= extent
        yield step.op, str(dict(step.attrs)["mesh_dim"]), size
        before = step.layout
