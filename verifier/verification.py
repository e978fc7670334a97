"""`verify(sequential, distributed, contract) -> Verdict`: refute first, relate, then decide."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from synthesis.repair.localize import blame
from verifier.checker.certificate import certificate
from verifier.kernel.contract import Contract, check, output_key
from verifier.domains.base import Array
from verifier.explain import locate
from verifier.explain import relations as every_relation
from verifier.escalate import Unrelated, decide_small, refute_large, smallest
from verifier.kernel.inline import inline
from verifier.kernel.program.program import Program
from verifier.order.legality import illegal, late
from verifier.refute import (
    MAX_ELEMENTS,
    Difference,
    Tried,
    elements_of,
    nowhere_defined,
    refute,
)
from verifier.provers.relate import Rules, lawful, relate_peeled, satisfied
from synthesis.repair import repairs
from verifier.scope import scope_of
from verifier.verdict import Counterexample, Location, Proof, Relation, Unknown, Verdict
from verifier.text.wellformed import shared, well_formed

if TYPE_CHECKING:
    from verifier.reuse.base import Base

Progress = Callable[[str], None]


def _silent(step: str) -> None:
    del step


AGAIN = 6
"""Samples that a program without a relation is run on again: a choice between two values, as in
clipping, shows a fault in some samples only."""
NOWHERE = "no input was found on which the outputs of one device are defined"
WIDE_OPS = 20_000
"""Programs of more ops than this are not related once more in further ways."""
REPAIR_RELATE_S = 0.2
"""Programs that take longer than this to relate once are not searched for repairs."""


def verify(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    *,
    consts: Mapping[str, Array] | None = None,
    fixes: bool = False,
    simpler: bool = True,
    relations: bool = False,
    progress: Progress | None = None,
    remember: list[Base] | None = None,
) -> Verdict:
    """Whether the distributed program computes the one-device program as the contract asks.

    `consts` are values of opaque constants, used when a witness is replayed. With `fixes`, single
    edits are tried on a program that is not proved, and those that are related are named. Without
    `simpler`, the inputs of a witness are left as they were drawn. With `relations`, the verdict
    names what every value was found to be. `remember` is given what `proved_again` needs to prove
    an edited program from a proof by relations.

    A program whose order in time could not be judged is refuted where its numbers are wrong, and
    else Unknown.

    Raises:
        IRError: a program that is not well formed.
        ContractError: a contract that does not fit the programs.
    """
    tell = progress or _silent
    named: list[Relation] = []
    verdict = _decide(
        sequential,
        distributed,
        contract,
        consts,
        fixes,
        simpler,
        tell,
        named if relations else None,
        remember,
    )
    return replace(verdict, relations=tuple(named)) if relations else verdict


def _decide(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    consts: Mapping[str, Array] | None,
    fixes: bool,
    simpler: bool,
    tell: Progress,
    named: list[Relation] | None,
    remember: list[Base] | None,
) -> Verdict:
    stats: dict[str, float] = {}
    start = time.perf_counter()
    sequential = inline(well_formed(shared(sequential)))
    written, renamed = well_formed(shared(distributed)), dict[int, dict[str, str]]()
    distributed = inline(written, names=renamed)
    check(sequential, distributed, contract)
    stuck = illegal(distributed, contract)
    stats["structure_s"] = time.perf_counter() - start
    start = time.perf_counter()
    stuck = stuck or late(distributed)
    stats["time_s"] = time.perf_counter() - start
    if isinstance(stuck, Counterexample):
        return stuck
    start = time.perf_counter()
    difference: Difference | None = None
    size = elements_of(sequential, distributed)
    ran = size <= MAX_ELEMENTS
    if ran:
        tell("refute")
        tried = Tried()
        difference = refute(sequential, distributed, contract, consts, simpler=simpler, tried=tried)
        stats["refuter_samples"] = float(tried.samples)
    stats["refute_s"] = time.perf_counter() - start
    stats["refuter_elements"] = float(size)
    stats["refuter_ran"] = float(stats.get("refuter_samples", 0.0) > 0)
    if ran and difference is None and nowhere_defined(sequential, distributed, contract, consts):
        keys = tuple(output_key(o) for o in sequential.outputs)
        return replace(stuck, stats=stats) if stuck else Unknown(NOWHERE, None, keys, stats=stats)
    tell("relate")
    start = time.perf_counter()
    rules = Rules(distributed.mesh)
    one, related, peels = relate_peeled(sequential, distributed, contract, rules)
    wrong = satisfied(one, distributed, related, contract)
    if named is not None:
        named += every_relation(one, distributed, related)
    stats["relate_s"] = time.perf_counter() - start
    stats["rules_applied"], stats["rules_reused"] = rules.applied, rules.reused
    equal: dict[str, int] = {}
    if wrong and difference is None:
        equal = lawful(one, contract, wrong) or {}
        wrong = {} if equal else wrong
    location = locate(one, distributed, related, contract, wrong) if wrong or difference else None
    offered: tuple[str, ...] = ()
    if wrong and fixes and stats["relate_s"] < REPAIR_RELATE_S:
        tell("repair")
        offered = repairs(one, distributed, contract, related, wrong)
    if not wrong and difference is None:
        if stuck is not None:
            return replace(stuck, stats=stats)
        assumed = (*contract.assumptions, *(str(b) for b in contract.balanced))
        start = time.perf_counter()
        proof = certificate(sequential, distributed, contract, one, related, peels, equal)
        stats["certificate_s"] = time.perf_counter() - start
        stats["outputs"] = len({output_key(o) for o in distributed.outputs})
        scope = scope_of(sequential, distributed)
        if remember is not None and not peels and not equal:
            from verifier.reuse.base import base

            found = one, related, scope, assumed
            remember.append(base(written, distributed, renamed, contract, *found))
        return Proof(scope, assumed, proof, stats)
    if not wrong:
        assert difference is not None
        reason = (
            "the deciders disagree: a difference was replayed on numbers, yet every output was "
            "related; this is a fault of the verifier, please report it"
        )
        return Unknown(reason, location, difference.outputs, stats=stats)
    few = sum(1 for _ in distributed.walk()) <= WIDE_OPS
    if difference is None and few:
        triple = sequential, distributed, contract
        found = _further(*triple, wide=False) or _labelled(*triple, LABELLED[:1])
        if found is not None:
            return replace(stuck or found, stats=stats)
    if difference is None and ran:
        tell("refute again")
        difference = refute(
            sequential, distributed, contract, consts, AGAIN, trials=AGAIN, simpler=simpler
        )
    if difference is None:
        tell("decide")
        start = time.perf_counter()
        keys = {output_key(o) for o in distributed.outputs} - set(wrong)
        held = frozenset(name for name, facts in related.facts.items() if facts)
        open_ = Unrelated(
            sequential,
            distributed,
            contract,
            consts or {},
            tuple(wrong),
            tuple(sorted(keys)),
            held,
            (one, rules),
        )
        second = decide_small(open_) if ran else refute_large(open_)
        stats["decide_s"] = time.perf_counter() - start
        if isinstance(second, str) and few:
            start = time.perf_counter()
            second = _further(sequential, distributed, contract, wide=True) or second
            if isinstance(second, str):
                second = _labelled(sequential, distributed, contract, LABELLED[1:]) or second
            stats["widened_s"] = time.perf_counter() - start
        if isinstance(second, Proof):
            return replace(stuck or second, stats=stats)
        if isinstance(second, str):
            reason = f"no relation to the one-device program was found for every output; {second}"
            return Unknown(reason, location, tuple(wrong), offered, stats=stats)
        difference = second
    broken = bool(related.breaks)
    if difference.place is None and broken and _may_be_copies(distributed, location):
        location, broken = _again(sequential, distributed, contract, location)
    pair = (sequential, distributed, contract) if ran else difference.pair
    fewer = pair is not None and pair[1].mesh != distributed.mesh
    if pair is None or (fewer and difference.place is not None):
        location = difference.place or location
    else:
        sure, held = difference.place is not None, difference.place or location
        location = blame(*pair, held, broken, consts or {}, distributed, certain=sure)
    smaller = smallest(sequential, distributed, contract, difference) if fixes and ran else ""
    return Counterexample(
        str(distributed.mesh),
        difference.witness,
        location,
        difference.outputs,
        offered,
        stats,
        smaller=smaller,
    )


def _further(
    sequential: Program, distributed: Program, contract: Contract, wide: bool
) -> Proof | None:
    """A proof by the further ways to relate values, where nothing refutes the programs: by shares
    alone, or by all of them."""
    rules = Rules(distributed.mesh, wide, sharing=True)
    one, related, peels = relate_peeled(sequential, distributed, contract, rules)
    wrong = satisfied(one, distributed, related, contract)
    equal = (lawful(one, contract, wrong) if wrong else None) or {}
    if wrong and not equal:
        return None
    assumed = (*contract.assumptions, *(str(b) for b in contract.balanced))
    proof = certificate(sequential, distributed, contract, one, related, peels, equal)
    return Proof(scope_of(sequential, distributed), assumed, proof)


def _may_be_copies(distributed: Program, found: Location | None) -> bool:
    """Whether an op is refused for the layout of copies, which further ways read as pieces."""
    few = sum(1 for _ in distributed.walk()) <= FEW_OPS
    return few and found is not None and found.op == "bmm" and "differently" in found.reason


def _again(
    sequential: Program, distributed: Program, contract: Contract, found: Location | None
) -> tuple[Location | None, bool]:
    """The place of a difference where the further ways relate what the plain rules do not, and
    whether an op is left that no rule admits."""
    rules = Rules(distributed.mesh, wide=True)
    one, related, _ = relate_peeled(sequential, distributed, contract, rules)
    breaks = [b for b in related.breaks if b.path or not related.facts.get(b.node.outputs[0])]
    related.breaks[:] = breaks
    wrong = satisfied(one, distributed, related, contract)
    if not wrong:
        return found, True
    return locate(one, distributed, related, contract, wrong) or found, bool(breaks)


LABELLED = ((False, False), (True, False), (True, True))
"""Ways to relate opened cross entropies, cheapest first: by the further ways too, and with shifts
taken out of lookups."""


def _labelled(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    ways: Sequence[tuple[bool, bool]],
) -> Proof | None:
    """A proof for labels that name a class, or are the one that is ignored, and no others."""
    from verifier.provers.cross_entropy import open_entropy

    opened, labels = open_entropy(sequential, unmarked=True)
    if not labels:
        return None
    for wide, bare in ways:
        opened = open_entropy(sequential, unmarked=True, bare=True)[0] if bare else opened
        rules = Rules(distributed.mesh, wide, sharing=True)
        one, related, peels = relate_peeled(opened, distributed, contract, rules)
        wrong = satisfied(one, distributed, related, contract)
        equal = (lawful(one, contract, wrong) if wrong else None) or {}
        if (not wrong or equal) and not peels:
            break
    else:
        return None
    assumed = (*contract.assumptions, *(str(b) for b in contract.balanced), *labels)
    proof = certificate(
        sequential, distributed, contract, one, related, peels, equal, opened=opened
    )
    return Proof(scope_of(sequential, distributed), assumed, proof)


FEW_OPS = 80
"""Programs of more ops are not related in further ways to place a difference."""
