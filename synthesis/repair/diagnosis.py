"""Says of a program that is not proved where its fault lies, and which edits fix it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from shardproof.verifier.explain import locate, place
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Location, Proof, Verdict
from shardproof.verifier.verification import Examination, Progress, examine, walk

if TYPE_CHECKING:
    from shardproof.verifier.smt.answers import Answers

REPAIR_RELATE_S = 0.2
"""Programs that take longer than this to relate once are not searched for repairs."""
REPAIR_S = 3.0
"""Of the processor, that the search for a repair may take."""
FEW_OPS = 80
"""Programs of more ops are not related in further ways to place a difference."""


def verify(
    problem: Problem,
    *,
    fixes: bool = False,
    simpler: bool = True,
    relations: bool = False,
    progress: Progress | None = None,
    discharge: Answers | None = None,
) -> Verdict:
    """As `verifier.verify`, and a program that is not proved is diagnosed.

    With `fixes`, single edits are tried on it, and one after which it is proved is named.
    """
    run = examine(
        problem,
        simpler=simpler,
        relations=relations,
        progress=progress,
        discharge=discharge,
    )
    return diagnose(run, fixes=fixes)


def diagnose(run: Examination, *, fixes: bool = False) -> Verdict:
    """The verdict of an examination with the op to blame, and with `fixes` edits that fix it."""
    verdict = run.verdict
    if isinstance(verdict, Proof) or run.walked is None:
        return verdict
    verdict = replace(verdict, fixes=_offered(run) if fixes else ())
    if not isinstance(verdict, Counterexample) or run.difference is None:
        return verdict
    p = run.problem
    from shardproof.verifier.escalate import smallest

    small = fixes and run.ran
    smaller = smallest(p, run.difference) if small else ""
    return replace(verdict, location=_place(run), smaller=smaller)


def _offered(run: Examination) -> tuple[str, ...]:
    """An edit after which the program is proved; none where relating takes long."""
    by, p = run.walked, run.problem
    if by is None or not by.wrong or run.stats["relate_s"] >= REPAIR_RELATE_S:
        return ()
    from shardproof.synthesis.repair.question import Question
    from shardproof.synthesis.repair.search import Repaired, repair

    run.tell("repair")
    asked = Question(p.sequential, p.distributed, p.contract, consts=p.consts, max_edits=1)
    found = repair(asked, seconds=REPAIR_S, clock=time.process_time)
    return tuple(map(str, found.edits)) if isinstance(found, Repaired) else ()


def _place(run: Examination) -> Location | None:
    """Where the numbers go wrong, as far as it shows on numbers."""
    from shardproof.synthesis.repair.faults import OnNumbers, blamed

    found, by, p = run.difference, run.walked, run.problem
    assert found is not None
    assert by is not None
    location, broken = run.location, bool(by.related.breaks)
    if found.place is None and broken and _may_be_copies(run):
        location, broken = _again(p, location)
    pair, held = p if run.ran else found.small, found.place or location
    fewer = pair is not None and pair.distributed.mesh != p.distributed.mesh
    if pair is None or held is None or (fewer and found.place is not None):
        return held
    shapes = {i.name: i.type.shape for i in pair.sequential.inputs}
    fit = {n: a for n, a in p.consts.items() if a.shape == shapes.get(n)}
    pair = replace(pair, consts={**pair.consts, **fit})
    fault = blamed(OnNumbers(pair, held, broken, certain=found.place is not None))
    if fault is None or fault.op is None:
        return held
    given = p.distributed.producers().get(fault.op.outputs[0], fault.op)
    return place(given if given.op == fault.op.op else fault.op, fault.why)


def _may_be_copies(run: Examination) -> bool:
    """Whether an op is refused for the layout of copies, which further ways read as pieces."""
    few = sum(1 for _ in run.problem.distributed.walk()) <= FEW_OPS
    found = run.location
    return few and found is not None and found.op == "bmm" and "differently" in found.reason


def _again(problem: Problem, found: Location | None) -> tuple[Location | None, bool]:
    """The place of a difference where the further ways relate what the plain rules do not, and
    whether an op is left that no rule admits."""
    by = walk(problem, wide=True)
    related = by.related
    breaks = [b for b in related.breaks if b.path or not related.facts.get(b.node.outputs[0])]
    related.breaks[:] = breaks
    if not by.wrong:
        return found, True
    there = locate(by.one, problem.distributed, related, problem.contract, by.wrong)
    return there or found, bool(breaks)
