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
    """Those of a plan, of arguments that facts know: of the same shape, or of more than the module
    cuts out. A table of such a shape that a module makes itself is none."""
    for extent in plan.arguments:
        fact, (dim, group) = facts.find(extent.module), _place(extent)
        given = [a for a in fact.arguments if len(a.shape) == len(extent.before)] if fact else []
        for is_cut in (False, True):
            same = [a for a in given if _is_of(a.shape, extent, dim, plan.batch_ranks, is_cut)]
            if len(same) == 1:
                at = same[0].name if same[0].position < 0 else same[0].position
                yield ArgumentChange(extent.module, at, dim, group)
            if same:
                break


def _is_of(
    shape: tuple[int, ...], extent: LocalExtent, heads: int, ranks: int, is_cut: bool
) -> bool:
    """Whether a shape is that of one device, of what each of the ranks that share the batch has of
    its rows. Of what is cut, other dims than that of the heads may be longer."""
    return all(
        a in (b, b * ranks) or (is_cut and dim != heads and a > b > 1)
        for dim, (a, b) in enumerate(zip(shape, extent.before, strict=True))
    )


def _place(extent: LocalExtent) -> tuple[int, int]:
    """The dim of an argument that holds the heads, and how many entries of it are one group."""
    (at,) = differing(extent)
    ahead = prod(extent.whole[:at])
    ends = enumerate(pairwise(accumulate(extent.before, mul, initial=1)))
    dim, until = next((d, stop) for d, (start, stop) in ends if start <= ahead < stop)
    group = until // ahead
    return dim, 0 if group == extent.before[dim] else group
