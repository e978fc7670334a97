"""Describes repeated blocks once: isomorphic layers become one `scan` forward and one backward."""

from verifier.frontend.rolling.build import NotRolled, Rolled, Stretch, roll
from verifier.frontend.rolling.paths import Group, members

__all__ = ["Group", "NotRolled", "Rolled", "Stretch", "members", "roll"]
