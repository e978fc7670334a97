"""The checks, in the order in which they are run."""

from shardproof.verifier.order.checks.base import Check
from shardproof.verifier.order.checks.calls import CALLS
from shardproof.verifier.order.checks.handles import HANDLES
from shardproof.verifier.order.checks.progress import PROGRESS
from shardproof.verifier.order.checks.races import RACES
from shardproof.verifier.order.checks.values import VALUES

__all__ = ["CHECKS", "Check"]

CHECKS: tuple[Check, ...] = (*CALLS, *HANDLES, *PROGRESS, *RACES, *VALUES)
