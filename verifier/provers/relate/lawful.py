"""Outputs whose term is another one than asked for, and equal to it by laws of tensor algebra."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from verifier.kernel.contract import Contract, output_key
from verifier.kernel.program.where import EVERYWHERE, within
from verifier.provers.relate.facts import Fact
from verifier.provers.rewrite.search import Budget, same_terms
from verifier.provers.rewrite.steps import Path, written
from verifier.provers.sequential import Sequential

LIMIT = Budget(steps=6_000, seconds=4.0)
"""What the laws may use for all outputs together; the steps are those of one pair of terms."""


@dataclass(frozen=True, slots=True)
class Lawful:
    """The fact about an output that laws take to what is asked of it."""

    index: int
    steps: tuple[tuple[str, Path], ...]
    """From the fact's term and the one asked for to one term."""


def lawful(
    sequential: Sequential, contract: Contract, wrong: Mapping[str, list[Fact]]
) -> dict[str, Lawful] | None:
    """For every wrong output the fact that laws take to what is asked. None where one has none.

    The laws are equalities for all values at the extents of the terms (`verifier/provers/rewrite`).
    """
    if not all(wrong.values()):
        return None
    wanted = {output_key(o): sequential.values[o.value] for o in sequential.program.outputs}
    end = time.monotonic() + LIMIT.seconds
    terms, chosen = sequential.terms, dict[str, Lawful]()
    for key, facts in wrong.items():
        layout, where = contract.outputs[key], contract.wanted.get(key, EVERYWHERE)
        for index, fact in enumerate(facts):
            if fact.layout != layout or not within(where, fact.where):
                continue
            left = replace(LIMIT, seconds=end - time.monotonic())
            if found := same_terms(terms, fact.ref, wanted[key], left):
                steps = written(terms, fact.ref, wanted[key], found.steps)
                chosen[key] = Lawful(index, tuple(steps))
                break
        if key not in chosen:
            return None
    return chosen
