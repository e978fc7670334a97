"""Describes repeated blocks once: isomorphic layers become one `scan` forward and one backward."""

from verifier.frontend.rolling.build import Rolled, roll
from verifier.frontend.rolling.paths import Group, members

__all__ = ["Group", "Rolled", "members", "roll"]
