"""Factors that both programs hold and that may, in the distributed one, also count ranks.

A program that multiplies by 1/64 because a mean is over 64 entries, and once more because 64 ranks
added equal values, holds no factor that one device does not hold; on 2 ranks it is wrong though it
was right on 64. So a difference on a smaller mesh is tried again with such factors, in one place or
in all, as they would be there. Where it goes away, it says nothing about the given mesh.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, islice, product

from verifier.kernel.program.program import Node, Program
from verifier.kernel.program.registry import traits
from verifier.kernel.program.types import NOWHERE, Mesh
from verifier.refute.scale_down.fold import each
from verifier.refute.scale_down.literals import FEW

MOST_WAYS = 16
"""Readings of factors that may count entries which are tried."""
MOST = 4
"""Places of one factor that are tried each for itself."""


def counting(given: Mesh, small: Mesh, factors: Collection[Fraction]) -> dict[Fraction, Fraction]:
    """Those factors that may count ranks of the given mesh, with what they are on another."""
    out: dict[Fraction, Fraction] = {}
    for before, after in _products(given, small):
        for factor, other in ((before, after), (1 / before, 1 / after)):
            if factor in factors:
                out.setdefault(factor, other)
    return out


def entries(
    extents: Mapping[int, Collection[int]], *programs: Program
) -> Iterator[dict[Fraction, Fraction]]:
    """Ways in which factors that count entries at the given extents would count them at others.

    A factor counts entries where it, or one over it, is an extent or a product of two that changed.
    So does a number that is added, as zeros that are exponentiated count one each: it may be the
    difference of two extents too.
    """
    choices: list[list[tuple[Fraction, Fraction]]] = []
    added = {abs(f) for p in programs for f in _factors(p, "add_scalar", "full")}
    for factor in sorted({*added, *(abs(f) for p in programs for f in _factors(p, "mul_scalar"))}):
        count = max(factor, 1 / factor)
        if count <= FEW or count.denominator != 1:
            continue
        found = set(extents.get(int(count), ())) or _pairs(extents, int(count))
        found = found or (_differences(extents, int(count)) if factor in added else set())
        after = [Fraction(n) for n in sorted(found) if n]
        if after and after != [count]:
            choices.append([(factor, n if factor > 1 else 1 / n) for n in after])
    for ways in islice(product(*choices), MOST_WAYS):
        if ways:
            yield dict(ways)


def _pairs(extents: Mapping[int, Collection[int]], count: int) -> set[int]:
    """What a product of two extents became."""
    out: set[int] = set()
    for first, after in extents.items():
        if 1 < first <= count // first and count % first == 0 and count // first in extents:
            out |= {a * b for a in after for b in extents[count // first]}
    return out


def _differences(extents: Mapping[int, Collection[int]], count: int) -> set[int]:
    """What the difference of two extents became."""
    pairs = [(after, extents[n - count]) for n, after in extents.items() if n - count in extents]
    return {a - b for after, less in pairs for a in after for b in less if a > b}


def _factors(program: Program, *ops: str) -> Iterator[Fraction]:
    for _, node in program.walk():
        found = _factor(node)
        if found and node.op in ops:
            yield found


def rescaled_all(program: Program, others: Mapping[Fraction, Fraction]) -> Program:
    """A program with other factors in the place of some."""

    def changed(_: Program, node: Node) -> Node:
        found = _factor(node)
        if not found or abs(found) not in others:
            return node
        value = others[abs(found)] * (1 if found > 0 else -1)
        return replace(node, attrs={**node.attrs, "value": value})

    return each(program, changed)


def rescaled(program: Program, mesh: Mesh) -> Iterator[tuple[Fraction, Program]]:
    """A program on a smaller mesh with factors of the given mesh as they would be on its own."""
    for factor, other in _counts(mesh, program.mesh).items():
        places = list(dict.fromkeys(_places(program, factor)))
        for chosen in [set(places), *({p} for p in places[:MOST] if len(places) > 1)]:
            if chosen:
                yield factor, _with(program, factor, other, chosen.__contains__)


def _counts(given: Mesh, small: Mesh) -> dict[Fraction, Fraction]:
    """Numbers of ranks along some mesh dims, and one over them, with what they are on fewer."""
    out: dict[Fraction, Fraction] = {}
    for before, after in _products(given, small):
        if before != after and before > FEW:
            out.setdefault(before, after)
            out.setdefault(1 / before, 1 / after)
    return out


def _products(given: Mesh, small: Mesh) -> Iterator[tuple[Fraction, Fraction]]:
    for length in range(1, len(given.names) + 1):
        for names in combinations(given.names, length):
            yield (
                Fraction(math.prod(given[n] for n in names)),
                Fraction(math.prod(small[n] for n in names)),
            )


def _factor(node: Node) -> Fraction | None:
    value = node.attrs.get("value") if traits(node.op).literal else None
    if isinstance(value, int | Fraction) and not isinstance(value, bool):
        return Fraction(value)
    return None


def place(scope: Program, node: Node) -> Hashable:
    """Where a number is written: alike for copies of one statement, as layers written out are."""
    if node.source != NOWHERE:
        return node.op, str(node.source)
    if not node.inputs:
        return node.op, node.outputs
    made = next((n for n in scope.nodes if node.inputs[0] in n.outputs), None)
    return node.op, "" if made is None else made.op, scope[node.inputs[0]].shape


def _places(program: Program, factor: Fraction) -> Iterator[Hashable]:
    for scope, node in program.walk():
        found = _factor(node)
        if found is not None and abs(found) == factor:
            yield place(scope, node)


def _with(
    program: Program, factor: Fraction, other: Fraction, chosen: Callable[[Hashable], bool]
) -> Program:
    def changed(scope: Program, node: Node) -> Node:
        found = _factor(node)
        if found is None or abs(found) != factor or not chosen(place(scope, node)):
            return node
        return replace(node, attrs={**node.attrs, "value": found / factor * other})

    return each(program, changed)
