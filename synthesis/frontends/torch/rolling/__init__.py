"""Describes repeated blocks once: isomorphic layers become one `scan` forward and one backward."""

from synthesis.frontends.torch.rolling.paths import Group, members
from synthesis.frontends.torch.rolling.roll import NotRolledError, Rolled, Stretch, roll

__all__ = ["Group", "NotRolledError", "Rolled", "Stretch", "members", "roll"]
