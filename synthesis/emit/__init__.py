"""Writes a plan as source: a patch that PyTorch users can read, apply and run."""

from synthesis.emit.emit import emit
from synthesis.emit.facts import ModelFacts
from synthesis.emit.loss import loss_obstacle
from synthesis.emit.patch import EmitError, Patch
from synthesis.emit.styles import supported

__all__ = ["EmitError", "ModelFacts", "Patch", "emit", "loss_obstacle", "supported"]
