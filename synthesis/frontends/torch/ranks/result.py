"""What capture of all ranks gives back. Plain data: no torch."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from shardproof.synthesis.frontends.torch.asserted import Asserted
from shardproof.synthesis.frontends.torch.captured import Array, Draw, ProgramData, load as read
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.process import run_worker
from shardproof.synthesis.frontends.torch.ranks.request import EVAL, RanksRequest
from shardproof.synthesis.frontends.torch.request import InputSpec, Progress, split_target
from shardproof.synthesis.frontends.torch.rolling.depth import Depth
from shardproof.verifier.kernel.contract import layout_from_json, layout_to_json
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.jsondata import Cursor
from shardproof.verifier.kernel.program.types import TensorType

NEW_GROUP = "new_group"
BUFFERS = "the buffer"
USED = "what a forward of DistributedDataParallel leaves unused"


@dataclass(frozen=True)
class Event:
    """What a rank does in time: it starts an exchange with others, or waits for one."""

    kind: str
    """`send`, `recv`, `meet` (a collective), `wait`, or `alike`: only that something is alike."""
    ranks: tuple[int, ...]
    """Of a message the other rank, of a collective all of them."""
    what: str
    """Of a message its type, tag and group; of a `meet` `barrier`, `new_group` or `collective`."""
    of: int
    """Of a wait: the number of the event that it waits for."""
    file: str
    line: int
    text: str
    group: str = ""
    """Of a meet the name of its process group."""
    alike: str = ""
    """What is to be the same on all ranks: how the tensors of a collective lie in memory where they
    are not contiguous; what a buffer holds."""


@dataclass(frozen=True)
class Doubt:
    """Where a rank uses what may not be there yet, what nothing was written to, or a gradient that
    it alone keeps. It was traced as if a result is there when it is waited for, memory is of zeros
    and such a gradient is the weight: one way in which it may run, so what was traced may refute
    the module and cannot prove it."""

    said: Mapping[str, Any]
    """The fields of the CaptureError that it is where what was traced is not refuted."""
    at: tuple[str, int, str]
    """File, line and text that are to blame: where what is used was started, or its memory made.
    No file: what the refutation blames."""

    @property
    def refusal(self) -> CaptureError:
        return CaptureError(**self.said)


@dataclass(frozen=True)
class Told:
    """What the ranks are told of the model on one device."""

    inputs: tuple[InputSpec, ...]
    params: Mapping[str, TensorType]
    """By the names of the one-device model; extents of this rank."""
    states: Mapping[str, TensorType]
    """Buffers of floats that a call changes, alike: what they hold before is as a parameter, what
    they hold after an output, `STATE` before its name."""
    given: Mapping[str, TensorType]
    """Other buffers whose layout is stated: of any value, as a parameter that is not trained."""
    outputs: tuple[tuple[str, str], ...]
    """Role and name."""
    draws: tuple[Draw, ...]
    """What is drawn, inputs of the program, by the names of the one-device model."""
    consts: Mapping[str, Array]
    ties: Mapping[str, str]
    """Other names of parameters, each with the first."""
    filled: Mapping[str, Array]
    """Buffers of any value that are read, with what the constructor gives them."""
    every: tuple[str, ...]
    """All buffers, with tensors that a call writes into and that are plain attributes."""
    rates: Mapping[str, tuple[float, float]]
    """Numbers with which optimizers are called, such as `fc.weight lr`: in the first step, and in
    the one that is traced."""
    begins: Mapping[str, float | None]
    """Of what a step finds kept before any other, the number that all entries are, where one is."""
    losses: tuple[str, ...]
    """What a step returns of values from which it runs a backward."""
    depth: Depth | None
    """The layers that were traced, where they are not all."""
    lists: tuple[str, ...]
    """Lists of modules that have modules of their own."""
    asserts: tuple[Asserted, ...]
    """Asserts on values of tensors, which are left out."""
    whole: bool
    """Whether rows that values choose are read as all rows."""

    @property
    def laid_out(self) -> dict[str, TensorType]:
        """All that has a layout as parameters have."""
        return {**self.params, **self.states, **self.given}


@dataclass(frozen=True)
class Side(Told):
    """A module as it was traced: on one device, or on one rank."""

    program: ProgramData
    name: str
    """Its class."""
    frozen: tuple[str, ...]
    unreached: tuple[str, ...]
    """Trainable parameters that the backward gives no gradient."""
    doubt: Doubt | None
    raw: tuple[tuple[str, int, str], ...]
    """(file, line, what) of collectives that change a tensor behind autograd's back."""
    buffers: tuple[str, ...]
    notes: tuple[str, ...]
    used: tuple[str, ...]
    """Fields of the config that it took."""
    imported: tuple[str, ...]
    """Modules of PyTorch that the code of one device imported, in this order."""
    alike: tuple[str, ...]
    """Other modes in which it does the same."""
    tables: Mapping[str, str]
    """Tables of the model of which it holds a chunk, with the placement: `S(0)@tp`."""


def _layout(data: object) -> Layout:
    return layout_from_json(Cursor(data, "a layout"))


@dataclass(frozen=True)
class Rank(Side):
    """What one rank does."""

    renamed: Mapping[str, str]
    """Its parameters that the model calls differently."""
    paired_by_kind: Mapping[str, str]
    """State that is paired with what the model's step keeps by its kind and parameter, not by its
    name."""
    unpaired: tuple[str, str] | None
    """State that no name or kind pairs, and such state of the model's step, if there is both."""
    compared: ProgramData
    """The program in the form in which ranks are compared: `joined_form`."""
    renamed_arguments: Mapping[str, str]
    """Inputs of the model that its `forward` calls differently."""
    layouts: Mapping[
        str, Annotated[Layout, PlainValidator(_layout), PlainSerializer(layout_to_json)]
    ]
    """Of its DTensors, as their placements say: `parameter NAME` and `output NAME`."""
    events: tuple[Event, ...]
    pieces: Mapping[str, str]
    """Of buffers of any value that it holds, the placement; empty where what its constructor gives
    them is no piece of what the model's does."""
    averaged: tuple[str, ...]
    """Mesh dims along which DistributedDataParallel or fully_shard averages gradients."""
    asked: str
    """Where few ranks are traced, the first line that asks which rank it is."""


@dataclass(frozen=True)
class Loaded:
    """What a module holds after a checkpoint of numbered elements was loaded into it."""

    held: Mapping[str, Array]
    """By every name of a parameter, and by that of a buffer of floats, its own piece."""
    ties: Mapping[str, str]
    """Names of parameters that have several, each with the first."""
    missing: tuple[str, ...] = ()
    """Parameters that the checkpoint gives nothing for."""
    counted: tuple[str, ...] = ()
    """Collectives on integers that were called."""


@dataclass(frozen=True)
class Loads:
    """A checkpoint, loaded on one device and on every rank."""

    one: Loaded
    ranks: tuple[Loaded, ...]


@dataclass(frozen=True)
class RanksCaptured:
    """The model on one device, and the ranks of the parallel module that were traced."""

    one: Side
    ranks: tuple[Rank, ...]
    numbers: tuple[int, ...]
    """Which ranks these are. The others run what they run, with coordinates of their own."""
    texts: Path
    """The folder where the programs of ranks that run no one program are written, as
    `frontends.rank_programs` reads them."""
    modes: tuple[str, ...] = (EVAL,)
    """The modes in which all of them do what is here: of `SAID`."""

    @property
    def complete(self) -> bool:
        """Whether every rank was traced."""
        return len(self.ranks) == self.ranks[0].program.mesh.size

    @property
    def numbered(self) -> Iterator[tuple[int, Rank]]:
        """The ranks that were traced, each with its number."""
        return zip(self.numbers, self.ranks, strict=True)


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
    return load(folder)


def one_is_traced(folder: Path) -> bool:
    """Whether the model on one device was traced in some mode, whatever became of the ranks."""
    found = folder.glob("*/one.json")
    return any("error" not in json.loads(file.read_text()) for file in found)


def load(folder: Path) -> tuple[RanksCaptured, ...]:
    """Read what the worker wrote."""
    judged: list[list[str]] = json.loads((folder / "modes.json").read_text())
    return tuple(_load(folder / modes[0], tuple(modes)) for modes in judged)


def read_loads(folder: Path, size: int) -> Loads:
    """What the worker loaded. Raises CaptureError, of what was loaded in vain."""
    inside = folder / "load"
    found = json.loads((inside / "error.json").read_text())
    if found is not None:
        raise CaptureError(**found)
    names = ("one", *(f"rank-{r}" for r in range(size)))
    one, *ranks = (read(Loaded, (inside / f"{name}.json").read_text()) for name in names)
    return Loads(one, tuple(ranks))


def _load(folder: Path, modes: tuple[str, ...]) -> RanksCaptured:
    one = read(Side, (folder / "one.json").read_text())
    numbers: list[int] = json.loads((folder / "traced.json").read_text())
    ranks = tuple(read(Rank, (folder / f"rank-{r}.json").read_text()) for r in numbers)
    return RanksCaptured(one, ranks, tuple(numbers), folder / "ranks", modes)
