"""The training step around a captured model: proved as planned, refuted where a rank errs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from benchmarks.steps.truth import agrees
from shardproof.synthesis.autodiff.autodiff import grad
from shardproof.synthesis.hardware import load
from shardproof.synthesis.planner.planner import Asked, Synthesis, synthesize
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.synthesis.training.captured import captured_step
from shardproof.synthesis.training.step import Step, TrainingError
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof


def model() -> Program:
    """Two linear layers and a mean of squares, with gradients, as capture gives a model."""
    b = Builder("model")
    x = b.input("x", TensorType((4, 8)), "input", "x")
    first = b.param("up", TensorType((8, 16)), "up.weight")
    second = b.param("down", TensorType((16, 8)), "down.weight")
    y = b.add("mm", b.add("relu", b.add("mm", x, first)), second)
    b.output(b.add("mean", b.add("mul", y, y), dims=(0, 1)), "loss", "loss")
    return grad(b.build())


@cache
def planned(dp: int, tp: int) -> Synthesis:
    mesh = Mesh(tuple((n, s) for n, s in (("dp", dp), ("tp", tp)) if s > 1))
    return synthesize(Asked(model(), mesh, load("h100")))


def step(dp: int, tp: int, micro_batches: int) -> Step:
    made = planned(dp, tp)
    return captured_step(
        made.sequential, made.lowered.program, made.lowered.contract, micro_batches
    )


@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.parametrize(("dp", "tp"), [(1, 2), (2, 1), (2, 2)])
def test_a_planned_step_is_proved(dp: int, tp: int, micro_batches: int) -> None:
    made = step(dp, tp, micro_batches)
    verdict = verify(Problem(made.sequential, made.distributed, made.contract))
    assert isinstance(verdict, Proof)
    said = check(verdict.certificate, Problem(made.sequential, made.distributed, made.contract))
    assert isinstance(said, Accepted)
    assert agrees(made, trials=1)


def test_a_norm_of_one_piece_is_refuted() -> None:
    made = step(1, 2, 2)
    nodes = list(made.distributed.nodes)
    after = next(i for i, n in enumerate(nodes) if n.op == "scan")
    at = next(i for i in range(after, len(nodes)) if nodes[i].op == "all_reduce")
    (lost,), (value,) = nodes[at].inputs, nodes[at].outputs
    later = [replace(n, inputs=tuple(lost if v == value else v for v in n.inputs)) for n in nodes]
    wrong = replace(made.distributed, nodes=(*later[:at], *later[at + 1 :]))
    verdict = verify(Problem(made.sequential, wrong, made.contract))
    assert isinstance(verdict, Counterexample)


def test_a_model_without_gradients_has_no_step() -> None:
    made = planned(1, 2)
    bare = replace(
        made.sequential, outputs=tuple(o for o in made.sequential.outputs if o.role != "grad")
    )
    with pytest.raises(TrainingError, match="no gradients"):
        captured_step(bare, made.lowered.program, made.lowered.contract, 1)
    with pytest.raises(TrainingError, match="micro_batches = 0"):
        captured_step(made.sequential, made.lowered.program, made.lowered.contract, 0)
