"""Writes a plan as source: a patch that PyTorch users can read, apply and run."""

from shardproof.synthesis.emit.emit import emit
from shardproof.synthesis.emit.facts import ModelFacts
from shardproof.synthesis.emit.loss import loss_obstacle
from shardproof.synthesis.emit.patch import EmitError, Patch
from shardproof.synthesis.emit.styles import supported

__all__ = ["EmitError", "ModelFacts", "Patch", "emit", "loss_obstacle", "supported"]
