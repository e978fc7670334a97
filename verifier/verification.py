"""`verify(problem) -> Verdict`: order in time, numbers, then one prover after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from shardproof.verifier.analysis.garbage import no_collection
from shardproof.verifier.certify import certificate
from shardproof.verifier.checker import Prepared, Rejected, prepare, prove
from shardproof.verifier.checker.certificate import sealed
from shardproof.verifier.escalate import Unrelated, decide_small, refute_large
from shardproof.verifier.explain import locate, relations as every_relation
from shardproof.verifier.kernel.contract import Contract, check, output_key
from shardproof.verifier.kernel.peeling import Peel
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.order.legality import illegal, ordered
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.relate.facts import Fact, Related
from shardproof.verifier.provers.relate.rules import Rules, equal_otherwise, satisfied
from shardproof.verifier.provers.relate.walk import relate_peeled
from shardproof.verifier.provers.scalars.answers import Undecided
from shardproof.verifier.provers.sequential import Sequential
from shardproof.verifier.refute.compare import Difference
from shardproof.verifier.refute.search import (
    MAX_ELEMENTS,
    Tried,
    elements_of,
    nowhere_defined,
    overflows,
    refute,
)
from shardproof.verifier.verdict import Counterexample, Location, Proof, Relation, Unknown, Verdict

if TYPE_CHECKING:
    from shardproof.verifier.provers.cross_entropy import Form
    from shardproof.verifier.smt.answers import Answers

Progress = Callable[[str], None]


def _silent(step: str) -> None:
    del step


AGAIN = 6
"""Samples that a program without a relation is run on again: a choice between two values, as in
clipping, shows a fault in some samples only."""
NOWHERE = "no input was found on which the outputs of one device are defined"
DISAGREE = (
    "the deciders disagree: a difference was replayed on numbers, yet every output was related; "
    "this is a fault of the verifier, please report it"
)
OVERFLOW = (
    "every output is related, but integers of more than 64 bits are outside the proof, and on the "
    "inputs that were tried one overflows and an output differs; keep the integers below 2^63"
)
REJECTED = (
    "the checker rejects the certificate of a proof, at {}: {}; this is a fault of the verifier, "
    "please report it"
)
WIDE_OPS = 20_000
"""Programs of more ops than this are not related once more in further ways."""


def verify(
    problem: Problem,
    *,
    simpler: bool = True,
    relations: bool = False,
    progress: Progress | None = None,
) -> Verdict:
    """Whether the distributed program computes the one-device program as the contract asks.

    Without `simpler`, the inputs of a witness are left as they were drawn. With `relations`, the
    verdict names what every value was found to be.

    A program whose order in time could not be judged is refuted where its numbers are wrong, and
    else Unknown.

    Raises:
        IRError: a program that is not well formed.
        ContractError: a contract that does not fit the programs.
    """
    return examine(problem, simpler=simpler, relations=relations, progress=progress).verdict


@no_collection()
def examine(
    problem: Problem,
    *,
    simpler: bool = True,
    relations: bool = False,
    progress: Progress | None = None,
    discharge: Answers | None = None,
) -> Examination:
    """As `verify`, with what was found on the way: what a diagnosis of the verdict starts from.

    With `discharge`, Z3 is asked about the steps of a proof.
    """
    run = Examination(problem, simpler, progress or _silent, discharge)
    found = next((v for step in STEPS if (v := step(run)) is not None), None)
    verdict = run.unknown() if found is None else found
    named = tuple(run.relations()) if relations else ()
    run.verdict = replace(verdict, stats=run.stats, relations=named)
    return run


@dataclass(frozen=True)
class Walk:
    """The distributed program related to the one-device program, value by value."""

    one: Sequential
    related: Related
    peels: tuple[Peel, ...]
    rules: Rules
    wrong: dict[str, list[Fact]]
    """By output that is not as the contract asks, what was found of it."""
    equal: dict[str, int]
    """Outputs that are equal in index notation alone, with the fact about each."""

    @property
    def holds(self) -> bool:
        return not self.wrong or bool(self.equal)

    def with_keys(self, contract: Contract) -> Walk:
        """With outputs compared in index notation, where some are not related."""
        equal = equal_otherwise(self.one, contract, self.wrong) if self.wrong else None
        return replace(self, equal=equal or {})


def walk(
    problem: Problem, *, wide: bool = False, sharing: bool = True, pieces: bool = True
) -> Walk:
    """Relate a problem in primitive ops.

    With `sharing`, what all ranks hold may be read as shares of a sum; `wide` tries all further
    ways, of which `pieces` tells pieces apart where other readings give something too.
    """
    rules = Rules(problem.distributed.mesh, wide, sharing)
    rules.pieces = pieces
    one, related, peels = relate_peeled(
        problem.sequential, problem.distributed, problem.contract, rules
    )
    wrong = satisfied(one, problem.distributed, related, problem.contract)
    return Walk(one, related, peels, rules, wrong, {})


@dataclass
class Examination:
    """One problem on its way to a verdict."""

    given: Problem
    simpler: bool = True
    tell: Progress = _silent
    discharge: Answers | None = None
    stats: dict[str, float] = field(default_factory=dict[str, float])
    prepared: Prepared = field(init=False)
    stuck: Unknown | None = None
    """Why the order in time is not known."""
    order: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """What shows that events are in order."""
    ran: bool = False
    """Whether the programs are small enough to be run on numbers."""
    difference: Difference | None = None
    walked: Walk | None = None
    shares: Walk | None = None
    """With what all ranks hold read as shares of a sum, where that may relate more."""
    opened: tuple[Walk, Program] | None = None
    """A walk that holds of the one-device program with cross entropies opened."""
    furthest: Walk | None = None
    """By further ways, where these were tried."""
    location: Location | None = None
    reason: str = ""
    """Why the last decider found neither."""
    verdict: Verdict = field(init=False)

    @contextmanager
    def timed(self, name: str) -> Generator[None]:
        start = time.perf_counter()
        yield
        self.stats[name] = self.stats.get(name, 0.0) + time.perf_counter() - start

    @property
    def problem(self) -> Problem:
        """In primitive ops."""
        return self.prepared.problem

    def proof(self, by: Walk, opened: Program | None = None) -> Proof | Unknown:
        """What the checker makes of a walk that holds.

        Such a walk speaks of values: where the order is not known, nothing is proved.
        """
        if self.stuck is not None:
            return self.stuck
        with self.timed("certificate_s"):
            said = certificate(
                self.prepared, by.one, by.related, by.peels, by.equal, opened, self.order
            )
        with self.timed("check_s"):
            return self.accepted(prove(said, self.prepared, self.discharge))

    def accepted(self, found: Proof | Rejected) -> Proof | Unknown:
        if isinstance(found, Proof):
            return found
        keys = tuple(output_key(o) for o in self.problem.sequential.outputs)
        return Unknown(REJECTED.format(found.where, found.reason), self.location, keys)

    def compared(self, masks: bool) -> Proof | Unknown | Undecided:
        """Entry by entry, as polynomials."""
        from shardproof.verifier.checker.identities import certify
        from shardproof.verifier.provers.scalars.closing import close

        said = certify(self.prepared, close, masks)
        if isinstance(said, Undecided):
            return said
        return self.stuck or self.accepted(prove(sealed(said, self.order), self.prepared))

    def refuted(self) -> Counterexample:
        found = self.difference
        assert found is not None
        mesh = str(self.problem.distributed.mesh)
        return Counterexample(mesh, found.witness, found.place or self.location, found.outputs)

    def unknown(self) -> Unknown:
        walked = self.walked
        assert walked is not None
        reason = f"no relation to the one-device program was found for every output; {self.reason}"
        return Unknown(reason, self.location, tuple(walked.wrong))

    def relations(self) -> list[Relation]:
        by = self.walked
        return every_relation(by.one, self.problem.distributed, by.related) if by else []

    @property
    def few(self) -> bool:
        """Whether the programs may be related in further ways."""
        return sum(1 for _ in self.problem.distributed.walk()) <= WIDE_OPS


def _ordered(run: Examination) -> Verdict | None:
    """Programs that some rank cannot run, or that read too early, are refuted at once."""
    with run.timed("structure_s"):
        run.prepared = prepare(run.given)
        sequential, distributed = run.problem.sequential, run.problem.distributed
        check(sequential, distributed, run.given.contract)
        stuck = illegal(distributed, run.given.contract)
    with run.timed("time_s"):
        found = stuck or ordered(distributed, lambda: run.prepared.events)
    match found:
        case Counterexample():
            return found
        case Unknown():
            run.stuck = found
        case list():
            run.order = found
    return None


def _walked(run: Examination) -> Verdict | None:
    """What each value of a rank is of the values of one device."""
    run.tell("relate")
    with run.timed("relate_s"):
        by = run.walked = walk(run.problem, sharing=False)
    if by.wrong and by.rules.shared and run.few:
        with run.timed("widened_s"):
            run.shares = walk(run.problem)
    if by.wrong and (run.shares is None or run.shares.wrong):
        run.opened = _opened(run, [(False, "open"), (False, "closed")])
    return None


def _refuted(run: Examination) -> Verdict | None:
    """Programs that are small enough are run on numbers: a difference, or no number at all.

    Where every output is related, fewer samples are a check of the relations.
    """
    p, by = run.problem, run.walked
    assert by is not None
    size = elements_of(p.sequential, p.distributed)
    run.ran, tried = size <= MAX_ELEMENTS, Tried()
    with run.timed("refute_s"):
        if run.ran:
            run.tell("refute")
            related = not by.wrong or (run.shares is not None and not run.shares.wrong)
            few = related or run.opened is not None
            run.difference = refute(p, simpler=run.simpler, tried=tried, few=few)
    run.stats["refuter_elements"] = float(size)
    run.stats["refuter_ran"] = float(tried.samples > 0)
    if run.ran:
        run.stats["refuter_samples"] = float(tried.samples)
    if run.ran and run.difference is None and nowhere_defined(p):
        keys = tuple(output_key(o) for o in p.sequential.outputs)
        return run.stuck or Unknown(NOWHERE, None, keys)
    return None


def _related(run: Examination) -> Verdict | None:
    """Outputs that are related are proved, if no numbers say otherwise."""
    p, by = run.problem, run.walked
    assert by is not None
    if run.shares is not None and not run.shares.wrong and run.difference is None:
        return run.proof(run.shares)
    if run.difference is None:
        with run.timed("relate_s"):
            by = run.walked = by.with_keys(p.contract)
    if by.holds and run.difference is None:
        run.stats["outputs"] = len({output_key(o) for o in p.distributed.outputs})
        return run.proof(by)
    run.location = locate(by.one, p.distributed, by.related, p.contract, by.wrong)
    if run.difference is None:
        return None
    if by.wrong:
        return run.refuted()
    why = OVERFLOW if overflows(p, run.difference.inputs) else DISAGREE
    return Unknown(why, run.location, run.difference.outputs)


def _run_again(run: Examination) -> Verdict | None:
    """On more samples: a program without a relation is likely wrong."""
    if not run.ran:
        return None
    run.tell("refute again")
    run.difference = refute(run.problem, AGAIN, trials=AGAIN, simpler=run.simpler)
    return run.refuted() if run.difference is not None else None


def _decided(run: Examination) -> Verdict | None:
    """Small programs element by element, large ones on numbers at smaller extents."""
    p, by = run.problem, run.walked
    assert by is not None
    run.tell("decide")
    with run.timed("decide_s"):
        keys = {output_key(o) for o in p.distributed.outputs} - set(by.wrong)
        held = frozenset(name for name, facts in by.related.facts.items() if facts)
        open_ = Unrelated(
            p,
            tuple(by.wrong),
            tuple(sorted(keys)),
            held,
            (by.one, by.rules),
        )
        found = decide_small(open_, run.compared) if run.ran else refute_large(open_)
    if isinstance(found, Proof | Unknown):
        return found
    if isinstance(found, str):
        run.reason = found
        return None
    run.difference = found
    return run.refuted()


def _further(wide: bool) -> Callable[[Examination], Verdict | None]:
    """By shares alone, or by all further ways to relate values."""

    def step(run: Examination) -> Verdict | None:
        if not run.few or not (wide or run.shares is not None):
            return None
        with run.timed("widened_s"):
            for pieces in (False, True) if wide else (False,):
                known = None if wide else run.shares
                by = known or walk(run.problem, wide=wide, pieces=pieces)
                by = run.furthest = by.with_keys(run.problem.contract)
                if by.holds:
                    return run.proof(by)
        return None

    return step


def _reaches(run: Examination, opened: Program) -> bool:
    """Whether ranks hold all that opened cross entropies are computed from, and not all that these
    stand in the place of: else they relate no more, unless by further ways."""
    by, given = run.furthest or run.shares or run.walked, run.problem.sequential
    assert by is not None
    held = {fact.ref.id for facts in by.related.facts.values() for fact in facts}
    held |= {i for i, term in enumerate(by.one.terms.nodes) if not term.args}

    def lacking(names: Iterable[str]) -> bool:
        known = [by.one.values[v] for v in names if v in by.one.values and given.types[v].is_float]
        return any(ref.id not in held for ref in known)

    new = (n for n in opened.nodes if n.outputs[0] not in given.types)
    read = {v for node in new for v in node.inputs if v in given.types}
    return not lacking(read) and lacking(given.types.keys() - opened.types.keys())


def _opened(run: Examination, ways: Sequence[tuple[bool, Form]]) -> tuple[Walk, Program] | None:
    """By opened cross entropies, for labels that name a class, or are the one that is ignored."""
    from shardproof.verifier.provers.cross_entropy import open_entropy

    if not run.few:
        return None
    with run.timed("widened_s"):
        sequential = run.problem.sequential
        for wide, form in ways:
            opened, labels = open_entropy(sequential, form, unmarked=True)
            if not labels or not (wide or _reaches(run, opened)):
                continue
            by = walk(replace(run.problem, sequential=opened), wide=wide)
            by = by.with_keys(run.problem.contract)
            if by.holds and not by.peels:
                return by, opened
    return None


def _labelled(run: Examination) -> Verdict | None:
    """By opened cross entropies, where that relates all outputs."""
    return run.proof(*run.opened) if run.opened is not None else None


def _labelled_further(run: Examination) -> Verdict | None:
    """By opened cross entropies and the further ways too, and with shifts taken out of lookups."""
    from shardproof.verifier.provers.cross_entropy import FORMS

    found = _opened(run, [(True, form) for form in FORMS])
    return run.proof(*found) if found is not None else None


STEPS: tuple[Callable[[Examination], Verdict | None], ...] = (
    _ordered,
    _walked,
    _refuted,
    _related,
    _further(wide=False),
    _labelled,
    _run_again,
    _decided,
    _further(wide=True),
    _labelled_further,
)
"""What is tried, cheapest first, until one of them gives a verdict."""
