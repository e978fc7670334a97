"""The training step on a pipeline of stages."""

from __future__ import annotations

from synthesis.training.model import Degrees, Model, Optimizer
from verifier.ir.program import Program


def program(model: Model, degrees: Degrees, opt: Optimizer) -> Program:
    raise NotImplementedError
