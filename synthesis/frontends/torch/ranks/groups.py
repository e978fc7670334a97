"""Which mesh dims a process group runs along, by the global ranks in it."""

from collections.abc import Sequence
from functools import cache
from itertools import combinations, permutations, product

from shardproof.verifier.kernel.program.types import Mesh


@cache
def _members(mesh: Mesh, rank: int, dims: tuple[str, ...]) -> tuple[int, ...]:
    """Global ranks that differ from `rank` in these dims alone, the first dim outermost."""
    stride: dict[str, int] = {}
    step = 1
    for name, size in reversed(mesh.dims):
        stride[name] = step
        step *= size
    base = rank - sum(stride[d] * ((rank // stride[d]) % mesh[d]) for d in dims)
    places = product(*(range(mesh[d]) for d in dims))
    return tuple(base + sum(stride[d] * c for d, c in zip(dims, at, strict=True)) for at in places)


def dims_of(ranks: Sequence[int], rank: int, mesh: Mesh) -> tuple[str, ...] | None:
    """The mesh dims whose slice at `rank` is this group, in the group's order; None where the
    group is no such slice. A group of one rank is along no dim."""
    group = tuple(ranks)
    if group == (rank,):
        return ()
    names = [name for name, size in mesh.dims if size > 1]
    for count in range(1, len(names) + 1):
        for chosen in combinations(names, count):
            for order in permutations(chosen):
                if _members(mesh, rank, order) == group:
                    return order
    return None


def slices(mesh: Mesh, rank: int) -> list[tuple[str, list[int]]]:
    """The group of each mesh dim at a rank, for messages."""
    return [(name, list(_members(mesh, rank, (name,)))) for name, size in mesh.dims if size > 1]
