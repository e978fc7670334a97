"""The extents of a pair of programs as unknowns, and what must hold between them.

Every extent and every number that counts entries of a dim is an unknown with the value it has now.
Unknowns that must be equal are one class; classes are tied by products (a reshape, a split over a
mesh dim) and by sums (a concatenation, a slice). The values of now solve the system; `solve`
looks for smaller ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from functools import partial


class Declined(Exception):  # noqa: N818  (an answer, not a failure)
    """The programs cannot be resized, and why."""


@dataclass(frozen=True, slots=True)
class Product:
    """The unknowns on the left multiply to what those on the right multiply to."""

    left: tuple[int, ...]
    right: tuple[int, ...]

    @property
    def members(self) -> tuple[int, ...]:
        return (*self.left, *self.right)


@dataclass(frozen=True, slots=True)
class Sum:
    """`total` is the sum of the parts, each times its factor, and a constant."""

    total: int
    parts: tuple[tuple[int, int], ...]
    """(factor, unknown)."""
    const: int = 0

    @property
    def members(self) -> tuple[int, ...]:
        return (self.total, *(v for _, v in self.parts))


@dataclass
class System:
    """Unknowns with their values of now, classes of equal ones, products and sums."""

    values: list[int] = field(default_factory=list[int])
    parent: list[int] = field(default_factory=list[int])
    pinned: dict[int, int] = field(default_factory=dict[int, int])
    """Unknown -> the value it must take."""
    floors: dict[int, int] = field(default_factory=dict[int, int])
    """Unknown -> the least value it may take."""
    products: list[Product] = field(default_factory=list[Product])
    sums: list[Sum] = field(default_factory=list[Sum])
    anchored: set[int] = field(default_factory=set[int])
    """Unknowns that the contract speaks of."""
    caveats: list[str] = field(default_factory=list[str])
    ranks: set[int] = field(default_factory=set[int])
    """Unknowns that are sizes of mesh dims."""
    loose: list[int] = field(default_factory=list[int])
    """Numbers that count some extent, but not one that is at hand where they are written."""
    lengths: set[int] = field(default_factory=set[int])
    """Unknowns that count the steps of a repeated block."""
    cuts: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """An extent, and a number at which a dim of that extent is cut."""
    constants: dict[int, int] = field(default_factory=dict[int, int])
    """Value -> the unknown that has it and no other."""

    def new(self, value: int) -> int:
        """A new unknown; 0, 1 and 2 are never resized."""
        if value in (0, 1, 2):
            return self.constant(value)
        self.values.append(value)
        self.parent.append(len(self.parent))
        return len(self.parent) - 1

    def constant(self, value: int) -> int:
        if value not in self.constants:
            self.values.append(value)
            self.parent.append(len(self.parent))
            self.constants[value] = len(self.parent) - 1
            self.pinned[self.constants[value]] = value
        return self.constants[value]

    def shape(self, extents: Iterable[int]) -> tuple[int, ...]:
        return tuple(self.new(n) for n in extents)

    def root(self, unknown: int) -> int:
        while self.parent[unknown] != unknown:
            self.parent[unknown] = self.parent[self.parent[unknown]]
            unknown = self.parent[unknown]
        return unknown

    def same(self, a: int, b: int) -> None:
        """Raises Declined where the values of now differ."""
        if self.values[a] != self.values[b]:
            raise Declined(f"extents {self.values[a]} and {self.values[b]} would have to be equal")
        a, b = self.root(a), self.root(b)
        if a != b:
            if b in self.pinned:
                a, b = b, a
            self.parent[b] = a

    def multiply(self, left: Iterable[int], right: Iterable[int]) -> None:
        sides = tuple(left), tuple(right)
        if len({math.prod(self.values[v] for v in side) for side in sides}) > 1:
            raise Declined("a product that does not hold now")
        self.products.append(Product(*sides))

    def add(self, total: int, parts: Iterable[tuple[int, int]], const: int = 0) -> None:
        tied = Sum(total, tuple(parts), const)
        if self.values[total] != const + sum(k * self.values[v] for k, v in tied.parts):
            raise Declined("a sum that does not hold now")
        self.sums.append(tied)

    def align(self, a: Iterable[int], b: Iterable[int], *, wholly: bool = False) -> bool:
        """Read two ordered lists of factors of one number as cuts of the same dim.

        From the left, equal factors become one class, and of two others the larger is the smaller
        times a rest; what is left over where a factor would be cut through is read from the right.
        False where something is left over, or a factor is 0; the ties up to there stay, but for
        `wholly`.
        """
        left, right = ([v for v in side if self.values[v] != 1][::-1] for side in (a, b))
        if any(self.values[v] == 0 for v in (*left, *right)):
            return False
        ties: list[Callable[[], None]] = []
        self._align(left, right, ties, rightmost=False)
        left.reverse()
        right.reverse()
        self._align(left, right, ties, rightmost=True)
        done = not left and not right
        for tie in ties if done or not wholly else ():
            tie()
        return done

    def _align(
        self, left: list[int], right: list[int], ties: list[Callable[[], None]], rightmost: bool
    ) -> None:
        """Takes factors from the ends of both lists while they line up, noting what ties them."""
        while left and right:
            x, y = left[-1], right[-1]
            large, small = (x, y) if self.values[x] >= self.values[y] else (y, x)
            times, rest = divmod(self.values[large], self.values[small])
            across = {self.root(x), self.root(y)} <= self.ranks and self.root(x) != self.root(y)
            if rest or across or (times > 1 and self.root(large) in self.ranks):
                return
            left.pop()
            right.pop()
            if times == 1:
                ties.append(partial(self.same, x, y))
                continue
            ahead = right if large == x else left
            done = bool(ahead) and self.values[ahead[-1]] == times
            other = ahead[-1] if done else self.new(times)
            factors = (other, small) if rightmost else (small, other)
            ties.append(partial(self.multiply, (large,), factors))
            (left if large == x else right).append(other)

    def pin(self, unknown: int) -> None:
        """Keep the value of now."""
        self.same(unknown, self.constant(self.values[unknown]))

    def copy(self) -> System:
        """The same to go on from in another way, without its caveats."""
        out = System()
        for entry in fields(self):
            if entry.name != "caveats":
                setattr(out, entry.name, copy(getattr(self, entry.name)))
        return out

    def free(self) -> list[int]:
        """Roots of the classes that may be resized."""
        fixed = {self.root(v) for v in self.pinned}
        return [v for v, above in enumerate(self.parent) if above == v and v not in fixed]

    def families(
        self, ties: Sequence[Product | Sum], apart: Collection[int] = ()
    ) -> list[list[int]]:
        """Free classes that ties connect; fixed ones, and those set apart, connect nothing."""
        free = set(self.free()) - set(apart)
        above = {v: v for v in free}

        def top(v: int) -> int:
            while above[v] != v:
                v = above[v]
            return v

        for tie in ties:
            roots = [r for r in map(self.root, tie.members) if r in free]
            for other in roots[1:]:
                above[top(other)] = top(roots[0])
        out: dict[int, list[int]] = defaultdict(list)
        for v in sorted(free):
            out[top(v)].append(v)
        return list(out.values())
