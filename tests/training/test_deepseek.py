"""Latent attention and routed experts: sizes, proofs, every rank in float64, wrong variants."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache

import pytest

from benchmarks.mutation_testing.edits import sites, splice, with_attrs
from benchmarks.steps.model import MODELS, Degrees
from benchmarks.steps.step import training_step
from benchmarks.steps.truth import agrees, gap
from shardproof.synthesis.training.step import Step
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Attr
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof
from tests.training.steps import judged

V2, V3 = "tiny-deepseek-v2", "tiny-deepseek-v3"
PLANS = {
    "tensor parallel": (V3, Degrees(tp=2)),
    "experts over ranks": (V3, Degrees(dp=2, ep=2, zero=1)),
    "experts over ranks, split too": (V2, Degrees(ep=2, tp=2, zero=3, scan_layers=True)),
    "stages": (V2, Degrees(dp=2, tp=2, pp=2, micro_batches=2, scan_layers=True)),
    "stages in repeated micro-batches": (
        V3,
        Degrees(tp=2, pp=3, micro_batches=2, scan_layers=True, scan_micro_batches=True),
    ),
    "a first stage without experts": (V3, Degrees(tp=2, pp=3, micro_batches=2)),
}


@cache
def step_of(plan: str) -> Step:
    model, degrees = PLANS[plan]
    return training_step(MODELS[model], degrees, name=plan)


@pytest.mark.parametrize(
    ("model", "billions"),
    [("deepseek-16b", 15.7), ("deepseek-236b", 235.7), ("deepseek-671b", 671)],
)
def test_published_sizes_give_the_published_parameters(model: str, billions: float) -> None:
    assert MODELS[model].parameters / 1e9 == pytest.approx(billions, rel=1e-3)


@pytest.mark.parametrize("plan", PLANS)
def test_step_is_proved_and_every_rank_computes_it(plan: str) -> None:
    step = step_of(plan)
    assert max(gap(step, seed=seed) for seed in (1, 2)) < 1e-10
    proof = judged(step)
    assert isinstance(proof, Proof)
    again = check(proof.certificate, Problem(step.sequential, step.distributed, step.contract))
    assert isinstance(again, Accepted)


def shaped(op: str, *shape: int, **attrs: Attr) -> Callable[[Program, Node], bool]:
    def meets(p: Program, n: Node) -> bool:
        same = n.op == op and p.types[n.outputs[0]].shape == shape
        return same and all(n.attrs.get(k) == v for k, v in attrs.items())

    return meets


WRONG: dict[str, tuple[str, Callable[[Program, Node], bool], dict[str, Attr] | None]] = {
    "the gradient of a latent from one rank's heads": (
        "tensor parallel", shaped("all_reduce", 4, 4, 8, mesh_dim="tp"), None),
    "the gradient of the shared keys from one rank's heads": (
        "tensor parallel", shaped("all_reduce", 4, 4, 2, mesh_dim="tp"), None),
    "gates without their factor": (
        "tensor parallel", shaped("mul_scalar", 4, 4, 6, value=Fraction(5, 2)), None),
    "one expert a token": (
        "experts over ranks", shaped("topk_mask", 1, 4, 6, k=2), {"k": 1}),
    "one group of experts": (
        "stages", shaped("topk_mask", 1, 4, 3, k=2), {"k": 1}),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_wrong_variant_is_refuted(what: str) -> None:
    plan, find, attrs = WRONG[what]
    step = step_of(plan)
    site = next(s for s in sites(step.distributed) if find(s.scope, s.node))
    if attrs is None:
        edit = splice(step.distributed, site, [], (site.node.outputs[0], site.node.inputs[0]))
    else:
        edit = splice(step.distributed, site, [with_attrs(site.node, **attrs)])
    assert edit is not None
    assert not agrees(step, edit, trials=3)
    assert isinstance(judged(step, edit), Counterexample)
