"""Verdicts are values: `Proof | Counterexample | Unknown`, read with `match`."""

from dataclasses import dataclass, field
from typing import Any

from shardproof.verifier.kernel.program.types import NOWHERE, Source
from shardproof.verifier.proof import Proof as Proof, Relation as Relation


@dataclass(frozen=True)
class Witness:
    """One element that differs, replayed in float64 on plain numbers."""

    output: str
    rank: dict[str, int]
    """Coordinates of the rank on the mesh."""
    index: tuple[int, ...]
    """Index into the piece on that rank."""
    expected: float
    got: float
    inputs: dict[str, Any] = field(default_factory=dict[str, Any])
    """The shrunk one-device inputs, as nested lists (left out where large)."""
    sizes: str = ""
    """The extents at which it was shown, where they are not those of the programs."""


@dataclass(frozen=True)
class Trace:
    """A run of the ranks that goes wrong whatever the numbers are: one waits for ever, one reads
    too early, or one is asked for a value that it never has."""

    check: str
    """Which check found it, for example `communication legality`."""
    message: str
    steps: tuple[str, ...] = ()
    """What happens, in order."""


@dataclass(frozen=True)
class Location:
    """The first op without a relation, or whose relation is not the one asked for."""

    op: str
    text: str
    reason: str
    source: Source = NOWHERE
    operands: tuple[str, ...] = ()
    """What each operand was found to be."""
    mesh_dim: str | None = None


@dataclass(frozen=True)
class Counterexample:
    """The programs differ: shown on numbers, or by a run that goes wrong."""

    mesh: str
    witness: Witness | Trace
    location: Location | None = None
    wrong_outputs: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    """Edits that were tried and proved."""
    stats: dict[str, float] = field(default_factory=dict[str, float])
    relations: tuple[Relation, ...] = ()
    smaller: str = ""
    """The same on the smallest mesh and extents where it still shows."""


@dataclass(frozen=True)
class Unknown:
    """Neither proved nor refuted, and what was missing."""

    reason: str
    location: Location | None = None
    open_outputs: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    stats: dict[str, float] = field(default_factory=dict[str, float])
    relations: tuple[Relation, ...] = ()


Verdict = Proof | Counterexample | Unknown
