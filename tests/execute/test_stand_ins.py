"""What stands in for PyTorch while ranks are traced computes what the real thing does on gloo: the
proof of the trace, and a run of the same code, which has no stand-ins, agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardproof.agent.actions.programs import Check
from shardproof.agent.check.command import decided
from shardproof.agent.run import events
from shardproof.agent.run.run import Run
from shardproof.verifier.verdict import Counterexample, Proof

pytestmark = [
    pytest.mark.torch,
    pytest.mark.gloo,
    pytest.mark.slow,
    pytest.mark.xdist_group("gloo"),
]
EXAMPLES = Path(__file__).parents[2] / "examples" / "check"
SPLIT = ["x=S(0)@dp"]


def both(target: str, against: str, mesh: str, layouts: list[str]) -> tuple[bool, bool]:
    """Whether the trace is proved, and whether the run agrees."""
    asked = Check(
        target=f"{EXAMPLES}/{target}",
        mesh=mesh,
        against=f"{EXAMPLES}/{against}",
        input_layout=tuple(layouts),
        repair_seconds=0,
    )
    traced = decided(Run([]), asked.model_copy(update={"run": False}))[0]
    run = Run([])
    decided(run, asked)
    ran = [e.agrees for e in run.seen if isinstance(e, events.Executed)]
    if isinstance(traced, Counterexample):
        return False, False
    assert isinstance(traced, Proof), traced
    assert len(ran) == 1
    return True, ran[0]


@pytest.mark.parametrize(
    ("target", "against", "mesh", "layouts"),
    [
        ("torch_parallel.py:averaged", "model.py:Trained", "dp=2", SPLIT),
        ("torch_parallel.py:sharded", "model.py:Trained", "dp=2", SPLIT),
        ("torch_parallel.py:tensor_parallel", "model.py:MLP", "tp=2", []),
        ("parallel.py:ParallelMLP", "model.py:MLP", "tp=2", []),
    ],
    ids=["DistributedDataParallel", "fully_shard", "parallelize_module", "process groups"],
)
def test_a_trace_says_what_a_run_does(
    target: str, against: str, mesh: str, layouts: list[str]
) -> None:
    assert both(target, against, mesh, layouts) == (True, True)
