"""The events of a run: one typed stream that the screen, `--json` and `events.jsonl` all show."""

from typing import Annotated, Any, Literal, Protocol, Union

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

SCHEMA_VERSION = 1

DecidedWord = Literal["proved", "refuted", "unknown"]
VerdictWord = DecidedWord | Literal["accepted", "rejected"]
"""Of a directory that is checked again: `accepted`, its certificate holds and its patch was not
read; `rejected`, one of its files is not what it says it is."""


class Event(BaseModel):
    """What all events say."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    schema_version: int = SCHEMA_VERSION
    at: float = 0.0
    """Seconds since the run started; filled where the event is emitted."""
    event: str = ""
    """Its kind, one word for each class."""

    def __init_subclass__(cls, event: str) -> None:
        cls.__annotations__ = {"event": Literal[event], **cls.__annotations__}
        cls.event = event


class RunStarted(Event, event="run.started"):
    command: str
    arguments: list[str] = []
    version: str


class PhaseStarted(Event, event="phase.started"):
    phase: str


class PhaseCompleted(Event, event="phase.completed"):
    phase: str
    seconds: float
    summary: str = ""
    """One line for a person."""
    facts: dict[str, float | int | str] = {}


class Warned(Event, event="warning"):
    message: str


class PlanChosen(Event, event="plan"):
    mesh: dict[str, int]
    strategy: str
    estimates: dict[str, float] = {}
    useful: bool = True
    """Whether at least half of what the mesh could split is split."""


class StrategyChosen(Event, event="strategy"):
    """A whole training configuration, priced: docs/parallelize.md says what the entries are."""

    hardware: str
    gpus: int
    tokens: str
    """For which tokens it is priced."""
    plans: int
    """Of the space; 0 where the mesh was given."""
    certified: str
    """What is certified, and under which model; empty where nothing is."""
    best: dict[str, Any]
    emitted: dict[str, Any] | None = None
    """What the patch does."""
    emitted_gap: float | None = None
    """By which share it is slower than the best."""
    others: list[dict[str, Any]] = []
    """Faster plans that do not fit, and the next best."""
    front: list[dict[str, Any]] = []
    """The fastest plans with less and less memory, the best first; empty where the mesh was given.
    """
    quicker: dict[str, Any] | None = None
    """A plan on fewer devices, or of another mesh, that is faster."""
    text: list[str] = []
    """All of it in words."""


class VerdictReached(Event, event="verdict"):
    verdict: VerdictWord
    message: str
    where: str = ""
    """`file:line` of the first op whose relation breaks, or of what was missing."""
    scope: list[str] = []
    assumptions: list[str] = []
    relations: list[str] = []
    """What each value was found to be, where that was asked for."""
    recorded: list[str] = []
    """What a directory that was checked again says that it rests on, besides: nothing that could be
    checked from its files."""
    patch: str = ""
    """Whether the patch itself was read, in words, where there is one."""


class ContractStated(Event, event="contract"):
    """How each tensor is laid out over the mesh, and how that is known."""

    lines: list[str]


class Repaired(Event, event="repaired"):
    edits: list[str]
    """In order; together they are the fewest that were found."""
    sources: list[str] = []
    """`file:line` of the ops that are edited, where it is known."""
    diff: str = ""
    """Of the program's text."""


class RepairRound(Event, event="repair.round"):
    """A round of a repair begins: a search, or a question to the model."""

    round: int
    context: int
    """Rounds of one context know of each other; a new one starts from the best prefix."""
    by: Literal["search", "model"]
    start: list[str] = []
    """The edits of the prefix that it starts from."""
    banned: list[str] = []


class RepairCandidate(Event, event="repair.candidate"):
    """Edits that were judged."""

    round: int
    edits: list[str]
    tactics: list[str]
    verdict: VerdictWord | Literal["unusable"]
    """`unusable`: a reply that is no edit of the program."""
    finding: str = ""
    """The class of what is wrong: which check, at which op."""
    holds: str = ""
    """How far the edited program is right."""
    seconds: float = 0.0


class PatchedFile(BaseModel, frozen=True, extra="forbid"):
    """One file of a patch."""

    path: str
    added: int = 0
    removed: int = 0
    state: str = ""
    """In a preview: ready, applied, changed, missing, in the way, unusable."""


class Patched(Event, event="patching"):
    """A patch held against a tree, applied to it, or taken back."""

    action: Literal["preview", "apply", "undo", "redo"]
    root: str
    files: list[PatchedFile]
    applicability: str = ""
    diff: str = ""


class PlanJudged(Event, event="plan.judged"):
    """A plan that was considered, and what came of it."""

    name: str
    status: str
    reason: str = ""
    differs: list[str] = []
    """What it does otherwise than the chosen plan."""
    step_s: float | None = None
    memory_bytes: int | None = None
    comm_bytes: int | None = None


class PlanStep(Event, event="plan.step"):
    """A plan did not hold, and what is tried next."""

    round: int
    context: int
    kind: str
    """What it failed at: emitter, memory, lowering, refuted, unproved."""
    reason: str
    next: str


class TacticsCounted(Event, event="tactics"):
    """How far the starting points of each tactic came."""

    counts: dict[str, dict[str, int]]


class Executed(Event, event="executed"):
    processes: int
    agrees: bool
    largest_relative_difference: float
    tolerance: float


class LauncherJudged(Event, event="launcher"):
    """The launcher of a patch: the verdict on its training step."""

    verdict: DecidedWord
    message: str
    where: str = ""
    """`file:line`, see `VerdictReached`."""
    assumptions: list[str] = []
    standing: str
    """What was done with it, in words."""
    launch: str = ""
    """The command that starts it; empty where it was not written."""
    check: str
    """The command that proves its step again."""


class Written(Event, event="written"):
    directory: str
    report: str


class Problem(Event, event="error"):
    kind: str
    message: str
    where: str = ""
    expected: str = ""
    got: str = ""
    hint: str = ""
    traceback_file: str = ""

    def details(self) -> dict[str, str]:
        """What is known besides the message, by the word that a person reads before it."""
        named = {"try": self.hint, "traceback": self.traceback_file}
        found = {"where": self.where, "expected": self.expected, "got": self.got, **named}
        return {word: text for word, text in found.items() if text}


class JobStarted(Event, event="job.started"):
    """A job of a batch begins, in a process of its own."""

    job: str


class JobCompleted(Event, event="job.completed"):
    """A job of a batch ended, or was done before."""

    job: str
    status: str
    verdict: VerdictWord
    done: int
    """Jobs that ended so far, this one included."""
    of: int
    seconds: float
    message: str = ""
    """The plan in short, or why there is none."""
    row: dict[str, Any] = {}
    """Its row in `summary.json`."""


class SessionOpened(Event, event="session.opened"):
    """A process begins, or goes on with, a session of steps."""

    session: str
    root: str
    """The folder that relative paths are relative to."""
    folder: str = ""
    """Where the session is kept."""
    how: Literal["new", "resumed", "forked"] = "new"
    origin: str = ""
    """The session that this one was forked from."""
    lost: str = ""
    """The input of a step that began before and never ended; nothing of it counts."""


class StepStarted(Event, event="step.started"):
    """One input of a session: a command or words for the model."""

    step: int
    input: str


class StepCompleted(Event, event="step.completed"):
    """The step counts from this line on: a session is the fold of `changes` over its steps."""

    step: int
    exit_code: int
    verdict: VerdictWord = "unknown"
    seconds: float
    changes: dict[str, Any] = {}
    """Fields of the session's state and their new values; empty where the step failed."""


class FileRead(Event, event="file.read"):
    """A file of the owner that a step is about, as it was read."""

    path: str
    sha256: str
    text: str


class Said(Event, event="said"):
    """Text for a person: what a command answers with."""

    by: Literal["shardproof", "model"] = "shardproof"
    """Words of a model decide nothing."""
    text: str


class CommandRun(Event, event="command.run"):
    """A command that a model asked for is run."""

    command: str


class PatchShown(Event, event="patch"):
    diff: str
    standing: str
    """What the patch rests on: proved, or why it is not."""


class Agreed(Event, event="agreed"):
    """What the owner was asked before something was written, and answered."""

    question: str
    yes: bool


class ModelAsked(Event, event="model.asked"):
    form: str
    question: str
    """SHA-256 of the messages and the form."""
    template: str = ""
    rendering: str = ""
    chars: int = 0


class ModelRetried(Event, event="model.retried"):
    message: str


class ToolCalled(BaseModel, frozen=True, extra="forbid"):
    """A tool that a model called, as it wrote it."""

    id: str
    name: str
    arguments: str


class ModelAnswered(Event, event="model.answered"):
    """How a question ended, and what it took; enough to answer it again without a model."""

    question: str
    answer: Literal["Completion", "NoModel", "Failed", "OutOfBudget", "Cancelled"]
    text: str = ""
    kind: str = ""
    message: str = ""
    """In one line, where it did not end in text."""
    model: str = ""
    tools: list[ToolCalled] = []
    calls: int = 0
    """Requests that it took."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = False
    seconds: float = 0.0
    usd: float | None = None
    cached: bool = False
    """The answer to an equal question asked before: nothing was asked now."""

    def cost(self) -> str:
        """Who answered, and what it took, in one line."""
        if self.cached:
            return f"{self.model} answered this before; nothing was asked".strip()
        about = "about " if self.estimated else ""
        usd = "" if self.usd is None else f", {self.usd:.4f} USD"
        tokens = f"{self.prompt_tokens:,} tokens in, {self.completion_tokens:,} out"
        return f"{self.model} {about}{tokens}{usd}".strip()


class ModelDiagnosed(Event, event="model.diagnosed"):
    """What a model holds to be the fault. Its words: nothing of them was checked."""

    words: str


class NotCaptured(Event, event="not.captured"):
    """Why capture refuses a target, and what of it is to be translated."""

    message: str
    where: str = ""
    missing: list[str] = []
    """Packages that the file imports and that are not installed."""
    subjects: list[str] = []
    runs: bool
    """Whether the code runs here, so that a translation can be compared with it."""


class TranslationDiffers(Event, event="translation.differs"):
    """A translation that was refuted on numbers, as it is fed back."""

    subject: str
    lines: list[str]


class TranslationEnded(Event, event="translation"):
    end: Literal["bound", "display-only", "backward", "given up"]
    asked: int
    lines: list[str]
    """What it was bound by, or why it was not."""


class RunCompleted(Event, event="run.completed"):
    """Always the last event, whatever happened."""

    verdict: VerdictWord
    """`unknown` wherever nothing was decided."""
    exit_code: int
    seconds: float
    directory: str = ""
    report: str = ""


_KINDS: Any = Union[tuple(Event.__subclasses__())]  # noqa: UP007
_ANY: Any = Annotated[_KINDS, Field(discriminator="event")]
_ADAPTER: TypeAdapter[Event] = TypeAdapter(_ANY, config=ConfigDict(defer_build=True))


def schema() -> dict[str, Any]:
    """The JSON schema of one event."""
    return _ADAPTER.json_schema()


class Sink(Protocol):
    """Where events go."""

    def show(self, event: Event) -> None: ...

    def note(self, doing: str) -> None:
        """What the phase under way is at; not kept."""

    def close(self) -> None:
        """There are no more."""


def parse(line: str) -> Event:
    """Read one line of an event stream.

    Raises:
        pydantic.ValidationError: not an event of this schema.
    """
    return _ADAPTER.validate_json(line)
