"""Backward of class programs."""

from verifier.face.gradients import AutogradEngine, GradientCheckResult

__all__ = ["AutogradEngine", "GradientCheckResult"]
