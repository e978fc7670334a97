"""What becomes of a schedule, one slot at a time. Shares nothing with the checks but the slots."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from shardproof.synthesis.schedules import Schedule, Slot

Message = tuple[str, int, int]
"""(kind, micro-batch, part that made it)."""


@dataclass
class _Stage:
    todo: deque[tuple[str, object]] = field(default_factory=deque)
    activations: dict[tuple[int, int], int] = field(default_factory=dict)
    done: set[Slot] = field(default_factory=set)
    added: int = 0


def faults(schedule: Schedule) -> set[str]:
    """Everything that goes wrong: `missing`, `twice`, `stray`, `hang`, `message`, `activation`,
    `early`, `order` or `memory`."""
    found: set[str] = set()
    stages, last = len(schedule.stages), len(schedule.stages) * schedule.chunks - 1
    split = any(slot.kind == "W" for slots in schedule.stages for slot in slots)
    reduces = any(slot.kind == "R" for slots in schedule.stages for slot in slots)
    kinds = ("F", "B", "W") if split else ("F", "B")
    state = [_Stage() for _ in range(stages)]
    for stage, slots in enumerate(schedule.stages):
        for slot in slots:
            part = slot.chunk * stages + stage
            source = {"F": part - 1, "B": part + 1}.get(slot.kind, -1)
            target = {"F": part + 1, "B": part - 1}.get(slot.kind, -1)
            todo = state[stage].todo
            if 0 <= source <= last and source % stages != stage:
                todo.append(("recv", (slot.kind, slot.micro_batch, source)))
            todo.append(("run", slot))
            if 0 <= target <= last and target % stages != stage:
                todo.append(("send", (slot.kind, slot.micro_batch, part)))
        for kind in kinds:
            for m in range(schedule.micro_batches):
                for chunk in range(schedule.chunks):
                    count = slots.count(Slot(kind, m, chunk))
                    found |= {"missing"} if count == 0 else {"twice"} if count > 1 else set()
        for slot in slots:
            if slot.kind != "R" and not (
                slot.micro_batch < schedule.micro_batches and slot.chunk < schedule.chunks
            ):
                found.add("stray")
        if reduces and slots.count(Slot("R")) != 1:
            found.add("twice" if Slot("R") in slots else "missing")
        live = 0
        for slot in slots:
            live += (slot.kind == "F") - (slot.kind == kinds[-1])
            if schedule.limit and live > schedule.limit[stage]:
                found.add("memory")
    if found & {"missing", "twice", "stray"}:
        return found
    _run(schedule, state, split, found)
    return found


def _run(schedule: Schedule, state: list[_Stage], split: bool, found: set[str]) -> None:
    wires: dict[tuple[int, int, str], deque[Message]] = {}
    moved = True
    while moved:
        moved = False
        for number, stage in enumerate(state):
            while stage.todo and _step(schedule, state, number, wires, split, found):
                moved = True
    if any(stage.todo for stage in state):
        found.add("hang")


def _step(
    schedule: Schedule,
    state: list[_Stage],
    number: int,
    wires: dict[tuple[int, int, str], deque[Message]],
    split: bool,
    found: set[str],
) -> bool:
    stage, stages = state[number], len(state)
    what, data = stage.todo[0]
    if what == "run":
        assert isinstance(data, Slot)
        _compute(schedule, stage, data, split, found)
        stage.todo.popleft()
        return True
    kind, _, part = data  # type: ignore[misc]
    other = part + 1 if kind == "F" else part - 1
    wire = (part % stages, other % stages, kind)
    if what == "send" and schedule.sends == "async":
        wires.setdefault(wire, deque()).append(data)  # type: ignore[arg-type]
        stage.todo.popleft()
        return True
    if what == "recv" and schedule.sends == "async":
        queue = wires.setdefault(wire, deque())
        if schedule.messages == "tagged":
            if data not in queue:
                return False
            queue.remove(data)  # type: ignore[arg-type]
        elif not queue:
            return False
        elif queue.popleft() != data:
            found.add("message")
        stage.todo.popleft()
        return True
    peer = state[wire[1] if what == "send" else wire[0]]
    want = "recv" if what == "send" else "send"
    if not peer.todo or peer.todo[0][0] != want or peer is stage:
        return False
    theirs = peer.todo[0][1]
    their_kind, _, their_part = theirs  # type: ignore[misc]
    their_other = their_part + 1 if their_kind == "F" else their_part - 1
    if (their_part % stages, their_other % stages, their_kind) != wire:
        return False
    if theirs != data:
        if schedule.messages == "tagged":
            return False
        found.add("message")
    peer.todo.popleft()
    stage.todo.popleft()
    return True


def _compute(schedule: Schedule, stage: _Stage, slot: Slot, split: bool, found: set[str]) -> None:
    buffers = schedule.activations or schedule.micro_batches
    buffer = (slot.micro_batch % buffers, slot.chunk)
    m, chunk = slot.micro_batch, slot.chunk
    if slot.kind == "F":
        stage.activations[buffer] = m
    elif slot.kind == "R":
        wanted = schedule.micro_batches * schedule.chunks
        found |= {"early"} if stage.added < wanted else set()
    else:
        if stage.activations.get(buffer) != m:
            found.add("activation")
        before = Slot("B" if slot.kind == "W" else "F", m, chunk)
        if before not in stage.done:
            found.add("order")
        stage.added += slot.kind == ("W" if split else "B")
    if slot.kind == "F" and len(schedule.stages) == 1 and chunk:
        found |= set() if Slot("F", m, chunk - 1) in stage.done else {"hang"}
    if slot.kind == "B" and len(schedule.stages) == 1 and chunk + 1 < schedule.chunks:
        found |= set() if Slot("B", m, chunk + 1) in stage.done else {"hang"}
    stage.done.add(slot)
