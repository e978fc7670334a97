"""Guesses by value which one-device value each value of a distributed program is a piece of.

A guess points at what to edit, and says how far an edited program is right. It proves nothing.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, permutations, product

import numpy as np
from numpy.typing import NDArray

from shardproof.verifier.domains.base import Array
from shardproof.verifier.domains.field import P
from shardproof.verifier.kernel.layout import Atom, Dim, Layout, normal, whole
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.refute.scatter import piece

MOST = 16
"""One-device values that are compared with one value, at most."""
STRIDED = 24
"""Layouts other than plain blocks that are compared with one value, at most."""
_P = np.uint64(P)


@dataclass(frozen=True, slots=True)
class Claim:
    """The value is `scale` times the one-device value `of`, in pieces by `layout`."""

    of: str
    scale: Fraction
    layout: Layout


class Index:
    """The values of one device by their elements, to be found again in the pieces of ranks."""

    def __init__(self, whole: Mapping[str, Array], mesh: Mesh) -> None:
        self.whole, self.mesh = whole, mesh
        self.coords = mesh.coords()
        self._layouts: dict[tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]], list[Layout]]
        self._layouts = {}
        self._scales = _scales(mesh)
        self._factors = np.asarray([pow(_lift(c), -1, P) for c in self._scales], dtype=np.uint64)
        telling = [n for n, a in whole.items() if _telling(a)]
        sizes = [whole[n].size for n in telling]
        flat = [whole[n].ravel() for n in telling]
        elements = np.concatenate(flat) if flat else np.zeros(0, np.uint64)
        owner = np.repeat(np.arange(len(telling)), sizes)
        order = np.argsort(elements, kind="stable")
        self._elements: NDArray[np.uint64] = elements[order]
        self._owner, self._names = owner[order], telling
        self._plain = [(name, array) for name, array in whole.items() if not _telling(array)]

    def claims(self, parts: Sequence[Array | None]) -> list[Claim]:
        """What the pieces of a value are, one entry a rank (None: the rank has none)."""
        ranks = [r for r, a in enumerate(parts) if a is not None]
        if not ranks:
            return []
        probe = parts[ranks[0]]
        assert probe is not None
        if probe.size == 0:
            return []
        if not _telling(probe):
            return self._same(parts, ranks)
        found: list[Claim] = []
        for names in self._sums(parts, ranks):
            summed = _summed(parts, self.coords, names) if names else parts
            for claim in self._whole(summed, ranks, names):
                found.append(claim)
            if found:
                break
        return sorted(found, key=lambda c: c.scale != 1)

    def _same(self, parts: Sequence[Array | None], ranks: Sequence[int]) -> list[Claim]:
        """Integers, booleans, constants: every one-device value of such elements is compared."""
        first = parts[ranks[0]]
        assert first is not None
        out: list[Claim] = []
        for name, array in self._plain:
            if array.ndim != first.ndim or array.dtype != first.dtype:
                continue
            layout = self._fits(name, Fraction(1), parts, ranks, ())
            if layout is not None:
                out.append(Claim(name, Fraction(1), layout))
                if len(out) == MOST:
                    break
        return out

    def _sums(
        self, parts: Sequence[Array | None], ranks: Sequence[int]
    ) -> Iterator[tuple[str, ...]]:
        """Mesh dims along which the pieces may be summed, fewest first."""
        held = set(ranks)
        moving = [
            n
            for n, size in self.mesh.dims
            if size > 1 and len({self.coords[r][n] for r in ranks}) == size
        ]
        for count in range(len(moving) + 1):
            for names in combinations(moving, count):
                sizes = math.prod(self.mesh[n] for n in names)
                if len(held) % sizes == 0:
                    yield names

    def _whole(
        self, parts: Sequence[Array | None], ranks: Sequence[int], names: tuple[str, ...]
    ) -> Iterator[Claim]:
        first = parts[ranks[0]]
        assert first is not None
        at = int(np.argmax(first.ravel() != 0))
        probes: NDArray[np.uint64] = (first.ravel()[at] * self._factors) % _P
        low = np.searchsorted(self._elements, probes, "left")
        high = np.searchsorted(self._elements, probes, "right")
        tried = 0
        for scale, a, b in zip(self._scales, low, high, strict=True):
            owners: list[int] = self._owner[a:b].tolist()
            for owner in dict.fromkeys(owners):
                if tried == MOST:
                    return
                tried += 1
                name = self._names[owner]
                layout = self._fits(name, scale, parts, ranks, names)
                if layout is not None:
                    yield Claim(name, scale, layout)

    def _fits(
        self,
        name: str,
        scale: Fraction,
        parts: Sequence[Array | None],
        ranks: Sequence[int],
        names: tuple[str, ...],
    ) -> Layout | None:
        value, first = self.whole[name], parts[ranks[0]]
        assert first is not None
        if value.ndim != first.ndim:
            return None
        if scale != 1:
            value = (value * np.uint64(_lift(scale))) % _P
        for layout in self.layouts(value.shape, first.shape, names):
            if all(
                part is not None and np.array_equal(piece(value, layout, self.coords[r]), part)
                for r, part in ((r, parts[r]) for r in ranks)
            ):
                return layout.with_partial((n, "sum") for n in names)
        return None

    def layouts(
        self, shape: tuple[int, ...], local: tuple[int, ...], without: tuple[str, ...]
    ) -> list[Layout]:
        """Layouts of a whole of `shape` with pieces of `local` over the mesh dims that are left."""
        key = shape, local, without
        kept = self._layouts.get(key)
        if kept is None:
            kept = self._layouts[key] = list(self._spread(*key))
        return kept

    def _spread(
        self, shape: tuple[int, ...], local: tuple[int, ...], without: tuple[str, ...]
    ) -> Iterator[Layout]:
        if any(n and (m == 0 or n % m) for n, m in zip(shape, local, strict=True)):
            return
        free = [(n, size) for n, size in self.mesh.dims if size > 1 and n not in without]
        want = [n // m if m else 1 for n, m in zip(shape, local, strict=True)]
        plain: list[Layout] = []
        strided: list[Layout] = []
        for dims in product((-1, *(d for d, w in enumerate(want) if w > 1)), repeat=len(free)):
            names: list[list[tuple[str, int]]] = [[] for _ in shape]
            for mesh_dim, dim in zip(free, dims, strict=True):
                if dim >= 0:
                    names[dim].append(mesh_dim)
            if [math.prod(size for _, size in on) for on in names] != want:
                continue
            forms = [list(_forms(m, on)) for m, on in zip(local, names, strict=True)]
            for chosen in product(*forms):
                first = all(form is forms[d][0] for d, form in enumerate(chosen))
                (plain if first else strided).append(Layout(tuple(chosen)))
        yield from plain
        yield from strided[:STRIDED]


def _forms(extent: int, names: Sequence[tuple[str, int]]) -> Iterator[Dim]:
    """Dims of this local extent that some mesh dims split, plain blocks first."""
    if not names:
        yield whole(extent)
        return
    cuts = sorted(_factorings(extent, len(names) + 1), key=lambda c: c[:-1])
    for order in permutations(names):
        for cut in cuts:
            atoms = [Atom(cut[0])]
            for (name, size), free in zip(order, cut[1:], strict=True):
                atoms += [Atom(size, name), Atom(free)]
            yield normal(atoms)


def _factorings(extent: int, count: int) -> Iterator[tuple[int, ...]]:
    if count == 1:
        yield (extent,)
        return
    for first in range(1, extent + 1):
        if extent % first == 0:
            yield from ((first, *rest) for rest in _factorings(extent // first, count - 1))


def _summed(
    parts: Sequence[Array | None], coords: Sequence[Mapping[str, int]], names: tuple[str, ...]
) -> list[Array | None]:
    """On every rank, the sum of the pieces of its group over some mesh dims."""
    totals: dict[tuple[int, ...], Array] = {}
    keys = [tuple(v for n, v in c.items() if n not in names) for c in coords]
    for key, part in zip(keys, parts, strict=True):
        if part is not None:
            totals[key] = (totals[key] + part) % _P if key in totals else part
    return [None if p is None else totals[k] for k, p in zip(keys, parts, strict=True)]


def _telling(array: Array) -> bool:
    """Whether the elements of a value tell it from others."""
    if array.dtype != np.uint64 or array.size == 0:
        return False
    flat = array.ravel()
    at = flat[int(np.argmax(flat != 0))]
    return bool(at > 1 << 16)


def _lift(scale: Fraction) -> int:
    return scale.numerator * pow(scale.denominator, -1, P) % P


def _scales(mesh: Mesh) -> list[Fraction]:
    """Factors that a value may be off by: sizes of the mesh and their products, 2, a sign."""
    sizes = {Fraction(1)}
    for _, size in mesh.dims:
        sizes |= {s * size for s in sizes}
    sizes |= {Fraction(2), Fraction(4)}
    sizes |= {1 / s for s in sizes}
    return sorted((s * sign for s in sizes for sign in (1, -1)), key=lambda s: (s != 1, s < 0, s))
