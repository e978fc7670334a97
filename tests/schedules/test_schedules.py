"""Known facts of known schedules, wrong schedules of a person, and their text and JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from shardproof.synthesis.schedules import (
    GENERATORS,
    check_schedule,
    draw_svg,
    draw_text,
    generate,
    in_flight,
    parse,
    timeline,
    to_events,
    to_text,
)
from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.order.machine import replay
from shardproof.verifier.order.verify import shown, verify_time


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
@pytest.mark.parametrize("micro_batches", [1, 3, 8, 16])
def test_one_forward_one_backward_keeps_its_bound(stages: int, micro_batches: int) -> None:
    schedule = generate("1f1b", stages, micro_batches)
    peaks = [in_flight(schedule, stage).peak for stage in range(stages)]
    assert peaks == [min(stages - stage, micro_batches) for stage in range(stages)]


@pytest.mark.parametrize("stages", [2, 4, 7])
def test_bubbles_are_those_of_the_papers(stages: int) -> None:
    """(P - 1)(f + b) for GPipe and 1F1B, (P - 1)(f + b) with chunks a v-th of the length, and
    (P - 1)(f + b - w) for ZB-H1, with M a multiple of P."""
    micro_batches = 3 * stages
    for kind in ("gpipe", "1f1b"):
        times = timeline(generate(kind, stages, micro_batches))
        assert {times.idle(stage) for stage in range(stages)} == {3 * (stages - 1)}
    for chunks in (2, 3):
        times = timeline(generate("interleaved_1f1b", stages, micro_batches, chunks))
        assert {times.idle(stage) for stage in range(stages)} == {3 * (stages - 1)}
        assert times.length == 3 * (micro_batches * chunks + stages - 1)
    times = timeline(generate("zero_bubble", stages, micro_batches))
    assert {times.idle(stage) for stage in range(stages)} == {stages - 1}


@pytest.mark.parametrize("stages", [2, 4, 7])
def test_twice_the_memory_leaves_no_bubble_between_slots(stages: int) -> None:
    """ZB-H2: no stage waits between its first slot and its last."""
    schedule = generate("zero_bubble_2p", stages, 3 * stages)
    times = timeline(schedule)
    for stage, slots in enumerate(schedule.stages):
        busy = times.end[stage, len(slots) - 1] - times.start[stage, 0]
        assert busy == 9 * stages
        assert in_flight(schedule, stage).peak == 2 * stages - 1


def test_zero_bubble_keeps_no_more_than_one_forward_one_backward() -> None:
    schedule = generate("zero_bubble", 6, 20)
    assert max(in_flight(schedule, stage).peak for stage in range(6)) == 6


@pytest.mark.parametrize(
    ("text", "check", "stage", "words"),
    [
        ("stage 0: F0 B0 R F1 B1\nstage 1: F0 B0 F1 B1 R", "reduction", 0, "B1 is still to be"),
        ("stage 0: F0 F1 B0 R\nstage 1: F0 B0 F1 B1 R", "slots", 0, "B1 is missing"),
        ("stage 0: F0 F1 B0 B0 B1 R\nstage 1: F0 B0 F1 B1 R", "slots", 0, "same as slot 3"),
        ("stage 0: F0 F1 B0 B1 R\nstage 1: B0 F0 F1 B1 R", "order", 1, "needs F0"),
        ("stage 0: F0 F1 B0 B1 R\nstage 1: F0 B0 F1 B1", "slots", 1, "R is missing"),
        ("stage 0: F0 B0 F1 B1 R\nstage 1: F1 F0 B0 B1 R", "deadlock", 0, "stuck at F1"),
        ("stage 0: F0 F1 B0 B1 R\nstage 1: F1 B1 F0 B0 R", "messages", 0, "carries F0"),
        ("sends blocking\nstage 0: F0 F1 B0 B1\nstage 1: F0 B0 F1 B1", "deadlock", 0, "send_F1"),
        (
            "activations 1\nstage 0: F0 F1 B0 B1\nstage 1: F0 B0 F1 B1",
            "overwritten",
            0,
            "overwritten by F1",
        ),
        ("limit 1 1\nstage 0: F0 F1 B0 B1\nstage 1: F0 B0 F1 B1", "memory", 0, "may keep 1"),
        ("stage 0: F0 F1 B0 W0 B1 W1 R\nstage 1: F0 B0 F1 B1 W0 R", "slots", 1, "W1 is missing"),
    ],
)
def test_wrong_schedules_are_refused_where_they_are_wrong(
    text: str, check: str, stage: int, words: str
) -> None:
    found = check_schedule(parse(text, "mine.txt"))
    (hit,) = [fault for fault in found if fault.check == check and fault.stage == stage][:1]
    assert words in str(hit)
    line = next(i for i, row in enumerate(text.splitlines(), 1) if row.startswith(f"stage {stage}"))
    assert f"mine.txt:{line}" in str(hit)
    if hit.trace is not None:
        replay(hit.trace)


def test_a_backward_on_an_early_stage_before_a_later_one_is_refused() -> None:
    """The order of an early public generator: every stage alternates from the start."""
    rows = [f"stage {s}: F0 B0 F1 B1 F2 B2 F3 B3" for s in range(3)]
    assert check_schedule(parse("\n".join(rows))) == []
    rows[2] = "stage 2: F0 F1 B0 B1 F2 B2 F3 B3"
    assert {fault.check for fault in check_schedule(parse("\n".join(rows)))} == {"deadlock"}


def test_blocking_sends_hang_where_paired_ones_do_not() -> None:
    schedule = generate("1f1b", 4, 8)
    assert check_schedule(replace(schedule, sends="paired")) == []
    (fault,) = check_schedule(replace(schedule, sends="blocking"))
    assert fault.check == "deadlock"
    assert fault.trace is not None
    assert replay(fault.trace).stuck
    assert all(map(shown, verify_time(to_events(replace(schedule, sends="blocking")))))


def test_tagged_messages_may_come_in_any_order() -> None:
    text = "stage 0: F0 F1 B0 B1 R\nstage 1: F1 B1 F0 B0 R"
    assert check_schedule(parse(f"messages tagged\n{text}")) == []
    assert check_schedule(parse(text)) != []


@pytest.mark.parametrize("kind", sorted(GENERATORS))
def test_forms_round_trip(kind: str) -> None:
    schedule = generate(kind, 2, 4, 2 if kind == "interleaved_1f1b" else 1)
    again = parse(to_text(schedule))
    assert replace(again, sources=()) == schedule
    data = {
        "name": kind,
        "micro_batches": 4,
        "chunks": schedule.chunks,
        "limit": list(schedule.limit or ()),
        "stages": [[str(slot) for slot in slots] for slots in schedule.stages],
    }
    assert parse(json.dumps(data)) == schedule


def test_drawing() -> None:
    assert draw_text(generate("1f1b", 2, 2)) == (
        "1f1b: 9 units of time\n"
        "stage 0 |F0 F1 .  .  B0 -  .  B1 -  | R  idle 3, keeps 2\n"
        "stage 1 |.  F0 B0 -  F1 B1 -  .  .  | R  idle 3, keeps 1\n"
    )
    stuck = parse("stage 0: B0 F0\nstage 1: F0 B0")
    assert "B0!" in draw_text(stuck)
    svg = draw_svg(generate("zero_bubble", 2, 2))
    assert svg.startswith("<svg")
    assert svg.count("<rect") == 1 + 12
    assert draw_svg(stuck).endswith("</svg>\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a line for stage 0"),
        ("stage 1: F0 B0", "a line for stage 0"),
        ("stage 0: F0 X1", "mine.txt:1: a slot"),
        ("stage 0: F0\nstage 0: F0", "mine.txt:2: stage 0"),
        ("micro_batch 2\nstage 0: F0 B0", "did you mean micro_batches"),
        ("micro_batches none\nstage 0: F0 B0", "a number, 1 or more"),
        ("sends loudly\nstage 0: F0 B0", "async, paired, blocking"),
        ("limit 1 2\nstage 0: F0 B0", "1 numbers, one a stage"),
        ("chunks\nstage 0: F0 B0", "one value"),
        ("{", "JSON"),
        ('{"stages": 3}', "a list"),
        ('{"stages": [["F0", 4]]}', "a slot"),
        ('{"stages": [["F0"]], "colour": 1}', "colour"),
        ('{"stages": [["F0"]], "stages": []}', "given twice"),
    ],
)
def test_bad_input_is_one_located_error(text: str, words: str) -> None:
    with pytest.raises(MalformedError) as error:
        parse(text, "mine.txt")
    assert words in str(error.value)
    assert "mine.txt" in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("dream", 2, 2), "one of gpipe"),
        (("1f1b", 0, 2), "1 or more"),
        (("1f1b", 2, 2, 2), "interleaved_1f1b"),
        (("interleaved_1f1b", 4, 6, 2), "a multiple of the 4 stages"),
    ],
)
def test_sizes_that_a_kind_cannot_have(arguments: tuple[str, int, int], words: str) -> None:
    with pytest.raises(MalformedError, match=words):
        generate(*arguments)


def test_a_schedule_too_large_is_refused() -> None:
    with pytest.raises(MalformedError, match="at most"):
        check_schedule(parse("micro_batches 900000000\nstage 0: F0 B0"))


def test_chunks_keep_what_the_warm_up_of_the_paper_asks() -> None:
    """2(P - s - 1) + (v - 1)P forwards of chunks before the first backward, and one more."""
    schedule = generate("interleaved_1f1b", 4, 8, 2)
    assert [in_flight(schedule, stage).peak for stage in range(4)] == [11, 9, 7, 5]
    assert schedule.limit == (11, 9, 7, 5)


def test_many_stages_and_slots() -> None:
    schedule = generate("1f1b", 16, 64)
    assert check_schedule(schedule) == []
    assert len(schedule.stages[0]) == 129
