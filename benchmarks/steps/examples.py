"""Inputs of a training step as they are in training."""

from __future__ import annotations

import numpy as np

from shardproof.synthesis.training import optimizer
from shardproof.synthesis.training.step import Step
from shardproof.verifier.domains.base import Array
from shardproof.verifier.refute.search import too_large


def examples(step: Step, rng: np.random.Generator) -> dict[str, Array]:
    """Random inputs as they are in training: second moments and token weights not negative.

    Parameters are large or small, so that the norm of the gradient is above or below its limit.
    """
    size = 2.0 ** -rng.choice([0, 4])
    tables = (w.type.shape[0] for w in step.sequential.inputs if w.name == "embed")
    top = min(tables, default=2)
    out: dict[str, Array] = {}
    for item in step.sequential.inputs:
        if not item.type.is_float:
            out[item.name] = rng.integers(0, top, item.type.shape)
        elif item.name == "weight":
            kept = rng.random(item.type.shape) < 0.75
            out[item.name] = kept * rng.uniform(0.5, 1.5, item.type.shape)
            out[item.name].flat[0] = 1.0
        else:
            out[item.name] = rng.standard_normal(item.type.shape)
        if item.role == "param":
            out[item.name] *= size
        if item.name.endswith(".second") or item.name in optimizer.SCALARS:
            out[item.name] = np.abs(out[item.name])
    return out


def preconditions(step: Step) -> dict[str, Array]:
    """Values for the inputs that are never negative, for replays of a witness.

    Empty where the programs are too large to be run on numbers.
    """
    if too_large(step.sequential, step.distributed):
        return {}
    drawn = examples(step, np.random.default_rng(7))
    nonnegative = ("weight", *optimizer.SCALARS)
    return {n: a for n, a in drawn.items() if n.endswith(".second") or n in nonnegative}
