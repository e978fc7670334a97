"""Layouts: how the piece of a tensor on one rank sits in the whole tensor.

Every dim of the whole tensor is an ordered product of *atoms* (as in einops), most significant
first. An atom bound to a mesh dim is fixed to that coordinate on each rank; the free atoms make
up the local extent. `Shard(d)` on `tp` is the dim `[2@tp, 4]`; a fused weight sharded inside its
three parts is `[3, 2@tp, 4]`. A mesh dim that no atom mentions replicates, unless it is listed as
partial: then the whole is the fold (sum, max, min) of the pieces along it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Atom:
    size: int
    mesh_dim: str | None = None

    def __str__(self) -> str:
        return f"{self.size}@{self.mesh_dim}" if self.mesh_dim else str(self.size)


Dim = tuple[Atom, ...]
FOLDS = ("sum", "max", "min")


def normal(atoms: Iterable[Atom]) -> Dim:
    """Drop free atoms of size 1 and merge adjacent free atoms. Bound atoms of size 1 go too."""
    out: list[Atom] = []
    for atom in atoms:
        if atom.size == 1:
            continue
        if out and atom.mesh_dim is None and out[-1].mesh_dim is None:
            out[-1] = Atom(out[-1].size * atom.size)
        else:
            out.append(atom)
    return tuple(out)


def whole(extent: int) -> Dim:
    """The dim of an extent that no mesh dim splits."""
    return (Atom(extent),) if extent != 1 else ()


def global_extent(dim: Dim) -> int:
    return math.prod(a.size for a in dim)


def local_extent(dim: Dim) -> int:
    return math.prod(a.size for a in dim if a.mesh_dim is None)


def cut_behind(dim: Dim, outer: int) -> tuple[Dim, Dim] | None:
    """The atoms of a dim whose extents multiply to `outer`, and those behind them. A free atom may
    be cut in two; None where there is no such place."""
    before, rest = list[Atom](), list(dim)
    while outer > 1:
        if not rest:
            return None
        atom = rest.pop(0)
        if outer % atom.size:
            if atom.mesh_dim is not None or atom.size % outer:
                return None
            rest.insert(0, Atom(atom.size // outer))
            atom = Atom(outer)
        before.append(atom)
        outer //= atom.size
    return tuple(before), tuple(rest)


def bound(dim: Dim) -> tuple[str, ...]:
    """The mesh dims that split this dim, most significant first."""
    return tuple(a.mesh_dim for a in dim if a.mesh_dim is not None)


def split_leading(dim: Dim, size: int, mesh_dim: str) -> Dim | None:
    """Chunk the local extent of `dim` into `size` parts, one per coordinate of `mesh_dim`.

    The first free atom is split; `None` where `size` does not divide it.
    """
    for index, atom in enumerate(dim):
        if atom.mesh_dim is None:
            if atom.size % size:
                return None
            return normal(
                (*dim[:index], Atom(size, mesh_dim), Atom(atom.size // size), *dim[index + 1 :])
            )
    return None


@dataclass(frozen=True)
class Layout:
    dims: tuple[Dim, ...]
    partial: tuple[tuple[str, str], ...] = ()
    """(mesh dim, fold), sorted by mesh dim."""

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Layout], tuple[object, ...]]:
        """Without what is worked out on demand: hashes of words differ between processes."""
        return Layout, (self.dims, self.partial)

    @cached_property
    def _hash(self) -> int:
        return hash((self.dims, self.partial))

    @classmethod
    def replicate(cls, shape: Iterable[int]) -> Layout:
        return cls(tuple(whole(n) for n in shape))

    @cached_property
    def global_shape(self) -> tuple[int, ...]:
        return tuple(global_extent(d) for d in self.dims)

    @cached_property
    def local_shape(self) -> tuple[int, ...]:
        return tuple(local_extent(d) for d in self.dims)

    @cached_property
    def sharded(self) -> frozenset[str]:
        """Mesh dims bound by some atom."""
        return frozenset(name for d in self.dims for name in bound(d))

    @cached_property
    def pending(self) -> frozenset[str]:
        """Mesh dims along which a fold is pending."""
        return frozenset(name for name, _ in self.partial)

    @cached_property
    def mentioned(self) -> frozenset[str]:
        return self.sharded | self.pending

    def fold(self, mesh_dim: str) -> str | None:
        return dict(self.partial).get(mesh_dim)

    def with_partial(self, partial: Iterable[tuple[str, str]]) -> Layout:
        return Layout(self.dims, tuple(sorted(partial)))

    def with_dim(self, index: int, dim: Iterable[Atom]) -> Layout:
        dims = list(self.dims)
        dims[index] = normal(dim)
        return Layout(tuple(dims), self.partial)

    def placement(self, mesh_dim: str) -> str:
        """The placement on one mesh dim, in PyTorch's words."""
        for name, fold in self.partial:
            if name == mesh_dim:
                return f"Partial({fold})"
        for index, dim in enumerate(self.dims):
            names = bound(dim)
            if mesh_dim in names:
                plain = dim[0].mesh_dim == mesh_dim
                return f"Shard({index})" if plain else f"StridedShard({index})"
        return "Replicate"

    def __str__(self) -> str:
        dims = ", ".join(" ".join(map(str, d)) or "1" for d in self.dims)
        folds = "".join(f" partial({fold})@{name}" for name, fold in self.partial)
        return f"[{dims}]{folds}"
