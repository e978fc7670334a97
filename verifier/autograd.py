"""Backward of class programs."""

from shardproof.compat.gradients import AutogradEngine, GradientCheckResult

__all__ = ["AutogradEngine", "GradientCheckResult"]
