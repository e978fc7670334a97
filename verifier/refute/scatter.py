"""Cuts a whole tensor into the pieces of every rank by a layout, and joins pieces again."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, contains, first, members

Coords = Mapping[str, int]


def piece(whole: Array, layout: Layout, coords: Coords) -> Array:
    """The entries of `whole` that the rank at `coords` holds; pending folds are left aside."""
    return whole.reshape(_sizes(layout))[_index(layout, coords)].reshape(layout.local_shape)


def cut(layout: Layout, coords: Coords) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    """How a piece is cut out of the whole: the shape that this takes, and the index there along
    each dim, None of one that is kept."""
    atoms = [atom for dim in layout.dims for atom in dim]
    index = (None if a.mesh_dim is None else coords[a.mesh_dim] for a in atoms)
    return _sizes(layout), tuple(index)


def scatter(
    whole: Array, layout: Layout, mesh: Mesh, domain: Domain, rng: np.random.Generator
) -> list[Array]:
    """The piece of every rank, in rank order; random pieces that fold to `whole` where one pends.

    Raises:
        ValueError: `whole` has another shape than the layout says, or folds of two kinds are
            pending (they do not commute, so no whole is meant).
    """
    if whole.shape != layout.global_shape:
        raise ValueError(f"a whole of shape {whole.shape} for the layout {layout}")
    shares = _shares(whole, layout, mesh, domain, rng)
    names = [name for name, _ in layout.partial]
    return [
        piece(shares[tuple(coords[name] for name in names)], layout, coords)
        for coords in mesh.coords()
    ]


def gather(
    parts: Sequence[Array],
    layout: Layout,
    mesh: Mesh,
    domain: Domain,
    where: Where = EVERYWHERE,
) -> Array:
    """The whole that the pieces of the ranks of `where` are laid out from.

    Reads one copy of each piece; `copies` names the ranks that must agree with it. The entries of
    `parts` for other ranks are not read.
    """
    _one_fold(layout)
    rank = {tuple(c[n] for n in mesh.names): i for i, c in enumerate(mesh.coords())}
    base = first(where, mesh)
    out = np.empty(_sizes(layout), dtype=parts[members(where, mesh)[0]].dtype)
    for chosen in _choices(layout.sharded, mesh):
        folded: Array | None = None
        for share in _choices(layout.pending, mesh):
            coords = {**base, **chosen, **share}
            part = parts[rank[tuple(coords[n] for n in mesh.names)]]
            folded = part if folded is None else _fold(layout, domain, folded, part)
        assert folded is not None
        index = _index(layout, chosen)
        out[index] = folded.reshape(out[index].shape)
    return out.reshape(layout.global_shape)


def copies(layout: Layout, mesh: Mesh, where: Where = EVERYWHERE) -> list[tuple[int, int]]:
    """Pairs (rank, the rank that `gather` reads) which hold the same piece by the layout."""
    origins: dict[tuple[int, ...], int] = {}
    out: list[tuple[int, int]] = []
    for rank, coords in enumerate(mesh.coords()):
        if not contains(where, coords):
            continue
        key = tuple(coords[n] for n in mesh.names if n in layout.mentioned)
        origin = origins.setdefault(key, rank)
        if origin != rank:
            out.append((rank, origin))
    return out


def _sizes(layout: Layout) -> tuple[int, ...]:
    return tuple(atom.size for dim in layout.dims for atom in dim)


def _index(layout: Layout, coords: Coords) -> tuple[Any, ...]:
    _, index = cut(layout, coords)
    return (*(slice(None) if i is None else i for i in index), ...)


def _choices(names: frozenset[str], mesh: Mesh) -> list[dict[str, int]]:
    order = [n for n in mesh.names if n in names]
    return [dict(zip(order, c, strict=True)) for c in product(*(range(mesh[n]) for n in order))]


def _one_fold(layout: Layout) -> None:
    if len({fold for _, fold in layout.partial}) > 1:
        raise ValueError(f"folds of two kinds are pending in {layout}")


def _fold(layout: Layout, domain: Domain, a: Array, b: Array) -> Array:
    fold = layout.partial[0][1]
    if fold == "sum":
        return domain.add(a, b)
    return domain.maximum(a, b) if fold == "max" else domain.minimum(a, b)


def _shares(
    whole: Array, layout: Layout, mesh: Mesh, domain: Domain, rng: np.random.Generator
) -> dict[tuple[int, ...], Array]:
    """Arrays by coordinates along the pending mesh dims that fold to `whole`."""
    _one_fold(layout)
    keys = list(product(*(range(mesh[name]) for name, _ in layout.partial)))
    if len(keys) == 1:
        return {keys[0]: whole}
    fold = layout.partial[0][1]
    noise = {key: domain.random_like(whole, rng) for key in keys}
    if fold == "sum":
        rest = whole
        for key in keys[1:]:
            rest = domain.sub(rest, noise[key])
        return {**noise, keys[0]: rest}
    owner = rng.integers(len(keys), size=whole.shape)
    clip = domain.minimum if fold == "max" else domain.maximum
    return {key: np.where(owner == i, whole, clip(whole, noise[key])) for i, key in enumerate(keys)}
