"""The examples run, each with a right program proved and a wrong one refuted."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
WITNESSED = {
    "tp_linear": ("4 passed, 0 failed", "expected", "tp_linear.py:"),
    "tp_mlp": ("4 passed, 0 failed", "partial sum over tp", "tp_mlp.py:"),
    "pp_2stage": ("5 passed, 0 failed", "differs on rank pp=1", "nobody receives it"),
    "cp_ring_attn": (
        "4 passed, 0 failed",
        "differs on rank cp=",
        "ring of 4: Proof",
        "expected -0.75",
    ),
    "overlap_demo": ("safe in time", "MISSING_WAIT on tensor 'y'", "overlap_demo.py:"),
    "spmd_demo": ("pass  gradient duality", "FAIL  gradient duality", "no sum is pending"),
    "synthesis_demo": ("AllReduce of m", "AllGather of x", "missing_collectives=[(0, 'y'"),
    "megatron_gpt2_verify": (
        "4 passed, 0 failed",
        "differs on rank dp=",
        "partial sum over tp",
    ),
    "consistency_demo": ("4 passed, 0 failed", "[2@tp 4, 16]", "partial sum"),
}


@pytest.mark.parametrize("name", WITNESSED)
def test_an_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    out = capsys.readouterr().out
    for part in WITNESSED[name]:
        assert part in out
