"""The checks, in the order in which they are run."""

from verifier.order.checks.base import Check
from verifier.order.checks.calls import CALLS
from verifier.order.checks.handles import HANDLES
from verifier.order.checks.progress import PROGRESS
from verifier.order.checks.races import RACES
from verifier.order.checks.values import VALUES

__all__ = ["CHECKS", "Check"]

CHECKS: tuple[Check, ...] = (*CALLS, *HANDLES, *PROGRESS, *RACES, *VALUES)
