"""Verdicts on class programs."""

from verifier.face.checks import DistributedVerifier
from verifier.face.verdicts import VerifyResult

__all__ = ["DistributedVerifier", "VerifyResult"]
