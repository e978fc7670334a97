"""Steps of the named strategies, built once a process."""

from __future__ import annotations

from functools import cache

import numpy as np

from benchmarks.steps.examples import preconditions
from benchmarks.steps.strategies import OPEN, STRATEGIES
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.synthesis.training.step import Step
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Verdict

BY_NAME = {s.name: s for s in (*STRATEGIES, *OPEN)}


@cache
def step_of(name: str) -> Step:
    return BY_NAME[name].step()


def judged(step: Step, distributed: Program | None = None) -> Verdict:
    many = distributed or step.distributed
    with np.errstate(all="ignore"):
        return verify(
            Problem(step.sequential, many, step.contract, consts=preconditions(step)), simpler=False
        )
