"""How far a translation may be trusted, as types.

`Bound` was compared with the code and agreed. Only `agent.translation.binding` makes one: a plan,
a proof and a certificate take nothing else. `DisplayOnly` is a program that nobody compared with
anything: it can be looked at.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from shardproof.synthesis.frontends.torch.observed import Handwritten, Trouble
from shardproof.verifier.kernel.program.program import Program


@dataclass(frozen=True)
class Seal:
    """What `binding` puts on the two programs that it compared with the code; nobody else does."""

    forward: Program
    program: Program


@dataclass(frozen=True)
class Evidence:
    """On what a program and the code agreed."""

    subject: str
    """Which code."""
    samples: int
    with_gradients: int
    extents: str
    """Of the inputs, the same on all samples."""
    precision: str
    largest_error: float
    """Relative to the largest magnitude of its tensor."""
    seeds: tuple[int, ...]
    left_out: tuple[str, ...] = ()
    """Samples that were not compared, and why."""
    ways: int = 0
    """Conditions of the code that went both ways."""
    one_way: tuple[str, ...] = ()
    """Conditions that went one way only, as sentences."""
    notes: tuple[str, ...] = ()

    def sentences(self) -> tuple[str, ...]:
        """As assumptions of a proof."""
        both = f", {self.ways} conditions of it went both ways" if self.ways else ""
        first = (
            f"The translation agrees with {self.subject} on {self.samples} samples "
            f"({self.extents}; values, and gradients on {self.with_gradients} of them; "
            f"{self.precision}, largest relative error {self.largest_error:.1e}{both}); "
            "elsewhere that is assumed."
        )
        left = [f"Not compared: {why}." for why in self.left_out]
        return (first, *left, *self.one_way, *self.notes)


@dataclass(frozen=True)
class Bound:
    """A translation that agrees with the code. Made by `binding` alone."""

    forward: Program
    program: Program
    """Forward and backward."""
    evidence: tuple[Evidence, ...]
    consts: Mapping[str, NDArray[Any]] = field(repr=False)
    seal: Seal | None = field(repr=False, default=None)

    def __post_init__(self) -> None:
        seal = self.seal
        if seal is None or seal.forward is not self.forward or seal.program is not self.program:
            raise TypeError("a translation is bound by comparing it with the code, not by hand")

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a proof about the program assumes about the code."""
        return tuple(s for e in self.evidence for s in e.sentences())


@dataclass(frozen=True)
class DisplayOnly:
    """A translation that could not be compared with the code, and why."""

    forward: Program
    reason: str


@dataclass(frozen=True)
class Suspect:
    """The first op whose value the code never made, though it made what the op reads."""

    value: str
    op: str
    line: int


@dataclass(frozen=True)
class Differs:
    """The program and the code give different values on the same numbers."""

    what: str
    """`output y`, `gradient of w`, or a check that the program fails by itself."""
    sample: str = ""
    index: tuple[int, ...] = ()
    expected: float = 0.0
    """By the code."""
    got: float = 0.0
    """By the program."""
    suspect: Suspect | None = None
    hints: tuple[str, ...] = ()
    subject: str = ""

    @property
    def kind(self) -> str:
        """Equal for differences that show the same mistake: what differs, and where it begins."""
        where = f" at {self.suspect.op}, line {self.suspect.line}" if self.suspect else ""
        ratio = self.got / self.expected if self.expected else 0.0
        return f"{self.what}{where}, factor {ratio:.6g}"

    def lines(self) -> list[str]:
        """For a model and for people; one fact a line."""
        out: list[str] = []
        if self.sample:
            at = ", ".join(map(str, self.index))
            out.append(
                f"{self.what}[{at}] on the sample '{self.sample}': the code gives "
                f"{self.expected:.10g}, the program {self.got:.10g}"
            )
        else:
            out.append(self.what)
        if self.suspect is not None:
            line = f", tagged with line {self.suspect.line}" if self.suspect.line else ""
            out.append(
                f"the first op whose value the code never made, though it made its operands: "
                f"%{self.suspect.value} = {self.suspect.op}{line}"
            )
        return [*out, *self.hints]


@dataclass(frozen=True)
class BackwardDiffers:
    """Values agree and gradients do not, because a backward in the code is not the gradient of
    its forward. That is told about the code, not about the translation."""

    what: str
    functions: tuple[Handwritten, ...]
    subject: str = ""

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"{self.what} differs, and all outputs agree",
            *(self._line(f) for f in self.functions),
        ]

    def advice(self) -> list[str]:
        """For a model: such a backward may be meant."""
        return [
            *self.lines(),
            "where that is meant (a straight-through estimator, a scaled gradient), write it with "
            "`detach`: y = soft + detach(hard - soft) has the value of hard and the gradient of "
            "soft; where it is a mistake of the source, send the same program again",
        ]

    @staticmethod
    def _line(f: Handwritten) -> str:
        return (
            f"{f.file}:{f.line}: the backward of {f.name} is not the gradient of its forward: "
            f"along a random direction of its argument {f.argument} the forward changes by "
            f"{f.slope:.6g}, the backward says {f.told:.6g}"
        )


@dataclass(frozen=True)
class NotRunnable:
    """The code does not run here, so nothing can be compared with it."""

    why: Trouble

    def __str__(self) -> str:
        return str(self.why)


Judged = Bound | Differs | BackwardDiffers | NotRunnable
