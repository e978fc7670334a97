"""Coincidences of the given extents that are kept, beyond what the ops force."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from verifier.resize.eliminate import simplify
from verifier.resize.system import Declined, System

RATIO = 8
"""Extents in one sum whose ratio is an integer up to this keep it."""


def keep_ratios(system: System) -> None:
    """Where dims are joined or cut, parts that are equal stay equal, and multiples stay multiples.

    Halves stay halves: another program may cut the same dim by a reshape.
    """
    for family in system.families(system.sums):
        unify_equal(system, family)
    simplify(system)
    for family in system.families(system.sums):
        by_size = sorted(family, key=lambda v: system.values[v])
        for i, small in enumerate(by_size):
            for large in by_size[i + 1 :]:
                times, rest = divmod(system.values[large], system.values[small])
                if rest == 0 and 1 < times <= RATIO:
                    system.multiply((large,), (small, system.constant(times)))


def unify_equal(system: System, family: Sequence[int]) -> None:
    """Make classes of equal values one class."""
    first: dict[int, int] = {}
    for v in family:
        other = first.setdefault(system.values[v], v)
        if other != v:
            system.same(other, v)


def keep_coincidences(system: System, determined: Collection[int]) -> None:
    """In everything that ties connect, extents that are equal now stay equal.

    Classes that only one value solves are set apart.
    """
    for family in system.families([*system.products, *system.sums], determined):
        unify_equal(system, family)
    simplify(system)


def name_loose(system: System) -> None:
    """Make each loose number one class with every extent that has its value.

    Raises:
        Declined: no extent has it.
    """
    loose = set(system.loose)
    for number in system.loose:
        value = system.values[number]
        alike = [v for v, n in enumerate(system.values) if n == value and v not in loose]
        if not alike:
            raise Declined(f"the number {value} in an offset counts no extent")
        for v in alike:
            system.same(number, v)


def keep_unanchored(system: System, determined: Collection[int]) -> None:
    """Keep the extents that no extent of the contract is tied to: nothing says how they scale."""
    anchors = {system.root(v) for v in system.anchored}
    for family in system.families([*system.products, *system.sums], determined):
        if not anchors & set(family):
            for v in family:
                system.pin(v)
