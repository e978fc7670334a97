"""Extents as polynomials in named sizes, and layouts over them.

A digit is an atom with a name: digits of one name in several layouts are one digit of one index.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from shardproof.verifier.kernel.layout import Atom, Dim, normal


@dataclass(frozen=True, slots=True)
class Size:
    """A polynomial with integer coefficients."""

    terms: tuple[tuple[tuple[str, ...], int], ...]
    """(names, sorted and as often as their power; coefficient), sorted, none of them 0."""

    @classmethod
    def of(cls, value: int | str) -> Size:
        """A number, or a named size."""
        return _size({(value,): 1} if isinstance(value, str) else {(): value})

    def __add__(self, other: Size) -> Size:
        out = dict(self.terms)
        for names, by in other.terms:
            out[names] = out.get(names, 0) + by
        return _size(out)

    def __mul__(self, other: Size) -> Size:
        out: dict[tuple[str, ...], int] = {}
        for a, m in self.terms:
            for b, n in other.terms:
                names = tuple(sorted((*a, *b)))
                out[names] = out.get(names, 0) + m * n
        return _size(out)

    def at(self, values: Mapping[str, Any]) -> Any:
        """Its value where the named sizes are numbers, or terms of a solver."""
        total: Any = 0
        for names, by in self.terms:
            product: Any = by
            for name in names:
                product = product * values[name]
            total = total + product
        return total

    def __str__(self) -> str:
        parts = ("*".join([*([str(by)] * (by != 1 or not n)), *n]) for n, by in self.terms)
        return "+".join(parts) or "0"


def _size(terms: Mapping[tuple[str, ...], int]) -> Size:
    return Size(tuple(sorted((names, by) for names, by in terms.items() if by)))


ZERO, ONE = Size.of(0), Size.of(1)


def product(sizes: Iterable[Size]) -> Size:
    out = ONE
    for size in sizes:
        out = out * size
    return out


@dataclass(frozen=True, slots=True)
class Digit:
    """One factor of a dim."""

    key: str
    size: Size
    mesh_dim: str | None = None

    def __str__(self) -> str:
        return f"{self.key}:{self.size}" + (f"@{self.mesh_dim}" if self.mesh_dim else "")


Digits = tuple[Digit, ...]
"""A dim, most significant digit first."""


def whole_size(dim: Digits) -> Size:
    return product(d.size for d in dim)


def local_size(dim: Digits) -> Size:
    return product(d.size for d in dim if d.mesh_dim is None)


def atoms(dim: Digits, values: Mapping[str, int]) -> Dim:
    """The dim where the named sizes are these numbers."""
    return normal(Atom(d.size.at(values), d.mesh_dim) for d in dim)


def size_of(mesh_dim: str) -> str:
    """What the size of a mesh dim is called."""
    return f"|{mesh_dim}|"


def refined(label: str, dims: Sequence[Dim], sizes: dict[str, int]) -> list[Digits] | None:
    """Dims of one whole extent over common digits, whose sizes are added to `sizes`.

    None where their atoms cut across each other, or a mesh dim would be cut.
    """
    places = sorted({p for dim in dims for p in _places(dim)})
    if any(b % a if a else True for a, b in pairwise(places)):
        return None
    held: dict[int, str] = {}
    for dim in dims:
        for atom, place in zip(dim, _places(dim), strict=False):
            if atom.mesh_dim is None:
                continue
            after = places[places.index(place // atom.size) + 1]
            if after != place or held.setdefault(place, atom.mesh_dim) != atom.mesh_dim:
                return None
    digits: dict[int, tuple[str, Size]] = {}
    for k, (below, place) in enumerate(pairwise(places)):
        key = f"{label}{k}"
        name = size_of(held[place]) if place in held else key
        sizes[name] = place // below
        digits[place] = (key, Size.of(name))
    out: list[Digits] = []
    for dim in dims:
        mine: list[Digit] = []
        for atom, place in zip(dim, _places(dim), strict=False):
            inside = [p for p in places if place // atom.size < p <= place]
            mine += [Digit(*digits[p], atom.mesh_dim) for p in reversed(inside)]
        out.append(tuple(mine))
    return out


def _places(dim: Dim) -> list[int]:
    """Whole extents of the dim from each atom on, and the 1 behind the last."""
    return [math.prod(a.size for a in dim[i:]) for i in range(len(dim) + 1)]
