"""What reading the programs of all ranks gives: a program, its rank classes and what was found."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh

KINDS = ("malformed", "mismatch", "unsupported", "deviates")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found, on one rank, at one line.

    `malformed`: the input is no set of rank programs. `mismatch`: the ranks cannot run together
    (one waits for ever). `unsupported`: they may, but no one program was written for them.
    `deviates`: this rank's text is unlike that of its class; it may still be right.
    """

    kind: str
    message: str
    where: str = ""
    """`file:line`."""
    rank: int | None = None
    coords: dict[str, int] = field(default_factory=dict[str, int])
    expected: str = ""
    got: str = ""

    def __str__(self) -> str:
        at = "" if self.rank is None else f"rank {self.rank}"
        if self.coords:
            at += f" ({', '.join(f'{k}={v}' for k, v in self.coords.items())})"
        expected = f"expected {self.expected}" if self.expected else ""
        detail = ", ".join(filter(None, (expected, f"got {self.got}" if self.got else "")))
        what = "; ".join(filter(None, (self.message, detail)))
        return ": ".join(filter(None, (self.where, at, what)))


class InputError(Exception):
    """Input that cannot be read any further; holds its finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


def malformed(
    what: str,
    where: str,
    rank: int | None = None,
    mesh: Mesh | None = None,
    *,
    expected: str = "",
    got: str = "",
) -> InputError:
    """The error of input that is no set of rank programs."""
    at = coordinates(mesh, rank) if mesh is not None and rank is not None else {}
    return InputError(Finding("malformed", what, where, rank, at, expected, got))


def coordinates(mesh: Mesh, rank: int) -> dict[str, int]:
    """Mesh coordinates of a rank (last mesh dim fastest)."""
    out: dict[str, int] = {}
    for name, size in reversed(mesh.dims):
        rank, out[name] = divmod(rank, size)
    return dict(reversed(out.items()))


@dataclass(frozen=True, slots=True)
class RankClass:
    """Ranks that run the same text, but for numbers that are affine in mesh coordinates."""

    ranks: tuple[int, ...]
    lines: int
    where: str
    """The file and first line of its first rank."""


@dataclass(frozen=True)
class Ingested:
    """The programs of all ranks as one."""

    program: Program | None
    """What the ranks run together, every rank exactly; None where that was not found."""
    classes: tuple[RankClass, ...]
    findings: tuple[Finding, ...]
    stats: dict[str, float]
    mesh: str = ""
    unite_others: Callable[[], Program | None] = lambda: None
    """Makes `majority`."""

    @cached_property
    def majority(self) -> Program | None:
        """Where ranks deviate: what all ranks would run if these ran what the ranks around them do.

        Made when it is first asked for, which takes as long as `program` did.
        """
        return self.unite_others()

    def of_kind(self, *kinds: str) -> Sequence[Finding]:
        """Findings of these kinds, in order."""
        return [f for f in self.findings if f.kind in kinds]
