"""What comes of comparing every element of every output."""

from __future__ import annotations

from dataclasses import dataclass, field

from verifier.verdict import Witness


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
class Differs:
    """An element that differs on plain numbers."""

    output: str
    rank: dict[str, int]
    index: tuple[int, ...]
    witness: Witness


@dataclass(frozen=True)
class Undecided:
    """Neither, and why."""

    reason: str
    output: str = ""
    index: tuple[int, ...] = ()


Decision = Equal | Differs | Undecided
