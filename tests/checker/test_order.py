"""Certificates of order: right programs are accepted, wrong ones never, whatever is said."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings

from benchmarks.mutation_testing.cases import Case
from benchmarks.mutation_testing.corpus import cases
from shardproof.synthesis.schedules import generate, parse
from shardproof.synthesis.schedules.steps import to_events
from shardproof.verifier.certify import certificate
from shardproof.verifier.checker import Accepted, Rejected, check, prepare
from shardproof.verifier.checker.certificate import sealed
from shardproof.verifier.checker.claims import NotShownError
from shardproof.verifier.checker.identities import certify
from shardproof.verifier.checker.order import ordered, unpacked
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.errors import IRError, MalformedError
from shardproof.verifier.kernel.program.jsondata import Cursor
from shardproof.verifier.kernel.program.program import in_order
from shardproof.verifier.order.context import Context
from shardproof.verifier.order.events import TimeProgram
from shardproof.verifier.order.from_program import from_program
from shardproof.verifier.order.machine import replay
from shardproof.verifier.order.paths import paths
from shardproof.verifier.order.text import parse_text
from shardproof.verifier.order.verify import verify_time
from shardproof.verifier.order.violation import Trace
from shardproof.verifier.order.witness import pack, witness
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.relate.rules import Rules
from shardproof.verifier.provers.relate.walk import relate_peeled
from shardproof.verifier.provers.scalars.closing import close
from shardproof.verifier.text.assemble import shared, well_formed
from shardproof.verifier.verdict import Proof
from shardproof.verifier.verification import verify
from tests.checker.forging import Section, edited, forged
from tests.order.strategies import programs

EVENTS = Path(__file__).parents[1] / "order" / "corpus"
EDITS = 12
"""Of each section; there are more than thirty."""


def _plain(case: Case, side: str):
    return inline(well_formed(shared(case.programs(side)[1])))


def _events() -> Iterator[tuple[str, TimeProgram]]:
    """Every program of events that any corpus holds."""
    for path in sorted(EVENTS.glob("*.txt")):
        yield path.stem, parse_text(path.read_text(encoding="utf-8"), path.name)
    for case in cases():
        for side in case.sides:
            name = f"{case.path.stem}.{side}"
            try:
                if case.kind == "time":
                    yield name, parse_text(case.sections[side], name)
                elif case.kind == "schedule":
                    yield name, to_events(parse(case.sections[side], name))
                elif not in_order(plain := _plain(case, side)):
                    yield name, from_program(plain, meetings=True)
            except (IRError, ValueError):
                assert side == "wrong", name


ALL = dict(_events())
WRONG = {name: program for name, program in ALL.items() if verify_time(program)}
RIGHT = {name: program for name, program in ALL.items() if name not in WRONG}


def accepted(section: Section, program: TimeProgram) -> bool:
    try:
        ordered(Cursor(section, "certificate"), program)
    except (NotShownError, MalformedError):
        return False
    return True


@cache
def shown(name: str) -> str:
    return json.dumps(witness(RIGHT[name]))


def harmless(section: Section, program: TimeProgram) -> bool:
    """Whether a machine comes to its end in the order of the numbers, and sees nothing wrong."""
    for way, (_, chosen) in zip(section, paths(program), strict=True):
        graph = Context(chosen).queued
        numbers = list(accumulate(unpacked(Cursor(way["numbers"], "numbers"))))
        steps = graph.trace(sorted(range(len(numbers)), key=lambda node: numbers[node]))
        outcome = replay(Trace(chosen, steps, "waits" if chosen.machine.concurrent else "queue"))
        if outcome.sights or outcome.stuck or outcome.in_flight or outcome.left_over:
            return False
    return True


def test_there_are_both_sides_of_every_kind() -> None:
    assert len(RIGHT) > 60
    assert len(WRONG) > 40
    assert "OR-07-values.wrong" in WRONG


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_order_is_accepted(name: str) -> None:
    section = json.loads(shown(name))
    assert accepted(section, RIGHT[name])
    assert harmless(section, RIGHT[name])


@pytest.mark.parametrize("name", RIGHT)
def test_an_edited_section_is_rejected_or_harmless(name: str) -> None:
    rng = random.Random(name)
    for _ in range(EDITS):
        section = edited(json.loads(shown(name)), rng)
        assert not accepted(section, RIGHT[name]) or harmless(section, RIGHT[name]), section


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_order_is_rejected_whatever_is_said(name: str) -> None:
    program, rng = WRONG[name], random.Random(name)
    told: list[Section] = [[], [{"numbers": [], "paths": []}], forged(program)]
    twin = name.replace("wrong", "right")
    if twin in RIGHT:
        told.append(json.loads(shown(twin)))
    for section in told:
        assert not accepted(section, program), section
        for _ in range(EDITS):
            assert not accepted(changed := edited(section, rng), program), changed


TP = "communicator tp = (0, 1)\nranks 0-1\n  holds g\n"


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ("wait h", "waits for h, not issued yet"),
        ("wait h\nall_reduce tp reads g writes g handle h", "waits for h, not issued yet"),
        ("all_reduce tp reads g writes g handle h", "nothing on rank 0 waits for h"),
        ("await m\nrecord m", "awaits m, not recorded yet"),
        ("free g\ncompute writes g", "g for compute writes g on rank 0 is freed"),
        ("free g\ncompute reads g", "is undefined"),
        ("alloc s\ncompute reads s", "is undefined"),
        ("compute reads s\ncompute writes s", "is not written yet"),
        ("a: compute writes g\ncompute writes g\ncompute reads g from a", "not what a wrote"),
        ("compute writes g\ncompute reads g stream side", "no order of compute writes g"),
        ("send to 0 reads g", "sends to itself"),
    ],
)
def test_what_is_wrong_is_said(events: str, reason: str) -> None:
    program = parse_text(TP + "\n".join(f"  {line}" for line in events.split("\n")))
    assert verify_time(program)
    with pytest.raises(NotShownError, match=re.escape(reason)):
        ordered(Cursor(forged(program), "certificate"), program)


def test_a_section_holds_nothing_that_it_does_not_need() -> None:
    program = parse_text(
        TP + "  all_reduce tp reads g writes g handle h\n  wait h\n  compute reads g"
    )
    (way,) = witness(program)
    assert accepted([way], program)
    assert way["paths"]
    for key in way:
        assert not accepted([{**way, key: [*way[key], 1]}], program)
        assert not accepted([{**way, key: way[key][:-1]}], program)
    assert not accepted([way, way], program)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(programs())
def test_random_programs_are_accepted_exactly_where_they_are_right(program: TimeProgram) -> None:
    found = verify_time(program)
    event("wrong" if found else "right")
    assert accepted(forged(program), program) == (not found)
    if not found:
        assert accepted(witness(program), program)


@pytest.mark.parametrize("kind", ["1f1b", "interleaved_1f1b", "zero_bubble"])
def test_more_micro_batches_need_no_longer_certificate(kind: str) -> None:
    chunks = 2 if kind == "interleaved_1f1b" else 1
    few, many = (witness(to_events(generate(kind, 4, m, chunks))) for m in (16, 64))
    assert len(json.dumps(many)) < 1.2 * len(json.dumps(few))


def test_integers_are_packed_and_unpacked() -> None:
    rng = random.Random(1)
    for _ in range(200):
        values = [rng.randrange(3) for _ in range(rng.randrange(60))] * rng.randrange(1, 4)
        packed = pack(values)
        assert list(unpacked(Cursor(json.loads(json.dumps(packed)), "packed"))) == values
    assert pack([7, 8] * 100) == [7, 8, [2, 198]]


# Whole certificates

(ASYNC,) = cases(names=["OR-07-values"])


def _claims(problem: Problem) -> dict[str, Any]:
    """A certificate of values alone."""
    given = prepare(problem)
    one, many = given.problem.sequential, given.problem.distributed
    terms, related, peels = relate_peeled(one, many, problem.contract, Rules(many.mesh))
    return certificate(given, terms, related, peels)


def _elements(problem: Problem) -> dict[str, Any]:
    document = certify(prepare(problem), close)
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("made", [_claims, _elements])
def test_values_alone_are_no_proof(made: Any) -> None:
    """A result that is read without a wait: right as values, wrong in time."""
    right, wrong = (Problem(*ASYNC.programs(side)) for side in ("right", "wrong"))
    verdict = verify(right)
    assert isinstance(verdict, Proof)
    section, rng = verdict.certificate["order"], random.Random(3)
    assert isinstance(check(sealed(made(right), section), right), Accepted)
    assert isinstance(check(made(right), right), Rejected)
    forgery = forged(from_program(_plain(ASYNC, "wrong"), meetings=True))
    sections = [[], section, forgery, *(edited(s, rng) for s in [section, forgery] * 30)]
    for told in sections:
        answer = check(sealed(made(wrong), told), wrong)
        assert isinstance(answer, Rejected)
        assert answer.where == "order" or ".order" in answer.where


def test_a_program_without_events_has_an_empty_section() -> None:
    (case,) = cases(names=["MC-01"])
    problem = Problem(*case.programs("right"))
    verdict = verify(problem)
    assert isinstance(verdict, Proof)
    assert verdict.certificate["order"] == []
    more = sealed(verdict.certificate, [{"numbers": [], "paths": []}])
    assert isinstance(check(more, problem), Rejected)


@pytest.mark.parametrize("version", [1, 2, None])
def test_a_certificate_of_another_version_says_what_to_do(version: int | None) -> None:
    problem = Problem(*ASYNC.programs("right"))
    verdict = verify(problem)
    assert isinstance(verdict, Proof)
    answer = check({**verdict.certificate, "version": version}, problem)
    assert isinstance(answer, Rejected)
    assert f"of version {version}" in answer.reason
    assert "prove the programs again" in answer.reason
