"""What a report says: plain frozen data, filled by the pipeline and read by the renderers.

Sizes are bytes, times are seconds. Every part beyond the verdict may be left out; a renderer shows
what is there. Strings may hold anything found in a user's source: the renderers make them safe.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from shardproof.agent.run.events import DecidedWord
from shardproof.synthesis.execute.run.running import Difference
from shardproof.synthesis.planner.plan import CollectiveUse, PassedOver
from shardproof.verifier.kernel.program.types import NOWHERE, Source


@dataclass(frozen=True, slots=True)
class MeshDim:
    """One dim of the device mesh, slowest first in `Report.mesh`."""

    name: str
    size: int
    does: str = ""
    """What it does, in a few plain words: "splits heads, hidden units and the vocabulary"."""
    splits_parameters: bool = False
    """True where each coordinate stores a piece of the parameters (tensor parallel, fsdp)."""
    data: bool = False
    """True where it splits the batch: it communicates parameters and gradients only."""


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    shape: tuple[int, ...]
    placements: dict[str, str] = field(default_factory=dict[str, str])
    """Mesh dim to placement, in PyTorch's words: {"tp": "Shard(0)"}. Absent means Replicate."""
    dtype: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRow:
    """One line of the plan; `*` stands for the index of a repeated block."""

    path: str
    kind: str = ""
    style: str = "replicate"
    input: str = ""
    output: str = ""
    """Placement of the activation on the tensor-parallel mesh dim: "R", "S(1)", "P"."""
    parameters: tuple[Parameter, ...] = ()
    bytes: int | None = None
    """Parameters of this module as a whole, all repetitions counted."""
    local_bytes: int | None = None
    """What one rank stores of them."""
    source: Source = NOWHERE
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on one device, by what they are for."""

    before: dict[str, int]
    after: dict[str, int]
    capacity: int | None = None
    """What a device of the described cluster holds."""


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    parts: dict[str, float]
    model: str = ""
    """Where the numbers come from: the cluster described, calibrated or not."""
    exchange: float = 0.0
    """Of the seconds, those of exchange that nothing hides."""

    @property
    def total(self) -> float:
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofFacts:
    rules: dict[str, int] = field(default_factory=dict[str, int])
    """Rule to number of instances."""
    seconds: float | None = None
    segments: str = ""
    """What was proved once and used many times: "1 block proved, 32 covered by induction"."""
    certificate: str = ""
    """Its path, relative to the report."""
    certificate_sha256: str = ""
    engine: str = ""
    """What a proof rests on that has no steps."""
    checker: Literal["accepted", "rejected", "not run"] = "not run"
    checker_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuterFacts:
    """The evaluation over a prime field that looks for a difference before anything is proved."""

    result: str
    prime: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """The patched model, run on local processes and compared with one process."""

    agrees: bool
    world_size: int
    tolerance: float
    differences: tuple[Difference, ...] = ()
    dtype: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """That of a proof: read again from the patched code and proved for the declared sizes."""

    diff: str
    """`patch.diff`, unified; `git apply --check` accepts it."""
    run: str = ""
    """How the patched model is made and run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInTime:
    """When some stages of a plan do what."""

    stages: int
    """Of the plan."""
    drawn: int
    """Micro-batches that are in it."""
    micro_batches: int
    """Of one optimizer step."""
    spans: tuple[tuple[int, str, str, float, float], ...]
    """Stage, kind, name, start and length in seconds."""
    held: tuple[tuple[int, float, float], ...]
    """Stage, seconds, and the bytes it holds from then on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """How the whole training configuration was chosen."""

    tokens: str
    """For which it is priced."""
    plans: dict[str, dict[str, Any]]
    """"best of the space", "this patch": as the event of the choice has it."""
    claim: str = ""
    """What is certified."""
    slowed: str = ""
    """That fewer devices would be faster."""
    steps: dict[str, StepInTime] = field(default_factory=dict[str, StepInTime])
    """Those of `plans` whose schedules are generated, in time."""
    front: tuple[dict[str, Any], ...] = ()
    """The fastest plans with less and less memory; empty where the mesh was given."""
    others: tuple[PassedOver, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorView:
    """A small input of the counterexample, on one device."""

    name: str
    shape: tuple[int, ...]
    values: tuple[float, ...]
    """Row-major."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexample:
    """A difference replayed on plain numbers and shrunk."""

    check: str
    message: str
    mesh: str
    output: str
    op: str
    rank: int = 0
    index: tuple[int, ...] = ()
    expected: str = ""
    got: str = ""
    source: Source = NOWHERE
    relations: tuple[tuple[str, str], ...] = ()
    """Operand, and what it was inferred to be."""
    tensors: tuple[TensorView, ...] = ()
    fixes: tuple[str, ...] = ()
    """Edits after which every output is right."""
    coordinates: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """The launcher of a patch."""

    verdict: DecidedWord
    """On its step, after a run."""
    standing: str
    found: str
    """The verdict on its step: scope, difference, or what was missing."""
    assumptions: tuple[str, ...] = ()
    launch: str = ""
    """The command that starts it; empty where it was not written."""
    check: str = ""
    """The command that proves its step again."""
    text: str = ""
    """The file; empty where it was not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What an Unknown lacked."""

    reason: str
    op: str = ""
    source: Source = NOWHERE
    next_steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    origin: str
    """"torch.export, joint forward and backward": how far the captured program can be trusted."""
    ops: int | None = None
    parameters: int | None = None
    """Number of scalars."""
    rolled: dict[str, int] = field(default_factory=dict[str, int])
    """Repeated block path to number of repetitions described once."""
    inputs: tuple[str, ...] = ()
    """"input_ids i64[4, 32]"."""
    casts: tuple[str, ...] = ()
    """Edges on which the dtype changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduce:
    commands: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict[str, str])
    hashes: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUse:
    """Calls of a language model; absent when none was asked."""

    calls: int
    """Those that failed as well."""
    tokens: int
    models: tuple[str, ...] = ()
    """Those that answered."""
    cost: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    title: str
    verdict: DecidedWord
    headline: str
    """One line below the verdict."""
    patch_standing: str = ""
    """What was done with the patch itself: read again and proved, run, not read."""
    patch_notes: tuple[str, ...] = ()
    """What came of reading it, and why it was not run."""
    command: str = ""
    created_with: dict[str, str] = field(default_factory=dict[str, str])
    """Program to version."""
    strategy: str = ""
    """The plan in plain words: "tp on heads, hidden units and vocabulary; fsdp over dp"."""
    configuration: Strategy | None = None
    """The whole training configuration, where the model has a price."""
    mesh: tuple[MeshDim, ...] = ()
    scope: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    not_proved: tuple[str, ...] = ()
    plan: tuple[ModuleRow, ...] = ()
    """In the order the forward pass runs them; the drawing of the block reads it so."""
    collectives: tuple[CollectiveUse, ...] = ()
    memory: Memory | None = None
    time: TimeEstimate | None = None
    proof: ProofFacts | None = None
    refuter: RefuterFacts | None = None
    execution: Execution | None = None
    patch: Patch | None = None
    launcher: Launcher | None = None
    obligations: tuple[str, ...] = ()
    """What the caller of the patched model must see to."""
    candidates: tuple[PassedOver, ...] = ()
    """Rejected plans."""
    counterexample: Counterexample | None = None
    missing: Missing | None = None
    capture: Capture | None = None
    timings: dict[str, float] = field(default_factory=dict[str, float])
    """Phase to seconds, in order."""
    peak_memory: int | None = None
    reproduce: Reproduce = field(default_factory=Reproduce)
    model_use: ModelUse | None = None
    exit_code: int | None = None
