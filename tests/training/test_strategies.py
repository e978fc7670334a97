"""Every strategy is proved, its certificate accepted, and every rank computes the step."""

from __future__ import annotations

import pytest

from benchmarks.steps.strategies import OPEN, STRATEGIES, Strategy
from benchmarks.steps.truth import gap
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Proof, Unknown
from tests.training.steps import judged, step_of


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_strategy_is_proved(strategy: Strategy) -> None:
    step = step_of(strategy.name)
    assert gap(step) < 1e-9
    proof = judged(step)
    assert isinstance(proof, Proof)
    again = check(proof.certificate, Problem(step.sequential, step.distributed, step.contract))
    assert isinstance(again, Accepted)


@pytest.mark.parametrize("strategy", OPEN, ids=str)
def test_open_strategy_computes_the_step(strategy: Strategy) -> None:
    assert gap(step_of(strategy.name)) < 1e-9


@pytest.mark.campaign
@pytest.mark.parametrize("strategy", OPEN, ids=str)
def test_open_strategy_is_not_refuted(strategy: Strategy) -> None:
    assert isinstance(judged(step_of(strategy.name)), Unknown | Proof)
