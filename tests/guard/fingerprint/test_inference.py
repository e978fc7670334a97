"""Runs of a plan and of an inference: every exchange is checked, by whoever runs it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.fault_kinds import MOVEMENT, SUMS, Fault
from benchmarks.fingerprint_runs import machine
from benchmarks.fingerprint_runs.inference import verify_distributed_inference
from benchmarks.fingerprint_runs.machine import Processes
from shardproof.synthesis.guard.fingerprint import FingerprintError

PLAN = """program many mesh(dp=2, tp=2)
  input %x: f64[4, 6]
  input %i: i64[4, 6]
  %g = all_gather %x {mesh_dim=tp, dim=1}
  %a = all_to_all %g {mesh_dim=tp, split_dim=0, concat_dim=1}
  %r = reduce_scatter %x {mesh_dim=dp, dim=0}
  %s = ring_shift %x {mesh_dim=dp}
  %b = broadcast %x {mesh_dim=tp, index=0}
  %m = all_reduce %x {mesh_dim=tp, reduce=max}
  %v = all_reduce %x {mesh_dim=[dp, tp], reduce=avg}
  %n = all_reduce %i {mesh_dim=tp}
  %j = all_gather %i {mesh_dim=dp, dim=0}
  %q = shard_slice %x {mesh_dim=tp, dim=0}
  return %a, %r, %s, %b, %m, %v, %n, %j, %q
"""
STAGES = """program many mesh(pp=2)
  input %x: f64[3] on(pp=0)
  %y = relu %x on(pp=0)
  %s = send %y {mesh_dim=pp, src=0, dst=1}
  %r = recv %s {mesh_dim=pp, src=0, dst=1}
  %z = relu %r
  return %z
"""
TINY: dict[str, Any] = {"n_tokens": 4, "hidden_dim": 8, "vocab_size": 16, "n_layers": 2}
CHECKS = {
    "all_gather %g": {"H"}, "all_gather %j": {"H"}, "all_reduce %m": {"H", "R"},
    "all_reduce %n": {"H", "R"}, "all_reduce %v": {"R", "T2"}, "all_to_all %a": {"H"},
    "broadcast %b": {"H"}, "reduce_scatter %r": {"T2"}, "ring_shift %s": {"H"},
}  # fmt: skip


def test_every_exchange_of_a_plan_is_checked() -> None:
    run = verify_distributed_inference(PLAN)
    assert run
    found: dict[str, set[str]] = {}
    for v in run.verdicts:
        found.setdefault(v.op, set()).add(v.check)
    assert found == CHECKS


@pytest.mark.parametrize("kind", ["bit_flip", "drop"])
@pytest.mark.parametrize("value", "garsbmvnj")
def test_a_fault_of_any_exchange_is_found_where_it_is(value: str, kind: str) -> None:
    alarms = verify_distributed_inference(PLAN, faults={value: Fault(kind, 2, 5)}).alarms
    assert alarms
    assert all(v.op.endswith(f"%{value}") for v in alarms)
    assert all(v.culprit_ranks == (2,) for v in alarms if v.check == "H")


def test_messages_between_stages() -> None:
    assert [str(v) for v in verify_distributed_inference(STAGES).verdicts] == ["send %s: passed H"]
    (alarm,) = verify_distributed_inference(STAGES, faults={"s": Fault("shift", 0, 1)}).alarms
    assert (alarm.culprit_ranks, alarm.rank) == ((0,), 1)


@pytest.mark.parametrize("kind", [*MOVEMENT, *SUMS])
@pytest.mark.parametrize("op", ["all_reduce", "all_gather"])
def test_values_of_shape_none(op: str, kind: str) -> None:
    plan = """program many mesh(tp=2)
  input %x: f64[]
  input %v: f64[1]
  %s = all_reduce %x {mesh_dim=tp}
  %g = all_gather %v {mesh_dim=tp, dim=0}
  return %s, %g
"""
    assert verify_distributed_inference(plan)
    if op == "all_gather" and kind in SUMS:
        return
    value = {"all_reduce": "s", "all_gather": "g"}[op]
    run = verify_distributed_inference(plan, faults={value: Fault(kind, 0, 1)})
    still = {"permute_rows", "shift", "wrong_dim", "swapped_chunks"}
    if op == "all_reduce":
        still |= {"swap", "duplicate", "rotate"}  # both ranks hold the sum
    assert bool(run.alarms) == (kind not in still)


def test_a_plan_that_exchanges_nothing_is_no_pass() -> None:
    run = verify_distributed_inference("program p\n  input %x: f64[2]\n  return %x")
    assert not run
    assert not run.alarms


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"plan": 3}, "expected the program of the ranks, or its text, got int"),
        ({"plan": "program p\n  %y = relu"}, "the plan: <text>:2"),
        ({"plan": PLAN, "inputs": []}, "0 sets of inputs for a mesh of 4 ranks"),
        ({"plan": PLAN, "inputs": [{}] * 4}, "does not run"),
        ({"plan": PLAN, "backend": "nccl"}, "backend 'nccl'; sim or gloo"),
        ({"plan": PLAN, "faults": {"zz": Fault("drop", 0, 0)}}, "no op is named 'zz'"),
        ({"plan": PLAN, "faults": {"g": Fault("nope", 0, 0)}}, "no fault 'nope'"),
        ({"plan": PLAN, "faults": {"g": "drop"}}, "expected a Fault(kind, rank, draw), got 'drop'"),
        ({"inputs": []}, "inputs are those of a plan"),
        ({**TINY, "n_ranks": 3}, "3 ranks cannot share hidden_dim=8 equally"),
        ({**TINY, "n_ranks": 0}, "n_ranks is 0, expected at least 1"),
        ({**TINY, "n_tokens": "8"}, "n_tokens is '8', expected an integer"),
        ({**TINY, "n_layers": 0}, "n_layers is 0, expected at least 1"),
        ({**TINY, "n_ranks": 2, "faults": {"layer 1": Fault("drop", 7, 0)}}, "on rank 7: there"),
        ({**TINY, "n_ranks": 2, "faults": {"handoff 1": Fault("drop", 1, 0)}}, "on rank 1: there"),
    ],
)
def test_bad_input_is_one_clear_error(given: dict[str, Any], said: str) -> None:
    with pytest.raises(FingerprintError) as error:
        verify_distributed_inference(**given)
    assert said in str(error.value)


@pytest.mark.torch
@pytest.mark.gloo
@pytest.mark.slow
def test_the_same_on_gloo() -> None:
    plan = PLAN.replace("dp=2, tp=2", "dp=2, tp=1")
    run = verify_distributed_inference(plan, backend="gloo", faults={"r": Fault("average", 1, 0)})
    assert {v.op for v in run.alarms} == {"reduce_scatter %r"}


@pytest.mark.torch
@pytest.mark.gloo
@pytest.mark.slow
def test_a_rank_that_ends_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Processes(2)
    x = np.ones(3)
    assert ranks("all_reduce", [x, x], (0, 1), {})[1].tolist() == [2.0, 2.0, 2.0]  # type: ignore[union-attr]
    ranks._ranks[1].kill()
    with pytest.raises(FingerprintError, match="backend gloo"):
        ranks("all_reduce", [x, x], (0, 1), {})
    ranks.close()
    monkeypatch.setattr(machine, "WORKER", "shardproof.synthesis.execute.none")
    with pytest.raises(FingerprintError, match="No module named"):
        Processes(2)
