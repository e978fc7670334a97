"""What comes of comparing every element of every output."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardproof.verifier.domains.base import Array


@dataclass(frozen=True)
class Equal:
    """Every element of every output is equal, for all float inputs in scope."""

    scope: tuple[str, ...]
    forms: dict[str, str]
    """By output key: a digest of the canonical forms of all elements."""
    cases: int = 1
    """Values of the integer inputs that were tried: all there are."""
    assumptions: tuple[str, ...] = ()
    stats: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Undecided:
    """An element that is not shown to be equal, or none looked at, and why."""

    reason: str
    output: str = ""
    index: tuple[int, ...] = ()
    case: Mapping[str, Array] | None = None
    """The values of integer inputs at which it was met; None where nothing was compared."""


Decision = Equal | Undecided
