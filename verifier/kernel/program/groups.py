"""Ranks by their indices: those of a set, and the groups of mesh dims."""

from collections.abc import Sequence
from itertools import product

from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.kernel.program.where import Where, contains, coordinates


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
