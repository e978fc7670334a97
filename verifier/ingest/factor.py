"""One number of one op of one rank, in programs too large to run: whether another would be wrong.

On a smaller mesh a number may be wrong that was right, as 1/64 is for a mean over 64 ranks; so
numbers that one program alone has leave a verdict open (`verifier/resize`). Not so where the same
programs with the number of the ranks around are *proved*: then the number at hand stands in the
place of one that is right there. docs/soundness.md gives the argument.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np

from verifier.contract import Contract, check, output_key
from verifier.domains.base import Array
from verifier.fallback import Unrelated, as_witnessed, resized_difference
from verifier.ingest.choices import loses_nothing, shows_in_both
from verifier.ingest.fold import folded
from verifier.inline import inline
from verifier.ir.program import Node, Program
from verifier.ir.types import Mesh
from verifier.ir.where import members
from verifier.legality import illegal
from verifier.refute import too_large
from verifier.relate import Rules, relate_peeled, satisfied
from verifier.resize import SmallDifference
from verifier.resize.literals import ONE_SIDED, counts_entries, factors
from verifier.verdict import Counterexample
from verifier.wellformed import shared, well_formed


def refuted_by_factor(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    consts: Mapping[str, Array] | None,
    rank: int,
    numbers: tuple[Fraction, Fraction],
) -> Counterexample | None:
    """A difference at small extents that is one at the given extents; None where none is found.

    Args:
        sequential, distributed, contract, consts: as `verifier.verify` takes them.
        rank: the rank that has one number of one op otherwise than the ranks around it.
        numbers: what they have there, and what it has.

    Raises:
        IRError, ContractError: as `verifier.verify`.
    """
    start = time.perf_counter()
    one, many = (inline(well_formed(shared(p))) for p in (sequential, distributed))
    check(one, many, contract)
    if not too_large(one, many) or illegal(many, contract) is not None:
        return None
    right = with_factor(many, rank, numbers)
    if right is None or factors(one) != factors(right):
        return None
    if not loses_nothing(shared(distributed), alone(rank, numbers[1], many.mesh)):
        return None
    if counts_entries(one) or counts_entries(right) or _open(one, right, contract)[0]:
        return None
    wrong, held = _open(one, many, contract)
    if not wrong:
        return None
    proved = {output_key(o) for o in many.outputs} - wrong
    found = resized_difference(
        Unrelated(one, many, contract, consts or {}, tuple(wrong), tuple(sorted(proved)), held)
    )
    if not isinstance(found, SmallDifference):
        return None
    if not all(caveat.startswith(ONE_SIDED) for caveat in found.caveats):
        return None
    if not _right_too(found, rank, many, numbers):
        return None
    shown = as_witnessed(found)
    stats = {"decide_s": time.perf_counter() - start}
    return Counterexample(str(many.mesh), shown.witness, None, shown.outputs, stats=stats)


def _open(one: Program, many: Program, contract: Contract) -> tuple[set[str], frozenset[str]]:
    """The outputs that are not related, and the values that are."""
    terms, related, _ = relate_peeled(one, many, contract, Rules(many.mesh))
    wrong = satisfied(terms, many, related, contract)
    return set(wrong), frozenset(name for name, facts in related.facts.items() if facts)


def _right_too(
    found: SmallDifference, rank: int, many: Program, numbers: tuple[Fraction, Fraction]
) -> bool:
    """Whether the small programs are related once the number is that of the ranks around, and those
    at hand differ from them in any choice."""
    small = found.resized
    coords = many.mesh.coords()[rank]
    here = {n: small.kept[n].index(c) if n in small.kept else c for n, c in coords.items()}
    where = next(r for r, c in enumerate(small.distributed.mesh.coords()) if c == here)
    mesh, inputs = small.distributed.mesh, found.difference.inputs
    right = _exchanged(small.distributed, where, numbers)
    if right is None:
        return False
    whole = folded(right)
    if whole is None or _open(small.sequential, whole, small.contract)[0]:
        return False
    seeds = alone(where, numbers[1], mesh), alone(where, numbers[0], mesh)
    with np.errstate(all="ignore"):
        return shows_in_both(small.distributed, right, seeds, small.contract, inputs)


def with_factor(program: Program, rank: int, numbers: tuple[Fraction, Fraction]) -> Program | None:
    """The program with the first number in place of the second, in the one node that this rank
    alone runs and that has it; None where there are more such nodes, or none."""
    out = _exchanged(program, rank, numbers)
    return None if out is None else folded(out)


def alone(rank: int, value: Fraction, mesh: Mesh) -> Callable[[Node], bool]:
    """Tells the nodes that this rank alone runs and that have this number."""

    def found(node: Node) -> bool:
        here = node.attrs.get("value")
        if not isinstance(here, int | Fraction) or isinstance(here, bool) or here != value:
            return False
        return bool(node.where) and members(node.where, mesh) == [rank]

    return found


def _exchanged(program: Program, rank: int, numbers: tuple[Fraction, Fraction]) -> Program | None:
    want, got = numbers
    mine, places = alone(rank, got, program.mesh), list[Node]()

    def changed(inner: Program) -> Program:
        nodes: list[Node] = []
        for node in inner.nodes:
            if node.body is not None:
                body = changed(node.body)
                nodes.append(node if body is node.body else replace(node, body=body))
            elif mine(node):
                places.append(node)
                nodes.append(replace(node, attrs={**node.attrs, "value": want}))
            else:
                nodes.append(node)
        if all(a is b for a, b in zip(nodes, inner.nodes, strict=True)):
            return inner
        return replace(inner, nodes=tuple(nodes))

    out = changed(program)
    return out if len(places) == 1 else None
