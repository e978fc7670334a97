"""A bug in one layer, one micro-batch, one stage and one rank is found, placed and shown."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from benchmarks.artifact_bugs import judge
from benchmarks.planted import PLACES, PLANTED, Place, Written, judged, write_out
from benchmarks.steps.model import TINY, Degrees
from benchmarks.steps.step import training_step

DEGREES = Degrees(
    dp=3, tp=2, pp=2, micro_batches=3, scan_layers=True, scan_micro_batches=True,
    sequence_parallel=True,
)  # fmt: skip
PLACE = Place(1, 1, 1, {"dp": 2, "tp": 1})
OPS = {
    1: ("shard_slice",),
    5: ("shard_slice", "add"),
    7: ("add_scalar",),
    12: ("mul_scalar", "reshape", "merge", "concat"),
    14: ("all_reduce", "add", "merge"),
}
"""The op at fault, or one that reads it."""


@cache
def written(last: bool) -> Written:
    model = replace(TINY, layers=6, batch=9)
    place = replace(PLACE, micro_batch=2) if last else PLACE
    return write_out(training_step(model, DEGREES), place)


@pytest.mark.parametrize("number", OPS)
def test_bug_in_one_step_and_one_rank_is_found_there(number: int) -> None:
    bug = next(b for b in PLANTED if b.number == number)
    right = written(bug.last_micro_batch)
    said = judge(right.step, bug.make(right)(right.program), str(bug))
    assert said.verdict == "refuted", said.witness
    assert said.where.split()[0] in OPS[number], said.where


@pytest.mark.parametrize("name", PLACES)
def test_message_of_one_micro_batch_to_a_wrong_stage_of_the_largest_plans(name: str) -> None:
    said = judged(name, 6)
    stage = PLACES[name].stage
    assert said.verdict == "refuted"
    assert f"lives on pp={stage - 1} only" in said.witness
    assert said.where.startswith("recv plan.txt:")
