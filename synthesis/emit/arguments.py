"""What a module takes of all heads, as its rank's share of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from operator import mul

from shardproof.synthesis.emit.extents import differing
from shardproof.synthesis.emit.facts import ModelFacts
from shardproof.synthesis.planner.plan import LocalExtent, Plan


@dataclass(frozen=True, slots=True)
class ArgumentChange:
    """The module at `path` takes its rank's share of an argument, along a dim."""

    path: str
    at: int | str
    """Its position, or the name that it is given by."""
    dim: int
    group: int = 0
    """Of every so many entries of the dim, where there are several such groups."""


def argument_changes(facts: ModelFacts, plan: Plan) -> Iterator[ArgumentChange]:
    """Those of a plan, of arguments that facts know. A table of the same shape that a module makes
    itself is none."""
    for extent in plan.arguments:
        fact = facts.find(extent.module)
        same = [a for a in fact.arguments if _is_of(a.shape, extent, plan)] if fact else []
        if len(same) == 1:
            (given,) = same
            at = given.name if given.position < 0 else given.position
            yield ArgumentChange(extent.module, at, *_place(extent))


def _is_of(shape: tuple[int, ...], extent: LocalExtent, plan: Plan) -> bool:
    """Whether a shape is that of one device, of what each rank has of its rows of the batch."""
    ranks = plan.batch_ranks
    pairs = zip(shape, extent.before, strict=False)
    return len(shape) == len(extent.before) and all(a in (b, b * ranks) for a, b in pairs)


def _place(extent: LocalExtent) -> tuple[int, int]:
    """The dim of an argument that holds the heads, and how many entries of it are one group."""
    (at,) = differing(extent)
    ahead = prod(extent.whole[:at])
    ends = enumerate(pairwise(accumulate(extent.before, mul, initial=1)))
    dim, until = next((d, stop) for d, (start, stop) in ends if start <= ahead < stop)
    group = until // ahead
    return dim, 0 if group == extent.before[dim] else group
