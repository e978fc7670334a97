"""The ground truth of the campaign: float64 simulation of every rank, with no rule involved."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.mutation_testing.author import Base
from shardproof.verifier.domains.base import Array
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.refute.evaluate import evaluate, simulate
from shardproof.verifier.refute.scatter import copies, gather, scatter

FLOATS = Floats()
RTOL = 1e-7


def draw(program: Program, rng: np.random.Generator, indices: int = 8) -> dict[str, Array]:
    """Random inputs of a one-device program; index inputs are below `indices`."""
    return {
        i.name: rng.standard_normal(i.type.shape)
        if i.type.is_float
        else rng.integers(indices, size=i.type.shape)
        for i in program.inputs
    }


def gap(base: Base, distributed: Program, seed: int) -> float:
    """Largest relative difference of any output on any rank, at random inputs.

    Infinite where shapes differ or the values of a rank are not numbers.
    """
    rng = np.random.default_rng(seed)
    inputs = draw(base.sequential, rng)
    want = evaluate(base.sequential, inputs, FLOATS)
    have = _ranks(base, distributed, inputs, rng)
    worst = 0.0
    for out in base.sequential.outputs:
        key, expected = output_key(out), want[out.value]
        layout, scale = base.contract.outputs[key], np.max(np.abs(expected), initial=1e-3)
        parts = have.get(key)
        if parts is None or any(p.shape != layout.local_shape for p in parts):
            return float("inf")
        pairs = [(parts[r], parts[o]) for r, o in copies(layout, distributed.mesh)]
        pairs.append((gather(parts, layout, distributed.mesh, FLOATS), expected))
        for a, b in pairs:
            error = float(np.max(np.abs(a - b), initial=0.0)) / float(scale)
            worst = max(worst, error if np.isfinite(error) else float("inf"))
    return worst


def _ranks(
    base: Base, distributed: Program, inputs: Mapping[str, Array], rng: np.random.Generator
) -> dict[str, list[Array]]:
    mesh, layouts = distributed.mesh, base.contract.inputs
    pieces = {
        i.name: scatter(np.asarray(inputs[i.name]), layouts[i.name], mesh, FLOATS, rng)
        for i in distributed.inputs
    }
    state = simulate(
        distributed, [{n: p[r] for n, p in pieces.items()} for r in range(mesh.size)], FLOATS
    )
    return {output_key(o): [local[o.value] for local in state] for o in distributed.outputs}


def equal(base: Base, distributed: Program, trials: int = 3) -> bool:
    """Whether the distributed program agrees with the one-device program on every trial."""
    with np.errstate(all="ignore"):
        return all(gap(base, distributed, seed) <= RTOL for seed in range(trials))
