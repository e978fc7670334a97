"""Where relations end: small programs are compared element by element, large ones at small extents.

Each answer is a verdict's worth, or a sentence that says why there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shardproof.verifier.explain import place
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.relate.rules import Rules, initial, satisfied
from shardproof.verifier.provers.relate.walk import relate, relate_peeled
from shardproof.verifier.provers.sequential import Sequential
from shardproof.verifier.refute.compare import Difference
from shardproof.verifier.refute.search import refute
from shardproof.verifier.verdict import Proof, Unknown

if TYPE_CHECKING:
    from shardproof.verifier.provers.scalars.answers import Undecided
    from shardproof.verifier.refute.scale_down.refuting import SmallDifference

Compared = Callable[[bool], "Proof | Unknown | Undecided"]
"""What comes of comparing all elements, large constants taken for masks or not."""


@dataclass(frozen=True)
class Unrelated:
    """Two programs in primitive ops, and the outputs for which no relation was found."""

    problem: Problem
    outputs: tuple[str, ...]
    related: tuple[str, ...] = ()
    """The outputs for which one was found."""
    values: frozenset[str] = frozenset()
    """The values for which one was found."""
    walked: tuple[Sequential, Rules] | None = None
    """The one-device program as terms, cut as needed, and the rules that were applied."""

    def relates(self, p: Problem) -> frozenset[str]:
        """The values of a distributed program for which there is a relation."""
        many = p.distributed
        if many is self.problem.distributed:
            return self.values
        facts = relate_peeled(p.sequential, many, p.contract, Rules(many.mesh))[1].facts
        return frozenset(name for name, found in facts.items() if found)

    def holds(self, one: Program, many: Program, contract: Contract) -> bool:
        """Whether every output is related."""
        if one is self.problem.sequential and self.walked is not None:
            terms, rules = self.walked
            rules.peeling = False
            related = relate(terms, many, initial(contract, terms, many), contract, rules)
        else:
            terms, related, _ = relate_peeled(one, many, contract, Rules(many.mesh))
        return not satisfied(terms, many, related, contract)


def decide_small(given: Unrelated, compared: Compared) -> Proof | Unknown | Difference | str:
    """Every element of every output as an expression of the inputs, at the extents at hand; what is
    not shown to be equal is run on numbers."""
    from shardproof.verifier.provers.scalars.answers import Undecided

    p, why = given.problem, ""
    if p.contract.balanced:
        return "what the contract assumes cannot be used element by element"
    for masks in (False, True):
        found = compared(masks)
        if not isinstance(found, Undecided):
            return found
        why = why or f"element by element: {found.reason}"
        if found.case is not None:
            differs = refute(replace(p, consts=found.case))
            if differs is not None:
                return Difference(differs.witness, (differs.witness.output,))
    return why


def refute_large(given: Unrelated) -> Difference | str:
    """The programs at small extents, run on numbers."""
    from shardproof.verifier.refute.scale_down.refuting import refute_resized
    from shardproof.verifier.refute.scale_down.substitution import proved_otherwise, shows_too
    from shardproof.verifier.refute.scale_down.system import Declined

    p = given.problem
    other = proved_otherwise(p.sequential, p.distributed, p.contract, given.holds)
    why = ""
    for counting in dict.fromkeys(((), other.counting)) if other else ((),):
        found = refute_resized(
            p,
            relates=None if other else given.relates,
            proved=given.related,
            counting=counting,
        )
        if found is None:
            why = "the programs are too large to run, and equal on numbers at smaller extents"
        elif isinstance(found, Declined):
            why = f"the programs are too large to run on numbers: {found}"
        elif other is not None and shows_too(found, other, given.holds):
            return replace(as_witnessed(found), place=place(other.nodes[0], str(other)))
        elif other is None and not found.caveats:
            return as_witnessed(found)
        else:
            doubts = "; ".join(found.caveats) or "with another number they may be too"
            why = f"the programs differ {found}, which need not mean much: {doubts}"
    return why


def as_witnessed(found: SmallDifference) -> Difference:
    """The difference with the sizes at which it shows, and its rank on the mesh that was given."""
    here, kept = found.difference.witness, found.resized.kept
    rank = {name: kept[name][at] if name in kept else at for name, at in here.rank.items()}
    witness = replace(here, sizes=str(found), rank=rank)
    return Difference(witness, found.difference.outputs, small=found.resized.problem)


def smallest(problem: Problem, found: Difference) -> str:
    """The difference where it shows on the smallest mesh and at the smallest extents, in words."""
    from shardproof.verifier.refute.scale_down.refuting import shrink

    small = shrink(problem, found)
    if small is None:
        return ""
    w = small.difference.witness
    rank = ", ".join(f"{name}={at}" for name, at in w.rank.items())
    shown = f"{w.output}{list(w.index)} on rank {rank}: got {w.got:.6g}, expected {w.expected:.6g}"
    return f"{shown} {small}"
