"""Numbers that only the distributed program has: whether another in their place is proved right.

On a smaller mesh a number may be wrong that was right, as 1/64 is for a mean over 64 ranks; so a
number of one program alone leaves a difference at small extents in doubt. Not so where the same
program with another number in its place is *proved* at the given extents: then the number at hand
stands in the place of one that is right there. docs/proofs.md gives the argument.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain

import numpy as np

from shardproof.verifier.domains.base import Array
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.where import common
from shardproof.verifier.kernel.rank_sets import Regions, regions
from shardproof.verifier.ops import facets
from shardproof.verifier.refute.dedup import BudgetError
from shardproof.verifier.refute.premises import Premises
from shardproof.verifier.refute.sampling import ROOTED, rooted
from shardproof.verifier.refute.scale_down.fold import each, folded, renamed, same, with_body
from shardproof.verifier.refute.scale_down.literals import (
    ONE_SIDED,
    counts_entries,
    factors,
    literal,
)
from shardproof.verifier.refute.scale_down.mesh_constants import counting, place
from shardproof.verifier.refute.scale_down.refuting import SmallDifference
from shardproof.verifier.refute.scale_down.resized import Resized
from shardproof.verifier.refute.scale_down.saturation import loses_nothing, shows_in_both

Holds = Callable[[Program, Program, Contract], bool]
"""Whether every output of a distributed program is related to the one-device program."""
MAX_ODD = 3
"""Numbers that are tried, and for each of them so many others in its place."""
LITTLE = ((2.0**-10, True), (2.0**-20, True))
"""Further inputs on which both choices are looked at, besides those of `sampling.ROOTED`."""


@dataclass(frozen=True)
class Replacement:
    """Another number in the place of one, with which the distributed program is proved."""

    nodes: tuple[Node, ...]
    """That have the number, at the given extents; at others they are called the same."""
    odd: Fraction
    other: Fraction
    beside: bool = False
    """Whether other ranks have the other number in the same place."""
    counting: tuple[Fraction, ...] = ()
    """Numbers that only the distributed program has besides and that may count ranks."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(n.outputs[0] for n in self.nodes)

    def __str__(self) -> str:
        return f"with {self.other} in place of {self.odd} every output is proved"


def proved_otherwise(
    sequential: Program, distributed: Program, contract: Contract, holds: Holds
) -> Replacement | None:
    """A number that only the distributed program has, and one with which it is proved.

    Args:
        sequential, distributed, contract: as given, in primitive ops.
        holds: decides by relations, which no extents limit.
    """
    others = list(_others(sequential, distributed))
    if not others or counts_entries(sequential) or counts_entries(distributed):
        return None
    for tried in others:
        right = _exchanged(distributed, tried)
        if right is None:
            continue
        if not _held(sequential, right, tried, contract, holds):
            continue
        if not loses_nothing(distributed, _having(tried.names, tried.odd)):
            return None
        more = factors(right) - factors(sequential)
        return replace(tried, counting=tuple(counting(distributed.mesh, distributed.mesh, more)))
    return None


def shows_too(found: SmallDifference, tried: Replacement, holds: Holds) -> bool:
    """Whether the small programs are related once the other number stands there, and those at hand
    differ from them in any choice; and whether nothing else speaks against the difference.

    Args:
        found: what differs at small extents.
        tried: the number, and what stands in its place.
        holds: decides by relations.
    """
    small, p = found.resized, found.resized.problem
    tried = replace(tried, odd=small.counted.get(tried.odd, tried.odd))
    right = _exchanged(p.distributed, tried)
    if right is None or not all(caveat.startswith(ONE_SIDED) for caveat in found.caveats):
        return False
    if not _held(p.sequential, right, tried, p.contract, holds):
        return False
    seeds = _having(tried.names, tried.odd), _having(tried.names, tried.other)
    try:
        with np.errstate(all="ignore"):
            inputs = chain((found.difference.inputs,), _further(small))
            pair, key = (p.distributed, right), found.difference.witness.output
            return shows_in_both(*pair, seeds, p.contract, inputs, key)
    except BudgetError:
        return False


def _further(small: Resized) -> Iterator[dict[str, Array]]:
    """Further inputs of small programs, some so small that what is added to a norm
    that is divided by counts beside it."""
    rng = np.random.default_rng(0)
    p = small.problem
    premises = Premises(p.sequential, p.contract, p.distributed.mesh)
    for drawn in rooted(p.sequential, {}, 0, (*LITTLE, *ROOTED)):
        inputs = premises.met(drawn, Floats(), rng)
        if inputs is not None:
            yield inputs


def _others(one: Program, many: Program) -> Iterator[Replacement]:
    """The nodes that have a number of the distributed program alone, and what else may stand there:
    what other ranks have in the same place, what one device has in no other, or nothing."""
    ours, theirs = factors(one), factors(many)
    for odd in sorted(theirs - ours)[:MAX_ODD]:
        places: dict[Hashable, list[tuple[Program, Node]]] = {}
        for scope, node in many.walk():
            value = literal(node)
            if value is not None and abs(value) == odd:
                places.setdefault((value, node.op, place(scope, node)), []).append((scope, node))
        alone = list(places.values()) if len(places) > 1 else []
        together = [found for group in places.values() for found in group]
        for chosen in (together, *alone[:MAX_ODD]):
            yield from _in_place(chosen, ours - theirs)


def _in_place(
    chosen: Sequence[tuple[Program, Node]], missing: Collection[Fraction]
) -> Iterator[Replacement]:
    nodes = tuple(n for _, n in chosen)
    first, value = nodes[0], literal(nodes[0])
    if value is None or any(n.op != first.op or literal(n) != value for n in nodes):
        return
    sign = 1 if value > 0 else -1
    nothing = facets(first.op).nothing
    nothing = Fraction(sign) if nothing is None else nothing
    beside = _beside(*chosen[0])
    plain = (*(sign * f for f in missing), nothing)
    tried = dict.fromkeys((*beside, *plain) if first.inputs else (*plain, *beside))
    for other in list(tried)[:MAX_ODD]:
        yield Replacement(nodes, value, other, other in beside)


def _beside(scope: Program, node: Node) -> list[Fraction]:
    """What other ranks have where this node has its number."""
    alike = (n for n in scope.nodes if n.op == node.op and n.inputs == node.inputs)
    apart = (n for n in alike if common(n.where, node.where) is None)
    return [v for n in apart if (v := literal(n)) is not None]


def _having(names: Collection[str], value: Fraction) -> Callable[[Node], bool]:
    return lambda node: node.outputs[0] in names and literal(node) == value


def _held(
    one: Program, right: Program, tried: Replacement, contract: Contract, holds: Holds
) -> bool:
    """Whether the program is related, what ranks do alike written once: with the other number as it
    stands, or without the nodes that then change nothing."""
    plain = _plain(right, regions(right), _having(tried.names, tried.other), {})
    versions = (right,) if plain is right else (right, plain) if tried.beside else (plain, right)
    wholes = map(folded, versions)
    return any(whole is not None and holds(one, whole, contract) for whole in wholes)


def _exchanged(program: Program, tried: Replacement) -> Program | None:
    """The program with the other number in these nodes; None where one of them is not there."""
    mine, seen = _having(tried.names, tried.odd), set[str]()

    def changed(_: Program, node: Node) -> Node:
        if not mine(node):
            return node
        seen.add(node.outputs[0])
        return replace(node, attrs={**node.attrs, facets(node.op).literal: tried.other})

    out = each(program, changed)
    return out if seen == set(tried.names) else None


Bodies = dict[tuple[int, int], tuple[Regions, Program]]
"""What became of blocks, by their identity and that of their regions, which stay alive here."""


def _plain(
    program: Program, places: Regions, mine: Callable[[Node], bool], bodies: Bodies
) -> Program:
    """The program without the nodes of these that change nothing, as a factor of 1. A block that
    several nodes share stays shared."""
    names: dict[str, str] = {}
    nodes: list[Node] = []
    for old in program.nodes:
        node = renamed(old, names)
        if node.body is not None:
            inside = places.inside(old)
            key = id(node.body), id(inside)
            if key not in bodies:
                bodies[key] = inside, _plain(node.body, inside, mine, bodies)
            node = with_body(node, bodies[key][1])
        elif mine(node) and facets(node.op).nothing == literal(node):
            (out,), (value,) = node.outputs, node.inputs
            if places.values[out] == places.values[value]:
                names[out] = value
                continue
            node = replace(node, op="only", attrs={}, where=places.values[out])
        nodes.append(node)
    if not names and same(nodes, program.nodes):
        return program
    outputs = tuple(replace(o, value=names.get(o.value, o.value)) for o in program.outputs)
    types = {v: t for v, t in program.types.items() if v not in names}
    return replace(program, nodes=tuple(nodes), outputs=outputs, types=types)
