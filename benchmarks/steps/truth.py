"""What a step really computes: every rank simulated in float64, with no rule involved."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.steps.examples import examples
from shardproof.synthesis.training.step import Step
from shardproof.verifier.domains.base import Array
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.where import EVERYWHERE, contains
from shardproof.verifier.refute.evaluate import evaluate, simulate
from shardproof.verifier.refute.scatter import piece, scatter

RTOL = 1e-10
"""Right steps differ by rounding, 1e-15 or so."""


def gap(step: Step, distributed: Program | None = None, seed: int = 0) -> float:
    """The largest relative difference of any output on any rank that must hold it.

    Infinite where shapes differ, a value is no number, or a rank has none.

    Raises:
        IRError: a node that some rank cannot run.
    """
    many = distributed or step.distributed
    rng = np.random.default_rng(seed)
    inputs = examples(step, rng)
    want = evaluate(step.sequential, inputs)
    ranks = _ranks(step, many, inputs, rng)
    names = {output_key(o): o.value for o in many.outputs}
    worst = 0.0
    for out in step.sequential.outputs:
        key = output_key(out)
        whole, layout = want[out.value], step.contract.outputs[key]
        size = max(float(np.max(np.abs(whole), initial=0.0)), 1e-9)
        for coords, local in zip(many.mesh.coords(), ranks, strict=True):
            if not contains(step.contract.wanted.get(key, EVERYWHERE), coords):
                continue
            have, expected = local.get(names[key]), piece(whole, layout, coords)
            if have is None or have.shape != expected.shape:
                return float("inf")
            error = float(np.max(np.abs(have - expected), initial=0.0)) / size
            worst = max(worst, error if np.isfinite(error) else float("inf"))
    return worst


def _ranks(
    step: Step, many: Program, inputs: Mapping[str, Array], rng: np.random.Generator
) -> list[dict[str, Array]]:
    mesh, floats = many.mesh, Floats()
    pieces = {
        i.name: scatter(inputs[i.name], step.contract.inputs[i.name], mesh, floats, rng)
        for i in many.inputs
    }
    return simulate(many, [{n: p[r] for n, p in pieces.items()} for r in range(mesh.size)])


def agrees(step: Step, distributed: Program | None = None, trials: int = 3) -> bool:
    """Whether all ranks compute what one device computes, on every trial."""
    with np.errstate(all="ignore"):
        return all(gap(step, distributed, seed) <= RTOL for seed in range(trials))
