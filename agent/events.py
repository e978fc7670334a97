"""The events of a run: one typed stream that the screen, `--json` and `events.jsonl` all show."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

SCHEMA_VERSION = 1

VerdictWord = Literal["proved", "refuted", "unknown"]


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = SCHEMA_VERSION
    at: float = 0.0
    """Seconds since the run started; filled where the event is emitted."""


class RunStarted(_Event):
    event: Literal["run.started"] = "run.started"
    command: str
    arguments: list[str] = []
    version: str


class PhaseStarted(_Event):
    event: Literal["phase.started"] = "phase.started"
    phase: str


class PhaseCompleted(_Event):
    event: Literal["phase.completed"] = "phase.completed"
    phase: str
    seconds: float
    summary: str = ""
    """One line for a person."""
    facts: dict[str, float | int | str] = {}


class Warned(_Event):
    event: Literal["warning"] = "warning"
    message: str


class PlanChosen(_Event):
    event: Literal["plan"] = "plan"
    mesh: dict[str, int]
    strategy: str
    estimates: dict[str, float] = {}


class VerdictReached(_Event):
    event: Literal["verdict"] = "verdict"
    verdict: VerdictWord
    message: str
    where: str = ""
    """`file:line` of the first op whose relation breaks, or of what was missing."""
    scope: list[str] = []
    assumptions: list[str] = []
    relations: list[str] = []
    """What each value was found to be, where that was asked for."""


class Repaired(_Event):
    event: Literal["repaired"] = "repaired"
    edits: list[str]
    """In order; together they are the fewest that were found."""
    sources: list[str] = []
    """`file:line` of the ops that are edited, where it is known."""
    diff: str = ""
    """Of the program's text."""


class Executed(_Event):
    event: Literal["executed"] = "executed"
    processes: int
    agrees: bool
    largest_relative_difference: float
    tolerance: float


class Written(_Event):
    event: Literal["written"] = "written"
    directory: str
    report: str


class Problem(_Event):
    event: Literal["error"] = "error"
    kind: str
    message: str
    where: str = ""
    expected: str = ""
    got: str = ""
    hint: str = ""
    traceback_file: str = ""


class RunCompleted(_Event):
    """Always the last event, whatever happened."""

    event: Literal["run.completed"] = "run.completed"
    verdict: VerdictWord
    """`unknown` wherever nothing was decided."""
    exit_code: int
    seconds: float
    directory: str = ""
    report: str = ""


Event = Annotated[
    RunStarted
    | PhaseStarted
    | PhaseCompleted
    | Warned
    | PlanChosen
    | VerdictReached
    | Repaired
    | Executed
    | Written
    | Problem
    | RunCompleted,
    Field(discriminator="event"),
]

_ADAPTER: TypeAdapter[Event] = TypeAdapter(Event)


def parse(line: str) -> Event:
    """Read one line of an event stream.

    Raises:
        pydantic.ValidationError: not an event of this schema.
    """
    return _ADAPTER.validate_json(line)
