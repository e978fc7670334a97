"""A schedule as events: what each stage receives, computes, keeps and sends.

Stage s is rank s. The forward of a part keeps its input in an activation buffer until the last
reader; the backward adds to one accumulator a chunk; the reduction reads all of them.
"""

from shardproof.synthesis.schedules.slots import Schedule, Slot
from shardproof.verifier.kernel.program.types import NOWHERE, Source
from shardproof.verifier.order import events as ev
from shardproof.verifier.order.builder import RankBuilder, TimeBuilder


def to_events(schedule: Schedule) -> ev.TimeProgram:
    """The events of every stage. The slots of the schedule are the labels of the computes.

    Slots must be well formed on their own: each at most once, in the range of the schedule.
    """
    builder = TimeBuilder(schedule.name)
    split = schedule.split
    for stage, slots in enumerate(schedule.stages):
        writer = _Stage(schedule, stage, builder.rank(stage), split)
        for position, slot in enumerate(slots):
            writer.slot(slot, position)
        writer.finish()
    return builder.build()


class _Stage:
    """Writes the events of one stage."""

    def __init__(self, schedule: Schedule, stage: int, rank: RankBuilder, split: bool) -> None:
        self.schedule, self.stage, self.rank, self.split = schedule, stage, rank, split
        self.source = NOWHERE
        self.sent: list[str] = []
        self.grads = [ev.Access(f"grad{chunk}") for chunk in range(schedule.chunks)]
        rank.holds(*(grad.buffer for grad in self.grads))

    def finish(self) -> None:
        """Wait for what was sent."""
        for handle in self.sent:
            self.rank.add(ev.Wait(handle=handle))
        if self.schedule.sends == "paired":
            self.rank.events = _paired(self.rank.events)

    def slot(self, slot: Slot, position: int) -> None:
        """The events of one slot."""
        written = self.schedule.source(self.stage)
        self.source = (
            Source("", 0, f"stage {self.stage}, slot {position + 1}")
            if written == NOWHERE
            else written
        )
        part = self.schedule.part(self.stage, slot)
        name = f"{slot.micro_batch}.{slot.chunk}"
        forward = Slot("F", slot.micro_batch, slot.chunk)
        kept = ev.Access(self._activation(slot), None, str(forward))
        match slot.kind:
            case "F":
                reads = self._incoming(slot, part - 1)
                self._compute(slot, reads, [ev.Access(kept.buffer), ev.Access(f"out{name}")])
                self._outgoing(slot, part + 1, f"out{name}")
            case "B":
                reads = [kept, *self._incoming(slot, part + 1)]
                writes = [ev.Access(f"din{name}")]
                if self.split:
                    writes.append(ev.Access(f"dout{name}"))
                else:
                    reads.append(self.grads[slot.chunk])
                    writes.append(self.grads[slot.chunk])
                self._compute(slot, reads, writes)
                self._outgoing(slot, part - 1, f"din{name}")
            case "W":
                backward = Slot("B", slot.micro_batch, slot.chunk)
                given = ev.Access(f"dout{name}", None, str(backward))
                grad = self.grads[slot.chunk]
                self._compute(slot, [kept, given, grad], [grad])
            case _:
                self._compute(slot, self.grads, self.grads)

    def _compute(self, slot: Slot, reads: list[ev.Access], writes: list[ev.Access]) -> None:
        self.rank.add(
            ev.Compute(
                label=str(slot), reads=tuple(reads), writes=tuple(writes), source=self.source
            )
        )

    def _activation(self, slot: Slot) -> str:
        count = self.schedule.activations or self.schedule.micro_batches
        return f"activation{slot.micro_batch % count}.{slot.chunk}"

    def _incoming(self, slot: Slot, part: int) -> list[ev.Access]:
        """What a slot reads of a neighbouring part; received where that is on another stage."""
        if not 0 <= part < self.schedule.parts:
            return []
        chunk, peer = divmod(part, len(self.schedule.stages))
        theirs = Slot(slot.kind, slot.micro_batch, chunk)
        if peer == self.stage:
            word = "out" if slot.kind == "F" else "din"
            return [ev.Access(f"{word}{slot.micro_batch}.{chunk}", None, str(theirs))]
        buffer, label = f"got_{slot}", f"recv_{slot}"
        self.rank.add(
            ev.Recv(
                label=label,
                peer=peer,
                tag=str(theirs),
                channel=self._channel(theirs),
                writes=(ev.Access(buffer),),
                source=self.source,
            )
        )
        return [ev.Access(buffer, None, label)]

    def _outgoing(self, slot: Slot, part: int, buffer: str) -> None:
        peer = part % len(self.schedule.stages)
        if peer == self.stage or not 0 <= part < self.schedule.parts:
            return
        handle = f"sent_{slot}" if self.schedule.sends == "async" else ""
        if handle:
            self.sent.append(handle)
        self.rank.add(
            ev.Send(
                label=f"send_{slot}",
                peer=peer,
                tag=str(slot),
                channel=self._channel(slot),
                reads=(ev.Access(buffer, None, str(slot)),),
                handle=handle,
                source=self.source,
            )
        )

    def _channel(self, slot: Slot) -> str:
        """Forward and backward messages do not overtake each other's queue; tagged, none does."""
        return slot.kind if self.schedule.messages == "fifo" else str(slot)


def _paired(events: list[ev.Event]) -> list[ev.Event]:
    """A send and the receive right after it become one group, under the label of the receive."""
    out: list[ev.Event] = []
    for event in events:
        before = out[-1] if out else None
        if isinstance(event, ev.Recv) and isinstance(before, ev.Send):
            out[-1] = ev.Group(parts=(before, event), label=event.label, source=before.source)
        else:
            out.append(event)
    return out
