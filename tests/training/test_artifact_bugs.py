"""The bugs of the TrainVerify artifact, in a step of the same structure that can be simulated."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from benchmarks.artifact_bugs import ALL, DEGREES, Bug, judge, plan
from benchmarks.steps.model import TINY, Degrees
from benchmarks.steps.truth import agrees
from shardproof.synthesis.training.step import Step
from shardproof.verifier.kernel.program.errors import IRError

SMALL = replace(TINY, layers=4)
"""Two layers in each repeated block."""


@cache
def step_of(degrees: Degrees) -> Step:
    return plan(SMALL, degrees)


def test_plan_as_written_is_proved() -> None:
    step = step_of(DEGREES)
    assert judge(step, step.distributed, "").verdict == "proved"


@pytest.mark.parametrize("bug", ALL, ids=str)
def test_bug_is_found_and_shown(bug: Bug) -> None:
    step = step_of(bug.degrees)
    many = bug.edit(step.distributed)
    said = judge(step, many, str(bug))
    assert said.found, f"{said.verdict}: {said.witness} {said.where}"
    assert "plan.txt:" in said.where
    if said.verdict == "refuted" and "communication legality" not in said.witness:
        assert not agrees(step, many, trials=1)
        return
    with pytest.raises((IRError, AssertionError, KeyError)):
        agrees(step, many, trials=1)
