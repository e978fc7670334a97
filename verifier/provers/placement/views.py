"""Views: maps of atoms."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice, product

from shardproof.verifier.kernel.layout import (
    Atom,
    Dim,
    Layout,
    bound,
    global_extent,
    local_extent,
    normal,
)
from shardproof.verifier.kernel.ops import views
from shardproof.verifier.kernel.program.registry import (
    Op,
    Refused,
)
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.provers.placement.rule import Operands, Placed, of_ops


def regroup(layout: Layout, shape: tuple[int, ...]) -> Iterator[tuple[Dim, ...]]:
    """Every way to read the atoms of `layout` as dims of local extents `shape`, likeliest first.

    Bound atoms between two result dims may belong to either; all readings are true.
    """
    atoms = normal(a for d in layout.dims for a in d)

    def step(
        at: int,
        rest: Atom | None,
        dim: int,
        need: int,
        current: tuple[Atom, ...],
        done: tuple[Dim, ...],
    ) -> Iterator[tuple[Dim, ...]]:
        atom = rest or (atoms[at] if at < len(atoms) else None)
        if need == 1 and (dim + 1 < len(shape)):
            yield from step(at, rest, dim + 1, shape[dim + 1], (), (*done, normal(current)))
        if atom is None:
            if need == 1 and dim + 1 == len(shape):
                yield (*done, normal(current))
            return
        if atom.mesh_dim is not None:
            yield from step(at + 1, None, dim, need, (*current, atom), done)
        elif need > 1:
            take = math.gcd(need, atom.size)
            if take != need and take != atom.size:
                return
            left = Atom(atom.size // take) if take != atom.size else None
            yield from step(
                at if left else at + 1, left, dim, need // take, (*current, Atom(take)), done
            )

    if not shape:
        if all(a.mesh_dim is None for a in atoms):
            yield ()
        return
    yield from step(0, None, 0, shape[0], (), ())


@of_ops(views.reshape)
def _reshape_place(op: Op, given: Operands) -> list[Placed]:
    (x,) = given.layouts
    out: dict[Layout, Placed] = {}
    for dims in regroup(x, given.numbers("shape")):
        layout = Layout(dims, x.partial)
        out.setdefault(layout, Placed((layout,), (("shape", layout.global_shape),)))
        if len(out) == 12:
            break
    if not out:
        raise Refused(
            "the reshape cuts through a split dim", next(iter(sorted(x.sharded)), None), 0
        )
    return list(out.values())


@of_ops(views.permute)
def _permute_place(op: Op, given: Operands) -> list[Placed]:
    (x,) = given.layouts
    return [
        Placed((Layout(tuple(x.dims[d] for d in given.numbers("dims")), x.partial),), given.attrs)
    ]


MOST_READINGS = 1024
"""All readings of dims along which entries are equal are given up to so many."""


FEW_READINGS = 64
"""Else so many: of all of them, and of each shape of a value of the one-device program."""


MOST_STEPS = 20_000
"""Of the search for those."""


def spreads(
    extents: Sequence[int | None],
    mesh: Mesh,
    used: frozenset[str],
    known: Collection[tuple[int, ...]],
) -> Iterator[dict[int, Dim]]:
    """Readings of dims along which all entries are equal: whole, or split over mesh dims.

    `extents` holds the local extent of each such dim, None for the others; `known` are the shapes
    that are worth reading, where there are more readings than can be given. Fewest splits first.
    """
    free = [name for name in mesh.names if name not in used and mesh[name] > 1]
    places = [i for i, n in enumerate(extents) if n is not None]
    sizes, local = [mesh[name] for name in free], [extents[i] or 0 for i in places]
    choices = _splits(sizes, len(places))
    if (len(places) + 1) ** len(free) > MOST_READINGS:
        wanted = {tuple(s[i] for i in places) for s in known if len(s) == len(extents)}
        choices = chain(islice(choices, FEW_READINGS), _splits_to(wanted, local, sizes))
    for choice in dict.fromkeys(choices):
        dims: dict[int, Dim] = {}
        for k, (i, n) in enumerate(zip(places, local, strict=True)):
            atoms = [Atom(mesh[a], a) for a, at in zip(free, choice, strict=True) if at == k]
            dims[i] = normal([*atoms, Atom(n)])
        yield dims
    yield from islice(_flattened(extents, mesh, free, known), FEW_READINGS)


def _flattened(
    extents: Sequence[int | None],
    mesh: Mesh,
    free: Sequence[str],
    known: Collection[tuple[int, ...]],
) -> Iterator[dict[int, Dim]]:
    """Readings of one dim as two that were flattened, of which mesh dims split the inner one, and
    maybe others the outer one. The outer extents are the first ones of known shapes, those of most
    shapes first."""
    count = Counter(s[0] for s in known if len(s) > 1 and s[0] > 1)
    firsts = sorted(count, key=lambda n: (-count[n], n))
    whole = {i: normal([Atom(n)]) for i, n in enumerate(extents) if n is not None}
    for i, local in enumerate(extents):
        wanted, n = {s[i] for s in known if len(s) == len(extents)}, local or 1
        ways = list(product((None, 0, 1), repeat=len(free))) if n > 1 else []
        for first, parts in product(firsts, ways):
            outer, inner = (
                [Atom(mesh[m], m) for m, at in zip(free, parts, strict=True) if at == k]
                for k in (0, 1)
            )
            if inner:
                rows, left = divmod(first, math.prod(a.size for a in outer))
                if left or not 1 < rows < n or n % rows:
                    continue
                dim = normal([*outer, Atom(rows), *inner, Atom(n // rows)])
                if global_extent(dim) in wanted:
                    yield {**whole, i: dim}


Split = tuple[int | None, ...]
"""For each mesh dim the dim that it splits, None where it splits none."""


def _splits(sizes: Sequence[int], dims: int) -> Iterator[Split]:
    """Every way to split some of `dims` dims over mesh dims, fewest splits first."""

    def chosen(rest: int, left: int) -> Iterator[Split]:
        if not rest:
            yield ()
            return
        if left < rest:
            yield from ((None, *more) for more in chosen(rest - 1, left))
        for at in range(dims) if left else ():
            yield from ((at, *more) for more in chosen(rest - 1, left - 1))

    for count in range(len(sizes) + 1 if dims else 1):
        yield from chosen(len(sizes), count)


def _splits_to(
    wanted: Iterable[tuple[int, ...]], local: Sequence[int], sizes: Sequence[int]
) -> Iterator[Split]:
    """The splits of `local` that give a wanted shape, a few of each, in the order of `_splits`."""
    factors = {
        shape: tuple(n // m if m else 1 for n, m in zip(shape, local, strict=True))
        for shape in wanted
        if all(n % m == 0 and n >= m if m else n == 0 for n, m in zip(shape, local, strict=True))
    }
    given = dict.fromkeys(factors, 0)
    steps = 0

    def chosen(
        at: int, left: int, open_: list[tuple[tuple[int, ...], tuple[int, ...]]]
    ) -> Iterator[Split]:
        nonlocal steps
        steps += 1
        rest = sorted(sizes[at:])
        least, most = math.prod(rest[:left]), math.prod(rest[len(rest) - left :])
        open_ = [
            (shape, need)
            for shape, need in open_
            if given[shape] < FEW_READINGS and least <= math.prod(need) <= most
        ]
        if not open_ or left > len(rest) or steps > MOST_STEPS:
            return
        if not rest:
            for shape, _ in open_:
                given[shape] += 1
            yield ()
            return
        yield from ((None, *more) for more in chosen(at + 1, left, open_))
        for k in range(len(local)) if left else ():
            split = [
                (shape, (*need[:k], need[k] // sizes[at], *need[k + 1 :]))
                for shape, need in open_
                if need[k] % sizes[at] == 0
            ]
            yield from ((k, *more) for more in chosen(at + 1, left - 1, split))

    for count in range(len(sizes) + 1):
        yield from chosen(0, count, list(factors.items()))


@of_ops(views.expand)
def _expand_place(op: Op, given: Operands) -> list[Placed]:
    (x,) = given.layouts
    shape = given.numbers("shape")
    extra = len(shape) - len(x.dims)
    none: Dim = ()
    dims: list[Dim] = [*([none] * extra), *x.dims]
    extents: list[int | None] = []
    for i, (dim, n) in enumerate(zip(dims, shape, strict=True)):
        if dim and local_extent(dim) != n:
            raise Refused(
                f"expands dim {i}, which is sharded so that one entry is left on each rank",
                bound(dim)[0],
                0,
            )
        extents.append(None if dim else n)
    out: list[Placed] = []
    for chosen in spreads(extents, given.mesh, x.mentioned, given.known):
        full = tuple(chosen.get(i, dim) for i, dim in enumerate(dims))
        layout = Layout(full, x.partial)
        out.append(Placed((layout,), (("shape", layout.global_shape),)))
    return out
