"""Why entries are not shown to be equal."""

from collections.abc import Mapping
from dataclasses import dataclass

from shardproof.verifier.domains.base import Array


@dataclass(frozen=True)
class Undecided:
    """An entry that is not shown to be equal, or none looked at, and why."""

    reason: str
    case: Mapping[str, Array] | None = None
    """The values of integer inputs at which it was met; None where nothing was compared."""
