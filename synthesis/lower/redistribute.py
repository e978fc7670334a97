"""The collectives that take a value from one layout to another, and what they cost."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from shardproof.synthesis.lower.local_attributes import regroup_whole
from shardproof.verifier.kernel.layout import (
    Atom,
    Layout,
    bound,
    global_extent,
    normal,
    split_leading,
)
from shardproof.verifier.kernel.program.types import Attr, Mesh


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


def path(
    source: Layout, target: Layout, mesh: Mesh, mean: str | None = None
) -> tuple[Step, ...] | None:
    """Steps from `source` to `target`, or None where collectives cannot do it.

    Along `mean` sums are averaged (data-parallel gradients of local means). Where a dim is split
    in strides the value is reshaped so that the split is outermost, moved, and reshaped back.
    """
    direct = _direct(source, target, mesh, mean)
    if direct is not None or source.global_shape != target.global_shape:
        return direct
    shape = _refined(source, target)
    if shape is None or shape == source.global_shape:
        return None
    first, last = regroup_whole(source, shape), regroup_whole(target, shape)
    if first is None or last is None:
        return None
    middle = _direct(first, last, mesh, mean)
    if middle is None:
        return None
    into = Step("reshape", (("shape", first.local_shape),), first)
    back = Step("reshape", (("shape", target.local_shape),), target)
    return (into, *middle, back)


def _refined(source: Layout, target: Layout) -> tuple[int, ...] | None:
    """A finer shape in which every split of both layouts is the outermost of its dim; None where
    there is none, as of a value without entries."""
    if 0 in source.global_shape:
        return None
    shape: list[int] = []
    for a, b in zip(source.dims, target.dims, strict=True):
        extent = global_extent(a)
        cuts = {extent}
        for dim in (a, b):
            rest = extent
            free = False
            for atom in dim:
                if atom.mesh_dim is not None and free:
                    cuts.add(rest)
                free = free or atom.mesh_dim is None
                rest //= atom.size
        steps = sorted(cuts, reverse=True)
        for big, small in zip(steps, [*steps[1:], 1], strict=True):
            if big % small:
                return None
            shape.append(big // small)
    return tuple(shape)


@lru_cache(maxsize=100_000)
def _direct(
    source: Layout, target: Layout, mesh: Mesh, mean: str | None
) -> tuple[Step, ...] | None:
    if source == target:
        return ()
    if source.global_shape != target.global_shape:
        return None
    changed = [n for n in mesh.names if _place_of(source, n) != _place_of(target, n)]
    found = _steps(source, target, mesh, mean, changed)
    if found is None:
        moved = [n for n in mesh.names if n in source.mentioned | target.mentioned]
        found = _steps(source, target, mesh, mean, moved)
    return found


def _steps(
    source: Layout, target: Layout, mesh: Mesh, mean: str | None, changed: list[str]
) -> tuple[Step, ...] | None:
    """Undo the placements of the changed mesh dims, then make those of the target."""
    steps: list[Step] = []
    layout = source
    nesting = [n for dim in source.dims for n in bound(dim)]
    for name in sorted(
        changed, key=lambda n: nesting.index(n) if n in nesting else -1, reverse=True
    ):
        kind, dim = _place_of(layout, name)
        if kind == "shard":
            gathered = _ungather(layout, name, dim)
            if gathered is None:
                return None
            layout = gathered
            steps.append(Step("all_gather", (("dim", dim), ("mesh_dim", name)), layout))
    order = [n for dim in target.dims for n in bound(dim)]
    for name in sorted(changed, key=lambda n: order.index(n) if n in order else len(order)):
        kind, _ = _place_of(layout, name)
        goal, to = _place_of(target, name)
        if goal not in ("replicate", "shard"):
            if kind != goal:
                return None
            continue
        if kind in ("sum", "max", "min"):
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
        if goal == "shard":
            chunk = split_leading(layout.dims[to], mesh[name], name)
            if chunk is None:
                return None
            layout = layout.with_dim(to, chunk)
            if steps and steps[-1].op == "all_gather" and dict(steps[-1].attrs)["mesh_dim"] == name:
                was = dict(steps[-1].attrs)["dim"]
                if was == to:
                    return None
                attrs2 = (("concat_dim", was), ("mesh_dim", name), ("split_dim", to))
                steps[-1] = Step("all_to_all", attrs2, layout)
            else:
                steps.append(Step("shard_slice", (("dim", to), ("mesh_dim", name)), layout))
    return tuple(steps) if layout == target else None


def volumes(source: Layout, steps: tuple[Step, ...]) -> Iterator[tuple[str, str, int]]:
    """(op, mesh dim, elements of the whole tensor that the collective works on) of each step."""
    before = source
    for step in steps:
        if step.op == "reshape":
            before = step.layout
            continue
        big = before if step.op != "all_gather" else step.layout
        yield step.op, str(dict(step.attrs)["mesh_dim"]), prod(big.local_shape)
        before = step.layout
