"""Which ranks: a set of mesh coordinates that is a product over the mesh dims.

A pipeline stage, or the one rank that differs, is a `Where`. The empty tuple is every rank. Ranks
are numbered as the mesh lists them; the groups of mesh dims are told by these numbers.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from shardproof.verifier.kernel.program.types import Mesh

Where = tuple[tuple[str, tuple[int, ...]], ...]
"""(mesh dim, its coordinates in ascending order), sorted by mesh dim; dims left out are whole."""

EVERYWHERE: Where = ()


def ranks_where(mesh: Mesh, chosen: Mapping[str, Iterable[int]]) -> Where:
    """The ranks with these coordinates, in normal form.

    Raises:
        ValueError: an unknown mesh dim, a coordinate out of range, or no coordinate at all.
    """
    out: list[tuple[str, tuple[int, ...]]] = []
    for name in sorted(chosen):
        if name not in mesh:
            raise ValueError(f"{name} is not a dim of the mesh ({mesh or 'one device'})")
        coords = tuple(sorted(set(chosen[name])))
        if not coords:
            raise ValueError(f"no coordinate of {name} is named")
        wrong = [c for c in coords if not 0 <= c < mesh[name]]
        if wrong:
            raise ValueError(f"{name} has coordinates 0 to {mesh[name] - 1}, got {wrong[0]}")
        if len(coords) < mesh[name]:
            out.append((name, coords))
    return tuple(out)


def contains(where: Where, coords: Mapping[str, int]) -> bool:
    """Whether the rank at these coordinates is among them."""
    return all(coords[name] in chosen for name, chosen in where)


def within(inner: Where, outer: Where) -> bool:
    """Whether every rank of `inner` is in `outer`."""
    held = dict(inner)
    return all(name in held and set(held[name]) <= set(chosen) for name, chosen in outer)


def common(*wheres: Where) -> Where | None:
    """The ranks that are in all of them; None where there is none."""
    limited = {where for where in wheres if where}
    if not limited:
        return EVERYWHERE
    if len(limited) == 1:
        (only,) = limited
        if len(only) == 1:
            return only
    out: dict[str, tuple[int, ...]] = {}
    for where in wheres:
        for name, chosen in where:
            kept = tuple(c for c in out.get(name, chosen) if c in chosen)
            if not kept:
                return None
            out[name] = kept
    return tuple(sorted(out.items()))


def joined(a: Where, b: Where, mesh: Mesh) -> Where | None:
    """The union of two disjoint sets of ranks, where it is a product again; else None."""
    mine, theirs = dict(a), dict(b)
    names = [n for n in mesh.names if _of(mine, n, mesh) != _of(theirs, n, mesh)]
    if len(names) != 1:
        return None
    (name,) = names
    left, right = _of(mine, name, mesh), _of(theirs, name, mesh)
    if set(left) & set(right):
        return None
    return ranks_where(mesh, {**mine, name: (*left, *right)})


def coordinates(where: Where, mesh: Mesh, name: str) -> tuple[int, ...]:
    """The coordinates of one mesh dim that appear."""
    return _of(dict(where), name, mesh)


def moved(where: Where, mesh: Mesh, name: str, coordinate: int) -> Where:
    """The ranks across `name` from these, at one coordinate of it."""
    return ranks_where(mesh, {**dict(where), name: (coordinate,)})


def show(where: Where) -> str:
    """As it is written in the text form, without `on`: `pp=0, tp=[0, 2]`."""
    return ", ".join(
        f"{name}={chosen[0] if len(chosen) == 1 else list(chosen)}" for name, chosen in where
    )


def _of(where: Mapping[str, tuple[int, ...]], name: str, mesh: Mesh) -> tuple[int, ...]:
    return where.get(name, tuple(range(mesh[name])))


def first(where: Where, mesh: Mesh) -> dict[str, int]:
    """The coordinates of the first rank."""
    return {name: coordinates(where, mesh, name)[0] for name in mesh.names}


def members(where: Where, mesh: Mesh) -> list[int]:
    """Indices of the ranks, in rank order."""
    return [i for i, coords in enumerate(mesh.coords()) if contains(where, coords)]


def process_groups(mesh: Mesh, names: Sequence[str]) -> list[list[int]]:
    """Ranks of each group of the named mesh dims, in group order (last name fastest)."""
    others = [n for n in mesh.names if n not in names]
    index = {tuple(c[n] for n in mesh.names): i for i, c in enumerate(mesh.coords())}
    groups: list[list[int]] = []
    for fixed in product(*(range(mesh[n]) for n in others)):
        base = dict(zip(others, fixed, strict=True))
        group: list[int] = []
        for moving in product(*(range(mesh[n]) for n in names)):
            where = {**base, **dict(zip(names, moving, strict=True))}
            group.append(index[tuple(where[n] for n in mesh.names)])
        groups.append(group)
    return groups
