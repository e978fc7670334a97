"""What running the user's code on samples gives back. Plain data: no torch."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from synthesis.frontends.torch.branch_coverage import Way
from synthesis.frontends.torch.captured import Captured
from synthesis.frontends.torch.captured import load as load_captured
from synthesis.frontends.torch.captured import save as save_captured
from synthesis.frontends.torch.request import InputSpec
from synthesis.frontends.torch.stubs import Missing
from verifier.kernel.program.types import TensorType

Array = NDArray[Any]
Arrays = Mapping[str, Array]
T = TypeVar("T")
KINDS = ("inputs", "params", "outputs", "grads", "cotangents")


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


def save(observed: Observed, folder: Path) -> None:
    """Write `observed.json`, arrays, and the captured rest."""
    arrays: dict[str, Array] = {}
    subjects = [observed.whole, *observed.parts]
    document = {
        "problem": asdict(observed.problem) if observed.problem else None,
        "missing": [asdict(m) for m in observed.missing],
        "subjects": [_dumped(s, f"{n}", arrays) if s else None for n, s in enumerate(subjects)],
        "holes": [asdict(h) for h in observed.holes],
        "around": observed.around is not None,
        "captured": observed.captured is not None,
        "source": observed.source,
        "file": observed.file,
    }
    for name in ("around", "captured"):
        found = getattr(observed, name)
        if found is not None:
            (folder / name).mkdir()
            save_captured(found, folder / name)
    given: Any = arrays
    np.savez(folder / "observed.npz", **given)
    (folder / "observed.json").write_text(json.dumps(document))


def load(folder: Path) -> Observed:
    """Read what `save` wrote."""
    document = json.loads((folder / "observed.json").read_text())
    with np.load(folder / "observed.npz", allow_pickle=False) as file:
        arrays = {k: file[k] for k in file.files}
    subjects = [
        _loaded(s, f"{n}", arrays) if s else None for n, s in enumerate(document["subjects"])
    ]
    return Observed(
        Trouble(**document["problem"]) if document["problem"] else None,
        _all(Missing, document["missing"]),
        subjects[0],
        tuple(s for s in subjects[1:] if s is not None),
        load_captured(folder / "around") if document["around"] else None,
        _all(Hole, document["holes"]),
        load_captured(folder / "captured") if document["captured"] else None,
        document["source"],
        document["file"],
    )


def _all(kind: type[T], rows: list[Any]) -> tuple[T, ...]:
    """What `asdict` made rows of."""
    return tuple(map(TypeAdapter(kind).validate_python, rows))


def _dumped(subject: Subject, head: str, arrays: dict[str, Array]) -> dict[str, Any]:
    for path, value in subject.consts.items():
        arrays[f"{head}/consts/{path}"] = value
    for n, value in enumerate(subject.values):
        arrays[f"{head}/values/{n}"] = value.array
    for n, sample in enumerate(subject.samples):
        for kind in KINDS:
            for name, array in getattr(sample, kind).items():
                arrays[f"{head}/{n}/{kind}/{name}"] = array
    plain = ("name", "path", "alike", "slopes", "precision", "notes")
    return {
        **{k: getattr(subject, k) for k in plain},
        "inputs": [asdict(i) for i in subject.inputs],
        "params": [asdict(p) for p in subject.params],
        "outputs": [asdict(o) for o in subject.outputs],
        "samples": [
            {"label": s.label, "seed": s.seed, "left_out": s.left_out} for s in subject.samples
        ],
        "values": [{"file": v.file, "line": v.line, "op": v.op} for v in subject.values],
        "ways": [asdict(w) for w in subject.ways],
        "functions": [asdict(f) for f in subject.functions],
        "problem": asdict(subject.problem) if subject.problem else None,
    }


def _loaded(data: dict[str, Any], head: str, arrays: dict[str, Array]) -> Subject:
    def under(prefix: str) -> dict[str, Array]:
        start = f"{head}/{prefix}/"
        return {k[len(start) :]: v for k, v in arrays.items() if k.startswith(start)}

    samples = tuple(
        Sample(
            row["label"],
            row["seed"],
            *(under(f"{n}/{kind}") for kind in KINDS),
            left_out=row["left_out"],
        )
        for n, row in enumerate(data["samples"])
    )
    values = tuple(
        Value(**row, array=arrays[f"{head}/values/{n}"]) for n, row in enumerate(data["values"])
    )
    return Subject(
        name=data["name"],
        path=data["path"],
        alike=tuple(data["alike"]),
        inputs=_all(InputSpec, data["inputs"]),
        params=_all(ParamFact, data["params"]),
        consts=under("consts"),
        outputs=_all(OutFact, data["outputs"]),
        samples=samples,
        values=values,
        ways=_all(Way, data["ways"]),
        functions=_all(Handwritten, data["functions"]),
        slopes=data["slopes"],
        precision=data["precision"],
        problem=Trouble(**data["problem"]) if data["problem"] else None,
        notes=tuple(data["notes"]),
    )
