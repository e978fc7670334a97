"""What capture of all ranks gives back. Plain data: no torch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from synthesis.frontends.torch.process import run_worker
from synthesis.frontends.torch.ranks.request import EVAL, RanksRequest
from synthesis.frontends.torch.request import InputSpec, Progress, split_target
from verifier.kernel.program.program import Program
from verifier.kernel.program.types import TensorType
from verifier.text.jsonio import from_json


@dataclass(frozen=True)
class Draw:
    """One tensor of zeros and ones that is drawn."""

    name: str
    """`dropout.<module>.<n>`, the n-th that this module draws."""
    shape: tuple[int, ...]
    keep: float
    """The probability of a one."""
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Side:
    """A module as it was traced: on one device, or on one rank."""

    program: Program
    name: str
    """Its class."""
    params: Mapping[str, TensorType]
    """By the names of the one-device model; extents of this rank."""
    frozen: tuple[str, ...]
    unreached: tuple[str, ...]
    """Trainable parameters that the backward gives no gradient."""
    raw: tuple[tuple[str, int, str], ...]
    """(file, line, what) of collectives that change a tensor behind autograd's back."""
    buffers: tuple[str, ...]
    notes: tuple[str, ...]
    draws: tuple[Draw, ...]
    """Masks of dropout, inputs of the program, by the names of the one-device model."""
    consts: Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Rank(Side):
    """What one rank does."""

    renamed: Mapping[str, str]
    """Its parameters that the model calls differently."""
    renamed_arguments: Mapping[str, str]
    """Inputs of the model that its `forward` calls differently."""
    tables: Mapping[str, str]
    """Tables of the model of which it holds a chunk, with the placement: `S(0)@tp`."""


@dataclass(frozen=True)
class RanksCaptured:
    """The model on one device, and every rank of the parallel module."""

    one: Side
    inputs: tuple[InputSpec, ...]
    ranks: tuple[Rank, ...]
    texts: Path
    """The folder with the programs of the ranks, as `frontends.rank_programs` reads them."""
    modes: tuple[str, ...] = (EVAL,)
    """The modes in which all of them do what is here: of `SAID`."""


def capture_ranks(
    request: RanksRequest, folder: Path, progress: Progress
) -> tuple[RanksCaptured, ...]:
    """Trace both modules in a process of its own, under limits; `folder` keeps what comes of it.
    Modes that differ are apart.

    Raises:
        CaptureError: the request, the user's code, an op or a collective; with the line.
    """
    for target in (request.target, request.against):
        split_target(target)
    run_worker("ranks", request.to_json(), request.limits, progress, folder)
    return load(folder, request.mesh.size)


def load(folder: Path, size: int) -> tuple[RanksCaptured, ...]:
    """Read what the worker wrote."""
    judged: list[list[str]] = json.loads((folder / "modes.json").read_text())
    return tuple(_load(folder / modes[0], size, tuple(modes)) for modes in judged)


def _load(folder: Path, size: int, modes: tuple[str, ...]) -> RanksCaptured:
    first = json.loads((folder / "one.json").read_text())
    inputs = TypeAdapter(tuple[InputSpec, ...]).validate_python(first["inputs"])
    ranks: list[Rank] = []
    for r in range(size):
        data = json.loads((folder / f"rank-{r}.json").read_text())
        more = {k: data[k] for k in ("renamed", "renamed_arguments", "tables")}
        ranks.append(Rank(**_side(data, folder / f"rank-{r}.npz"), **more))
    one = Side(**_side(first, folder / "one.npz"))
    return RanksCaptured(one, inputs, tuple(ranks), folder / "ranks", modes)


def _side(data: Mapping[str, Any], arrays: Path) -> dict[str, Any]:
    with np.load(arrays, allow_pickle=False) as held:
        consts = {k: held[k] for k in held.files}
    return {
        "program": from_json(data["program"]),
        "name": data["class"],
        "params": {p["path"]: TensorType(tuple(p["shape"]), p["dtype"]) for p in data["params"]},
        "frozen": tuple(data["frozen"]),
        "unreached": tuple(data["unreached"]),
        "raw": tuple((file, line, what) for file, line, what in data["raw"]),
        "buffers": tuple(data["buffers"]),
        "notes": tuple(data["notes"]),
        "draws": TypeAdapter(tuple[Draw, ...]).validate_python(data["draws"]),
        "consts": consts,
    }
