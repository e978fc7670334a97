"""The training step on every rank of a mesh, and the contract that ties it to one device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synthesis.training import optimizer
from verifier.domains.base import Array
from verifier.kernel.contract import Contract
from verifier.kernel.program.program import Program
from verifier.refute.search import too_large


class TrainingError(ValueError):
    """Sizes or degrees that do not fit: what, expected, got, what to try."""


@dataclass(frozen=True)
class Step:
    """A training step: one device, every rank, and how they belong together."""

    name: str
    sequential: Program
    distributed: Program
    contract: Contract

    def __str__(self) -> str:
        return self.name

    def examples(self, rng: np.random.Generator) -> dict[str, Array]:
        """Random inputs as they are in training: second moments and token weights not negative.

        Parameters are large or small, so that the norm of the gradient is above or below its limit.
        """
        size = 2.0 ** -rng.choice([0, 4])
        tables = (w.type.shape[0] for w in self.sequential.inputs if w.name == "embed")
        top = min(tables, default=2)
        out: dict[str, Array] = {}
        for item in self.sequential.inputs:
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

    @property
    def preconditions(self) -> dict[str, Array]:
        """Values for the inputs that are never negative, for replays of a witness.

        Empty where the programs are too large to be run on numbers.
        """
        if too_large(self.sequential, self.distributed):
            return {}
        drawn = self.examples(np.random.default_rng(7))
        nonnegative = ("weight", *optimizer.SCALARS)
        return {n: a for n, a in drawn.items() if n.endswith(".second") or n in nonnegative}
