"""Messages of pipelines: schedules, what they send and receive, and whether all of it meets.

Orders are judged by `verifier.time`: a send and its receive wait for each other, messages between
two ranks are taken in the order they are sent, and both sides must mean the same tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from verifier.face.program import Program
from verifier.ir.errors import MalformedError
from verifier.time import TimeBuilder, verify_time

Message = tuple[int, int, str]
"""(source, destination, tensor)."""


class OpType(Enum):
    """What a stage does with a micro-batch."""

    FORWARD = "forward"
    BACKWARD = "backward"


class Phase(Enum):
    """Part of a schedule."""

    WARMUP = "warmup"
    STEADY = "steady"
    COOLDOWN = "cooldown"


@dataclass
class MicroBatch:
    """One step of one stage: it receives, computes, then sends."""

    mb_id: int
    stage_id: int
    op_type: OpType
    phase: Phase
    sends: list[Message] = field(default_factory=list[Message])
    recvs: list[Message] = field(default_factory=list[Message])


class PP1F1BSchedule:
    """One forward, one backward (Narayanan et al. 2019).

    Stage `s` of `P` runs `P - s - 1` forwards, then pairs of a forward and a backward, then the
    backwards that are left.

    Raises:
        ValueError: no stage, or no micro-batch.
    """

    def __init__(self, num_stages: int, num_microbatches: int) -> None:
        if num_stages < 1 or num_microbatches < 1:
            raise ValueError(f"{num_stages} stages and {num_microbatches} micro-batches")
        self.num_stages, self.num_microbatches = num_stages, num_microbatches

    def stage(self, stage: int) -> list[MicroBatch]:
        """The steps of one stage, in its order."""
        total = self.num_microbatches
        warmup = min(self.num_stages - stage - 1, total)
        order = [(m, OpType.FORWARD, Phase.WARMUP) for m in range(warmup)]
        for m in range(total - warmup):
            order.append((warmup + m, OpType.FORWARD, Phase.STEADY))
            order.append((m, OpType.BACKWARD, Phase.STEADY))
        order += [(m, OpType.BACKWARD, Phase.COOLDOWN) for m in range(total - warmup, total)]
        return [self._step(m, stage, kind, phase) for m, kind, phase in order]

    def _step(self, m: int, stage: int, kind: OpType, phase: Phase) -> MicroBatch:
        forward = kind is OpType.FORWARD
        word, step = ("act", 1) if forward else ("grad", -1)
        before, after = stage - step, stage + step
        inside = range(self.num_stages)
        recvs = [(before, stage, f"{word}{m}")] if before in inside else []
        sends = [(stage, after, f"{word}{m}")] if after in inside else []
        return MicroBatch(m, stage, kind, phase, sends, recvs)

    def generate(self) -> list[MicroBatch]:
        """The steps of all stages, each after all that it needs."""
        waiting = [self.stage(s) for s in range(self.num_stages)]
        sent: set[Message] = set()
        out: list[MicroBatch] = []
        while any(waiting):
            ready = [w for w in waiting if w and all(r in sent for r in w[0].recvs)]
            if not ready:
                raise AssertionError("1F1B waits for itself")
            now = [w.pop(0) for w in ready]
            out += now
            sent |= {message for step in now for message in step.sends}
        return out

    def generate_simple(self) -> list[MicroBatch]:
        """All forwards, then all backwards, as in GPipe (Huang et al. 2019)."""
        stages, micro = range(self.num_stages), range(self.num_microbatches)
        first = [(m, s, OpType.FORWARD, Phase.WARMUP) for m in micro for s in stages]
        last = [(m, s, OpType.BACKWARD, Phase.COOLDOWN) for m in micro for s in reversed(stages)]
        return [self._step(m, s, kind, phase) for m, s, kind, phase in [*first, *last]]


class ActivationTracker:
    """How many forwards of each stage wait for their backward, and the most there ever were."""

    def __init__(self, num_stages: int, max_activations_per_stage: int = 4) -> None:
        self.limit = max_activations_per_stage
        self.current = [0] * num_stages
        self.peak_memory = [0] * num_stages
        self.errors: list[str] = []

    def run(self, schedule: Iterable[MicroBatch]) -> bool:
        """Whether no backward comes before its forward, and no stage holds too many."""
        held: set[tuple[int, int]] = set()
        for step in schedule:
            key, s = (step.stage_id, step.mb_id), step.stage_id
            if step.op_type is OpType.FORWARD:
                held.add(key)
                self.current[s] += 1
                self.peak_memory[s] = max(self.peak_memory[s], self.current[s])
                if self.current[s] > self.limit:
                    self.errors.append(f"stage {s} holds {self.current[s]} of {self.limit}")
            elif key not in held:
                self.errors.append(f"stage {s}: backward {step.mb_id} before its forward")
            else:
                held.remove(key)
                self.current[s] -= 1
        return not self.errors


class DeadlockChecker:
    """Sends and receives in the order in which each rank issues them."""

    def __init__(self) -> None:
        self._builder = TimeBuilder("messages")
        self._count = 0

    def add_send(self, src: int, dst: int, tensor: str = "") -> None:
        self._count += 1
        self._builder.rank(src).send(dst, tag=tensor, label=f"send{self._count}")
        self._builder.rank(dst)

    def add_recv(self, src: int, dst: int, tensor: str = "") -> None:
        self._count += 1
        self._builder.rank(dst).recv(src, tag=tensor, label=f"recv{self._count}")
        self._builder.rank(src)

    def check(self) -> tuple[bool, list[str]]:
        """Whether every rank comes to its end with the messages it means, and what goes wrong."""
        if not self._count:
            return True, []
        try:
            found = [str(v) for v in verify_time(self._builder.build())]
        except MalformedError as error:
            found = [str(error)]
        return not found, found

    def verify_schedule(self, schedule: Iterable[MicroBatch]) -> tuple[bool, list[str]]:
        """The messages of a schedule, each stage in its own order. One without any is refused."""
        steps = list(schedule)
        for step in steps:
            for message in step.recvs:
                self.add_recv(*message)
            for message in step.sends:
                self.add_send(*message)
        if len({s.stage_id for s in steps}) > 1 and not self._count:
            return False, ["several stages, and no message between them"]
        return self.check()

    def check_all(
        self, schedule: object, sends: Sequence[Any], recvs: Sequence[Any]
    ) -> tuple[bool, list[str]]:
        """A schedule (or a class program with sends and receives), or pairs of messages."""
        if isinstance(schedule, PP1F1BSchedule):
            return self.verify_schedule(schedule.generate())
        if isinstance(schedule, Program):
            from verifier.face.order import verify_temporal

            found = [str(r) for r in verify_temporal(schedule).reports]
            return not found, found
        if isinstance(schedule, Sequence) and schedule:
            return self.verify_schedule(schedule)  # type: ignore[arg-type]
        for index in range(max(len(sends), len(recvs))):
            for add, messages in ((self.add_send, sends), (self.add_recv, recvs)):
                if index < len(messages):
                    add(*_message(messages[index]))
        return self.check()


def _message(item: Any) -> Message:
    """`(src, dst, name)`, or an op with `src`, `dst` and a tensor."""
    if isinstance(item, (tuple, list)):
        src, dst, *name = item  # type: ignore[misc]
        return int(src), int(dst), str(name[0]) if name else ""  # type: ignore[arg-type]
    return item.src, item.dst, item.x
