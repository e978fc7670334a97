"""Ranks as mesh coordinates: communicators as cosets of mesh dims, peers, affine numbers.

Everything here is exact integer arithmetic over all the ranks that are given.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from shardproof.synthesis.frontends.rank_programs.form import Ints
from shardproof.verifier.kernel.program.types import Affine, Mesh
from shardproof.verifier.kernel.program.where import Where, ranks_where

LARGE = 1 << 40
"""Numbers beyond this are compared, never fitted: products with coordinates could overflow."""


class Grid:
    """The ranks of a mesh, with their coordinates."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.sizes = np.array([n for _, n in mesh.dims], np.int64)
        self.strides = np.ones(len(mesh.dims), np.int64)
        for i in range(len(mesh.dims) - 2, -1, -1):
            self.strides[i] = self.strides[i + 1] * self.sizes[i + 1]
        self.size = mesh.size
        self.coords = self.of(np.arange(self.size))

    def of(self, ranks: Ints) -> Ints:
        """Coordinates, one more dim at the end."""
        return (ranks[..., None] // self.strides) % self.sizes

    def bases(self, dims: Iterable[str]) -> Ints:
        """For each rank, the first rank of its group over these mesh dims."""
        at = [self.mesh.names.index(d) for d in dims]
        return np.arange(self.size) - self.coords[:, at] @ self.strides[at]

    def offsets(self, dims: Sequence[str]) -> Ints:
        """Ranks of a group less its first one, in group order (last mesh dim fastest)."""
        out = np.zeros(1, np.int64)
        for name in dims:
            i = self.mesh.names.index(name)
            steps = np.arange(int(self.sizes[i]), dtype=np.int64) * int(self.strides[i])
            out = np.add.outer(out, steps).reshape(-1)
        return out

    def coset(self, members: Sequence[int]) -> tuple[str, ...] | None:
        """The mesh dims, outermost first, whose group these ranks are in this order.

        Dims of size 1 are left out. None where there are none such.
        """
        got = np.array(members, np.int64)
        if not len(got) or got.min() < 0 or got.max() >= self.size:
            return None
        coords = self.of(got)
        live = [i for i in range(len(self.sizes)) if len(np.unique(coords[:, i])) > 1]
        if int(np.prod(self.sizes[live])) != len(got):
            return None
        place = {int(r): k for k, r in enumerate(got)}
        first = int(got[0])
        order = sorted(live, key=lambda i: -place.get(first + int(self.strides[i]), 0))
        names = tuple(self.mesh.names[i] for i in order)
        return names if np.array_equal(first + self.offsets(names), got) else None

    def cosets(self, ranks: Ints, lists: Ints) -> list[tuple[str, ...] | None]:
        """`coset` of each row, where the rank itself is a member."""
        out: list[tuple[str, ...] | None] = [None] * len(ranks)
        left = np.arange(len(ranks))
        known: set[tuple[str, ...]] = set()
        for _ in range(64):
            if not len(left):
                break
            dims = self.coset([int(v) for v in lists[left[0]]])
            if dims is None or dims in known:
                left = left[1:]
                continue
            known.add(dims)
            want = self.bases(dims)[ranks[left], None] + self.offsets(dims)
            same = (lists[left] == want).all(axis=1)
            for row in left[same]:
                out[row] = dims
            left = left[~same] if same[0] else left[~same][1:]
        for row in left:
            dims = self.coset([int(v) for v in lists[row]])
            if dims is not None and int(ranks[row]) in lists[row]:
                out[row] = dims
        return out

    def peers(self, ranks: Ints, others: Ints) -> list[tuple[str, int, int] | None]:
        """For each pair of ranks the one mesh dim along which they differ, with both coordinates;
        None where there are several or none."""
        inside = (others >= 0) & (others < self.size)
        mine, theirs = self.coords[ranks], self.of(np.where(inside, others, 0))
        unlike = mine != theirs
        one = inside & (unlike.sum(axis=1) == 1)
        dim = unlike.argmax(axis=1)
        rows = np.arange(len(ranks))
        here, there = mine[rows, dim], theirs[rows, dim]
        return [
            (self.mesh.names[dim[i]], int(here[i]), int(there[i])) if one[i] else None
            for i in range(len(ranks))
        ]

    def fit(self, ranks: Ints, values: Ints) -> tuple[Affine, Ints] | None:
        """The affine map that most ranks agree with, and the rows that do not.

        Each coefficient is the commonest step between neighbours along its mesh dim, the constant
        the commonest rest; then every rank is compared. None where fewer than half agree.
        """
        if np.abs(values).max(initial=0) > LARGE:
            return None
        coords = self.coords[ranks]
        row = np.full(self.size, -1, np.int64)
        row[ranks] = np.arange(len(ranks))
        coeffs = np.zeros(len(self.sizes), np.int64)
        for i in range(len(self.sizes)):
            present = np.unique(coords[:, i])
            if len(present) < 2:
                continue
            following = np.zeros(int(self.sizes[i]), np.int64)
            following[present[:-1]] = present[1:] - present[:-1]
            gap = following[coords[:, i]]
            other = row[np.minimum(ranks + gap * self.strides[i], self.size - 1)]
            pair = (gap > 0) & (other >= 0)
            step = values[other[pair]] - values[pair]
            even = step % gap[pair] == 0
            if even.any():
                coeffs[i] = _commonest((step // gap[pair])[even])
        rest = values - coords @ coeffs
        const = _commonest(rest)
        wrong = np.flatnonzero(rest != const)
        if 2 * len(wrong) >= len(values):
            return None
        named = {n: int(c) for n, c in zip(self.mesh.names, coeffs, strict=True)}
        return Affine.of(const, named), wrong

    def array(self, ranks: Ints) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Whether each rank of the mesh is among these, in the shape of the mesh."""
        out = np.zeros(self.size, bool)
        out[ranks] = True
        return out.reshape(tuple(int(n) for n in self.sizes))


def _commonest(values: Ints) -> int:
    found, counts = np.unique(values, return_counts=True)
    return int(found[counts.argmax()])


def union(sets: Iterable[int]) -> int:
    """The ranks that are in some of these sets."""
    out = 0
    for bits in sets:
        out |= bits
    return out


@dataclass(frozen=True)
class Regions:
    """Sets of ranks, as integers with one bit for each, and as products over mesh dims."""

    grid: Grid

    def bits(self, ranks: Ints) -> int:
        """The set of these ranks."""
        flags = np.zeros(self.grid.size, bool)
        flags[ranks] = True
        return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")

    def ranks(self, bits: int) -> Ints:
        """The ranks of a set, ascending."""
        data = np.frombuffer(bits.to_bytes((self.grid.size + 7) // 8, "little"), np.uint8)
        return np.flatnonzero(np.unpackbits(data, bitorder="little"))

    def hull(self, bits: int) -> Where:
        """The smallest product that holds the set."""
        coords = self.grid.coords[self.ranks(bits)]
        chosen = {
            name: [int(c) for c in np.unique(coords[:, i])]
            for i, name in enumerate(self.grid.mesh.names)
        }
        return ranks_where(self.grid.mesh, chosen)

    def members(self, where: Where) -> int:
        """The set of a product."""
        flags = np.ones(self.grid.size, bool)
        for name, chosen in where:
            i = self.grid.mesh.names.index(name)
            flags &= np.isin(self.grid.coords[:, i], chosen)
        return self.bits(np.flatnonzero(flags))

    def boxes(self, bits: int, uncut: Iterable[str] = ()) -> list[Where]:
        """Few products that make up the set, none of them cut along the dims of `uncut`."""
        hull = self.hull(bits)
        if self.members(hull) == bits:
            return [hull]
        mesh, held = self.grid.mesh, self.grid.array(self.ranks(bits))
        best: dict[bytes, list[int]] | None = None
        along = ""
        for i, (name, size) in enumerate(mesh.dims):
            if name in uncut:
                continue
            slices: dict[bytes, list[int]] = {}
            for c in range(size):
                part = held.take(c, axis=i)
                if part.any():
                    slices.setdefault(part.tobytes(), []).append(c)
            if len(slices) > 1 and (best is None or len(slices) < len(best)):
                best, along = slices, name
        if best is None:
            return [hull] if self.members(hull) == bits else []
        out: list[Where] = []
        for chosen in best.values():
            part = bits & self.members(ranks_where(mesh, {along: chosen}))
            out += self.boxes(part, (*uncut, along))
        return out
