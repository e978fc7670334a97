"""The one error of this package."""

from __future__ import annotations


class FingerprintError(ValueError):
    """A call that has no answer: what, where, expected, got, what to try."""
