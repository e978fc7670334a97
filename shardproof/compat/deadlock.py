"""Whether messages meet: sends and receives of ranks, and those of pipeline schedules.

Orders are judged by `verifier.order` and `synthesis.schedules`: messages between two ranks are
taken in the order in which they are sent, and both sides must mean the same tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from shardproof.compat.order import verify_temporal
from shardproof.compat.pipeline import Message, MicroBatch, PP1F1BSchedule, as_schedule
from shardproof.compat.program import Program
from shardproof.synthesis.schedules import check_schedule
from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.order.builder import TimeBuilder
from shardproof.verifier.order.verify import verify_time


class DeadlockChecker:
    """Sends and receives in the order in which each rank issues them; a send waits for its
    receiver."""

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
        """A schedule, each stage in its own order: its slots and activations, then its messages,
        sends going on in the background."""
        steps = list(schedule)
        found = [str(f) for f in check_schedule(as_schedule(steps))]
        messages = TimeBuilder("schedule")
        ends: list[tuple[int, str]] = []
        for index, step in enumerate(steps):
            rank = messages.rank(step.stage_id)
            for at, (src, _, name) in enumerate(step.recvs):
                rank.recv(src, tag=name, label=f"recv{index}.{at}", channel=_lane(name))
            for at, (_, dst, name) in enumerate(step.sends):
                handle = f"send{index}.{at}"
                rank.send(dst, tag=name, label=handle, channel=_lane(name), handle=handle)
                ends.append((step.stage_id, handle))
        for stage, handle in ends:
            messages.rank(stage).wait(handle)
        if len({s.stage_id for s in steps}) > 1 and not ends:
            return False, [*found, "several stages, and no message between them"]
        if steps:
            found += [str(v) for v in verify_time(messages.build())]
        return not found, found

    def check_all(
        self, schedule: object, sends: Sequence[Any], recvs: Sequence[Any]
    ) -> tuple[bool, list[str]]:
        """A schedule, or a class program with sends and receives, or pairs of messages."""
        if isinstance(schedule, PP1F1BSchedule):
            return self.verify_schedule(schedule.generate())
        if isinstance(schedule, Program):
            found = [str(r) for r in verify_temporal(schedule).reports]
            return not found, found
        if isinstance(schedule, Sequence) and schedule:
            return self.verify_schedule(schedule)  # type: ignore[arg-type]
        for index in range(max(len(sends), len(recvs))):
            for add, messages in ((self.add_send, sends), (self.add_recv, recvs)):
                if index < len(messages):
                    add(*_message(messages[index]))
        if not self._count:
            return False, ["neither a schedule nor a message was given"]
        return self.check()


def _lane(name: str) -> str:
    """Forward and backward messages go apart."""
    return name.rstrip("0123456789")


def _message(item: Any) -> Message:
    """`(src, dst, name)`, or an op with `src`, `dst` and a tensor."""
    if isinstance(item, (tuple, list)):
        src, dst, *name = item  # type: ignore[misc]
        return int(src), int(dst), str(name[0]) if name else ""  # type: ignore[arg-type]
    return item.src, item.dst, item.x
