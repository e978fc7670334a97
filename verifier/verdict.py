"""Verdicts are values: `Proof | Counterexample | Unknown`, read with `match`."""

from dataclasses import dataclass, field
from typing import Any

from verifier.kernel.program.types import NOWHERE, Source


@dataclass(frozen=True)
class Relation:
    """How one value of the distributed program relates to the one-device program."""

    value: str
    op: str
    found: tuple[str, ...]
    """For example `%h as [2@tp, 4]`: which value it is a piece of, and which piece. Empty where
    no relation was found."""
    source: Source = NOWHERE


class Acceptance:
    """What the checker passes to make a proof, and nothing else does."""


@dataclass(frozen=True)
class Proof:
    """Every output of the distributed program is the one-device output, laid out as contracted.

    The checker makes it of a certificate that it accepts. Raises TypeError elsewhere.
    """

    scope: tuple[str, ...]
    """For which sizes and which mesh."""
    assumptions: tuple[str, ...]
    certificate: dict[str, Any]
    stats: dict[str, float] = field(default_factory=dict[str, float])
    relations: tuple[Relation, ...] = ()
    checked: str = ""
    """What the checker said when it made this."""
    claims: int = 0
    engine: str = ""
    """What the checker has to believe beside its rules: empty where it replayed steps."""
    by: type[Acceptance] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.by is not Acceptance:
            raise TypeError("a proof is made by the checker alone, of a certificate it accepts")


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
