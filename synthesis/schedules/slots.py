"""Pipeline schedules: for each stage, in which order it runs which part of which micro-batch."""

from collections.abc import Iterator
from dataclasses import dataclass

from shardproof.verifier.kernel.program.types import NOWHERE, Source

KINDS = {"F": "forward", "B": "backward", "W": "weight gradient", "R": "reduction"}
SENDS = ("async", "paired", "blocking")
MESSAGES = ("fifo", "tagged")


@dataclass(frozen=True, slots=True)
class Slot:
    """`F3.1` is the forward of micro-batch 3 on chunk 1; `B` the backward, `R` the reduction of
    the gradients. Where a schedule has `W` slots, `B` makes the input gradient alone and `W` the
    gradient of the weights."""

    kind: str
    micro_batch: int = -1
    chunk: int = 0

    def __str__(self) -> str:
        if self.kind == "R":
            return "R"
        return f"{self.kind}{self.micro_batch}{f'.{self.chunk}' if self.chunk else ''}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """What every stage runs, in order."""

    stages: tuple[tuple[Slot, ...], ...]
    micro_batches: int
    chunks: int = 1
    """Chunks of layers a stage holds; chunk c of stage s is part c * stages + s of the model."""
    name: str = "schedule"
    sends: str = "async"
    """`async`: a stage goes on while it sends. `blocking`: it waits for the receiver. `paired`:
    it waits, but posts the send with the receive of its next slot."""
    messages: str = "fifo"
    """`fifo`: messages between two stages arrive in the order in which they were sent, forward and
    backward apart. `tagged`: a receive picks its own."""
    activations: int | None = None
    """Buffers that a stage has for the activations of a chunk: micro-batch m uses buffer
    m % activations. None: one for each micro-batch."""
    limit: tuple[int, ...] | None = None
    """How many micro-batches each stage may keep activations of at a time, chunks counted apart."""
    sources: tuple[Source, ...] = ()
    """Where each stage is written."""

    @property
    def split(self) -> bool:
        """Whether the backward is split into input and weight parts."""
        return any(slot.kind == "W" for stage in self.stages for slot in stage)

    @property
    def parts(self) -> int:
        """Number of parts of the model."""
        return len(self.stages) * self.chunks

    def part(self, stage: int, slot: Slot) -> int:
        return slot.chunk * len(self.stages) + stage

    def source(self, stage: int) -> Source:
        return self.sources[stage] if stage < len(self.sources) else NOWHERE

    def wanted(self) -> Iterator[Slot]:
        """The slots that every stage needs, without the reduction."""
        for kind in "FBW" if self.split else "FB":
            for chunk in range(self.chunks):
                for micro_batch in range(self.micro_batches):
                    yield Slot(kind, micro_batch, chunk)


@dataclass(frozen=True, slots=True)
class Memory:
    """What a stage keeps."""

    peak: int
    """Most activations at a time: forwards done or under way whose last reader is not done."""
    at: int
    """The position of the slot that first reaches it."""


def in_flight(schedule: Schedule, stage: int) -> Memory:
    """How many activations a stage keeps at most. Those of a forward live until its backward, or
    until its weight gradient where the two are split."""
    last = "W" if schedule.split else "B"
    held = peak = at = 0
    for position, slot in enumerate(schedule.stages[stage]):
        if slot.kind == "F":
            held += 1
            if held > peak:
                peak, at = held, position
        elif slot.kind == last:
            held -= 1
    return Memory(peak, at)
