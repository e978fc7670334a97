"""A second, smaller opinion on proofs: replays a certificate claim by claim.

It never searches and never asks an op how placements pass through it: each claim is checked
against rules written here anew. Shared with the verifier are the IR with its type rules, the
inlining of composites, layouts as data, the normal form of terms and the contract's own check.
"""

from verifier.checker.replay import Accepted, Rejected, Result, check

__all__ = ["Accepted", "Rejected", "Result", "check"]
