"""Factors that both programs hold and that may, in the distributed one, also count ranks.

A program that multiplies by 1/64 because a mean is over 64 entries, and once more because 64 ranks
added equal values, holds no factor that one device does not hold; on 2 ranks it is wrong though it
was right on 64. So a difference on a smaller mesh is tried again with such factors, in one place or
in all, as they would be there. Where it goes away, it says nothing about the given mesh.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

from verifier.ir.program import Node, Program
from verifier.ir.types import NOWHERE, Mesh
from verifier.resize.literals import FEW, SCALARS

MOST = 4
"""Places of one factor that are tried each for itself."""


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
    for length in range(1, len(given.names) + 1):
        for names in combinations(given.names, length):
            before = math.prod(given[n] for n in names)
            after = math.prod(small[n] for n in names)
            if before != after and before > FEW:
                out.setdefault(Fraction(before), Fraction(after))
                out.setdefault(Fraction(1, before), Fraction(1, after))
    return out


def _factor(node: Node) -> Fraction | None:
    value = node.attrs.get("value") if node.op in SCALARS else None
    if isinstance(value, int | Fraction) and not isinstance(value, bool):
        return Fraction(value)
    return None


def _place(scope: Program, node: Node) -> Hashable:
    """Alike for copies of one statement, as for layers or micro-batches written out."""
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
            yield _place(scope, node)


def _with(
    program: Program, factor: Fraction, other: Fraction, chosen: Callable[[Hashable], bool]
) -> Program:
    nodes: list[Node] = []
    for node in program.nodes:
        found = _factor(node)
        if node.body is not None:
            node = replace(node, body=_with(node.body, factor, other, chosen))
        elif found is not None and abs(found) == factor and chosen(_place(program, node)):
            node = replace(node, attrs={**node.attrs, "value": found / factor * other})
        nodes.append(node)
    return replace(program, nodes=tuple(nodes))
