"""Verdicts on class programs."""

from shardproof.compat.checks import DistributedVerifier
from shardproof.compat.verdicts import VerifyResult

__all__ = ["DistributedVerifier", "VerifyResult"]
