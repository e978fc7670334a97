"""Factors that both programs hold and that may, in the distributed one, also count ranks.

A program that multiplies by 1/64 because a mean is over 64 entries, and once more because 64 ranks
added equal values, holds no factor that one device does not hold; on 2 ranks it is wrong though it
was right on 64. So a difference on a smaller mesh is tried again with such factors, in one place or
in all, as they would be there. Where it goes away, it says nothing about the given mesh.
"""

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, islice, product

from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.registry import lookup
from shardproof.verifier.kernel.program.types import NOWHERE, Mesh
from shardproof.verifier.ops import facets
from shardproof.verifier.refute.scale_down.fold import each
from shardproof.verifier.refute.scale_down.literals import FEW, literal

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
    extents: Mapping[int, Collection[int]], *pairs: tuple[Program, Program]
) -> Iterator[dict[Fraction, Fraction]]:
    """Ways in which factors that count entries at the given extents would count them at others.

    A factor counts entries where it, or one over it, is an extent or a product of two that changed.
    So does a number that is added, as zeros that are exponentiated count one each: it may be the
    difference of two extents too. Where all that has the factor are means, it counts what they are
    of.

    Args:
        extents: what those of each size became.
        pairs: each program at the given extents, and as it was written at others.
    """
    programs = [after for _, after in pairs]
    choices: list[list[tuple[Fraction, Fraction]]] = []
    added = {abs(f) for p in programs for f in _factors(p, "add_scalar", "full")}
    for factor in sorted({*added, *(abs(f) for p in programs for f in _factors(p, "mul_scalar"))}):
        count = max(factor, 1 / factor)
        if count <= FEW or count.denominator != 1:
            continue
        found = set(extents.get(int(count), ())) or _pairs(extents, int(count))
        found = found or (_differences(extents, int(count)) if factor in added else set())
        if len(found) > 1 and factor < 1 and factor not in added:
            found = _averaged(int(count), pairs) or found
        after = [Fraction(n) for n in sorted(found) if n]
        if after and after != [count]:
            choices.append([(factor, n if factor > 1 else 1 / n) for n in after])
    for ways in islice(product(*choices), MOST_WAYS):
        if ways:
            yield dict(ways)


def _averaged(count: int, pairs: Iterable[tuple[Program, Program]]) -> set[int]:
    """How many entries the means became of that are of so many at the given extents; none where one
    over that is a factor of anything else."""
    out, seen, factor = set[int](), set[int](), Fraction(1, count)
    for before, after in pairs:
        for (given, node), (other, _) in zip(before.walk(), after.walk(), strict=True):
            if id(node) in seen:
                continue
            seen.add(id(node))
            if (_factor(node) or 0) not in (factor, -factor):
                continue
            many, one = _mean(given, node) if node.inputs else ("", "")
            size = given.types[one].size if one else 0
            if not size or given.types[many].size != count * size:
                return set()
            out.add(other.types[many].size // other.types[one].size)
    return out


def _mean(scope: Program, node: Node) -> tuple[str, str]:
    """What is added up and then multiplied by the factor, with its sum; or what the product is
    copied to as its derivative, with the product."""
    made = next((n for n in scope.nodes if node.inputs[0] in n.outputs), None)
    if made is not None and lookup(made.op).kind == "reduce" and facets(made.op).adds:
        return made.inputs[0], made.outputs[0]
    copy = node.outputs[0]
    while scope.types[copy].size == scope.types[node.outputs[0]].size:
        read = [n for n in scope.nodes if copy in n.inputs]
        if len(read) != 1 or lookup(read[0].op).kind != "view":
            return "", ""
        (copy,) = read[0].outputs
    return copy, node.outputs[0]


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
    for _, node in program.distinct():
        found = _factor(node) if node.op in ops else None
        if found:
            yield found


def rescaled_all(
    program: Program,
    others: Mapping[Fraction, Fraction],
    chosen: Collection[Hashable] | None = None,
) -> Program:
    """A program with other factors in the place of some, in all places or in those chosen."""

    def changed(scope: Program, node: Node) -> Node:
        found = _factor(node)
        if not found or abs(found) not in others:
            return node
        if chosen is not None and place(scope, node) not in chosen:
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
                yield factor, rescaled_all(program, {factor: other}, chosen)


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
    return literal(node) if "value" in node.attrs else None


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
