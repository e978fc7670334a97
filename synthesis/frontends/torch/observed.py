"""What running the user's code on samples gives back. Plain data: no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardproof.synthesis.frontends.torch.branch_coverage import Way
from shardproof.synthesis.frontends.torch.captured import Array, Captured
from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.synthesis.frontends.torch.stubs import Missing
from shardproof.verifier.kernel.program.types import TensorType

Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Trouble:
    """Something that went wrong, and the user's line it came from."""

    message: str
    file: str = ""
    line: int = 0
    text: str = ""
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        at = "   ".join(part for part in (place, self.text) if part)
        return f"{self.message}  at {at}" if at else self.message


@dataclass(frozen=True)
class ParamFact:
    """A parameter, or a buffer."""

    path: str
    type: TensorType
    trainable: bool = True


@dataclass(frozen=True)
class OutFact:
    """A tensor that `forward` returned."""

    role: str
    path: str
    type: TensorType


@dataclass(frozen=True)
class Sample:
    """One run of the code: values in, values out."""

    label: str
    seed: int
    inputs: Arrays
    params: Arrays
    outputs: Arrays
    grads: Arrays
    """Of parameters by path, of float inputs by `input:name`; empty where none were taken."""
    cotangents: Arrays
    left_out: str = ""
    """Why nothing is compared on it."""


@dataclass(frozen=True)
class Handwritten:
    """A `torch.autograd.Function` that ran, and whether its backward is its forward's gradient."""

    name: str
    file: str
    line: int
    """Of its backward."""
    argument: str = ""
    """The argument whose gradient is wrong; empty where none is."""
    slope: float = 0.0
    """Along a direction, by differences of its own forward."""
    told: float = 0.0
    """Along the same direction, by its backward."""


@dataclass(frozen=True)
class Value:
    """A tensor that a line of the code made, on the first sample."""

    file: str
    line: int
    op: str
    array: Array


@dataclass(frozen=True)
class Subject:
    """What was run: the whole model, or one module of it that capture cannot take."""

    name: str
    """Class name."""
    path: str
    """Module path; empty for the whole model."""
    alike: tuple[str, ...]
    """Paths of the modules that are the same code at the same sizes, this one first."""
    inputs: tuple[InputSpec, ...]
    params: tuple[ParamFact, ...]
    consts: Arrays
    """Values of buffers by path."""
    outputs: tuple[OutFact, ...]
    samples: tuple[Sample, ...] = ()
    values: tuple[Value, ...] = ()
    ways: tuple[Way, ...] = ()
    functions: tuple[Handwritten, ...] = ()
    slopes: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """By name of a gradient: whether the code's gradient is the slope of its own forward."""
    precision: str = "f64"
    problem: Trouble | None = None
    """Why it did not run."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hole:
    """A module that was left out of the captured program."""

    path: str
    arguments: tuple[str, ...]
    """Values of the program that it gets, by the name of its output there."""
    results: tuple[str, ...]
    """Inputs of the program that stand for what it returns."""


@dataclass(frozen=True)
class Observed:
    """A target that was tried: what capture said, and what the code does on samples."""

    problem: Trouble | None
    """Why capture could not take it; None where it could."""
    missing: tuple[Missing, ...]
    whole: Subject | None
    """None where the class could not even be looked at."""
    parts: tuple[Subject, ...] = ()
    """What is to be translated where the rest was captured."""
    around: Captured | None = None
    """The rest, forward only."""
    holes: tuple[Hole, ...] = ()
    captured: Captured | None = None
    """Facts of the model, with an empty program where it was not captured."""
    source: str = ""
    file: str = ""
    """Name of the user's file."""
