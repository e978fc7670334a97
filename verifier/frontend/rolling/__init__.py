"""Describes repeated blocks once: isomorphic layers become one `scan` forward and one backward."""

from verifier.frontend.rolling.paths import Group, members
from verifier.frontend.rolling.roll import NotRolledError, Rolled, Stretch, roll

__all__ = ["Group", "NotRolledError", "Rolled", "Stretch", "members", "roll"]
