"""What reading the programs of all ranks gives: a program, its rank classes and what was found."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from verifier.kernel.program.program import Program
from verifier.kernel.program.types import Mesh

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
        detail = ", ".join(
            part
            for part in (
                f"expected {self.expected}" if self.expected else "",
                f"got {self.got}" if self.got else "",
            )
            if part
        )
        what = "; ".join(part for part in (self.message, detail) if part)
        return ": ".join(part for part in (self.where, at, what) if part)


class InputError(Exception):
    """Input that cannot be read any further; holds its finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


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


def _nothing() -> Program | None:
    return None


@dataclass(frozen=True)
class Ingested:
    """The programs of all ranks as one."""

    program: Program | None
    """What the ranks run together, every rank exactly; None where that was not found."""
    classes: tuple[RankClass, ...]
    findings: tuple[Finding, ...]
    stats: dict[str, float]
    mesh: str = ""
    unite_others: Callable[[], Program | None] = _nothing
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
