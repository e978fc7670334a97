"""Degrees that do not fit are one clear error; schedules and stages are as in the papers."""

from __future__ import annotations

import pytest

from benchmarks.steps.__main__ import main
from benchmarks.steps.model import MODELS, TINY, Degrees, check
from benchmarks.steps.weights import stage_layers
from shardproof.synthesis.training.step import TrainingError


@pytest.mark.parametrize(
    ("degrees", "says"),
    [
        (Degrees(dp=3), "batch = 4 does not divide"),
        (Degrees(tp=4), "kv_heads = 2 does not divide by tp = 4"),
        (Degrees(pp=4), "2 layers on pp = 4 stages"),
        (Degrees(sequence_parallel=True), "sequence_parallel without tp"),
        (Degrees(cp=2, cp_kind="spiral"), "expected one of all_gather, ulysses"),
        (Degrees(ep=2), "ep without experts"),
        (Degrees(zero=1), "set dp to 2 or more"),
    ],
)
def test_degrees_that_do_not_fit_are_an_error(degrees: Degrees, says: str) -> None:
    with pytest.raises(TrainingError, match=says):
        check(TINY, degrees)


def test_layers_of_llama_405b_leave_the_end_stages_lighter() -> None:
    model, degrees = MODELS["llama3-405b"], Degrees(pp=16)
    counts = [len(stage_layers(model, degrees, s)) for s in range(16)]
    assert sum(counts) == 126
    assert counts[0] == counts[-1] == 7
    assert counts[1:-1].count(8) >= 12


def test_command_prints_sizes_and_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dp", "2", "--tp", "2", "--micro-batches", "2"]) == 0
    out = capsys.readouterr().out
    assert "mesh         dp=2,tp=2" in out
    assert "proved  64 outputs" in out
    assert main(["--dp", "3"]) == 2
    assert "try a multiple of 3" in capsys.readouterr().err


def test_full_size_llama_405b_is_proved_over_replicas_and_tensor_ranks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ["--model", "llama3-405b", "--dp", "64", "--tp", "8", "--scan-layers"]
    assert main([*flags, "--sequence-parallel"]) == 0
    assert "405,853,388,800 parameters" in capsys.readouterr().out
