"""What the guard raises."""

from __future__ import annotations


class GuardError(RuntimeError):
    """A run that cannot go on: what, which ranks, what to look at."""


class FaultError(GuardError):
    """Ranks did not exchange what they should have: the same text on every rank."""
