"""Verdicts on class programs."""

from verifier.face.checks import DistributedVerifier, VerifyResult

__all__ = ["DistributedVerifier", "VerifyResult"]
