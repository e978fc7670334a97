"""Sees every c10d call of this process, counts it, and looks at those that are drawn."""

import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Protocol

from torch._C._distributed_c10d import ProcessGroup

from shardproof.synthesis.guard import canaries, exact_sums, kernels, private
from shardproof.synthesis.guard.calls import (
    ANY_SOURCE,
    PAIRS,
    READERS,
    Call,
    device_of,
    process_group,
    read,
)
from shardproof.synthesis.guard.errors import GuardError
from shardproof.synthesis.guard.fingerprint.mix import key as make_key
from shardproof.synthesis.guard.flights import Flight, versions
from shardproof.synthesis.guard.groups import Group, Lane, group_of
from shardproof.synthesis.guard.judge import UNJUDGED, WRONG
from shardproof.synthesis.guard.meeting import Meeting
from shardproof.synthesis.guard.ours import ours, thread
from shardproof.synthesis.guard.settings import Settings
from shardproof.synthesis.guard.tracking import Tracker

ORDER = (
    "a sum could not be added again (with T3, calls over groups that share ranks have to come in "
    "the same order on all ranks)"
)


class Guarding(Protocol):
    """What the observer asks of its guard."""

    steps: int

    def explained(self, error: RuntimeError, what: str = ...) -> RuntimeError:
        """The error of a collective, with who is gone."""
        ...

    def compare(self) -> Any:
        """Compare now."""
        ...


class Observer:
    """The calls of this rank, from the kernels to the tracker.

    A call that nothing is due for costs a look-up of its group and a count; what is due next in a
    lane of calls is known before (`Lane.due`). Collectives are numbered within a phase, which is
    some optimizer steps in a row (`enter`); messages between two ranks are numbered for good.
    """

    def __init__(
        self, settings: Settings, guard: Guarding, key: int, meeting: Meeting | None
    ) -> None:
        self.settings, self.key, self.meeting = settings, key, meeting
        self.tracker = Tracker(settings.keep, guard.explained)
        self.sampled = 0
        self.unread = 0
        self.since = 0
        """Calls of groups of all ranks since the last comparison."""
        self.groups: dict[Any, Group | None] = {}
        self.phase = 0
        self.watching = True
        """Whether the collectives of this phase are looked at, all but those of groups that are
        first called in it."""
        self.strangers = False
        """Whether threads of the program's own called collectives in this phase: not the one that
        steps, and not those of a backward pass."""
        self._first = True
        self._thread = threading.get_ident()
        self._every = settings.every
        self._guard = guard
        self._origins: dict[Any, int] = {}
        self._born: dict[Any, int] = {}
        self._tally = dict.fromkeys(READERS, 0)
        self._canaries: list[tuple[canaries.Canary, Flight]] = []
        self._count = threading.Lock()
        self._lock = threading.RLock()

    @property
    def by_op(self) -> dict[str, int]:
        """Calls by the name of their op."""
        return {name: n for name, n in sorted(self._tally.items()) if n}

    def begin(self) -> None:
        """From here on every message is seen. Every rank has to call it at the same place."""
        self._origins = {pg: private.counted(pg) for pg in private.groups()}
        for pg, group in list(self.groups.items()):
            if group is not None:
                group.origin, group.exchanged = self._origins.get(pg, 0), 0

    def enter(self, watching: bool, every: int) -> None:
        """Begin a phase, in which one call of so many is looked at, or none. Every rank has to do
        so at the same place, or calls near it cannot be judged."""
        with self._lock:
            self.phase += 1
            self.watching, self._every = watching, every
            self._first = self._first and watching
            self._thread = threading.get_ident()
            self.strangers = False
            self.since = 0
            for known in (self.groups, self._born, self._origins):
                for pg in [pg for pg in list(known) if not private.alive(pg)]:
                    del known[pg]

    def release(self) -> None:
        """Keep no process group alive."""
        with self._lock:
            for known in (self.groups, self._born, self._origins):
                known.clear()

    def made(self, pg: Any) -> None:
        """This group was, in this phase."""
        self._born[pg] = self.phase

    def _strange(self) -> bool:
        return threading.get_ident() != self._thread and private.backward_task() == -1

    def call(self, name: str, args: tuple[Any, ...], proceed: kernels.Proceed) -> Any:
        """In place of a c10d call."""
        if thread.on:
            return proceed(*args)
        reader = READERS.get(name)
        if reader is None:
            return self._unread(name, args, proceed)
        pg = ProcessGroup.unbox(args[reader[0]])
        try:
            group = self.groups[pg]
        except KeyError:
            group = self._met(pg)
        if group is None:
            return proceed(*args)
        if name in PAIRS:
            lane, counts = group.messages(*_ends(name, args, group), args[3]), False
        else:
            if strange := self._strange():
                self.strangers = True
            if group.phase != self.phase and not self._opened(group):
                return self._run(proceed, args)
            lane, counts = group.lane, group.everyone and self._first and not strange
        with self._count:
            seq = lane.calls
            lane.calls = seq + 1
            self._tally[name] += 1
            group.exchanged += name in PAIRS and args[0][0].device.type in group.counting
            due = seq >= lane.due
            if counts:
                self.since += 1
                due = due or self.since > self.settings.calls
        if due:
            return self._due(name, args, proceed, pg, group, lane, seq)
        return self._run(proceed, args)

    def _run(self, proceed: kernels.Proceed, args: tuple[Any, ...]) -> Any:
        try:
            return proceed(*args)
        except RuntimeError as error:
            raise self._guard.explained(error) from error

    @contextmanager
    def _explained(self, what: str = "") -> Generator[None]:
        try:
            yield
        except GuardError:
            raise
        except RuntimeError as error:
            raise self._guard.explained(error, what) from error

    def _met(self, pg: Any) -> Group | None:
        origin, born = self._origins.get(pg, 0), self._born.pop(pg, 0)
        found = group_of(pg, self.key, self.settings.every, born, origin)
        return self.groups.setdefault(pg, found)

    def _opened(self, group: Group) -> bool:
        """Whether this call, the first of its group in this phase, and those after it count."""
        with self._count:
            if group.phase != self.phase and (self.watching or group.born == self.phase):
                early = max(self.settings.agree, int(self.settings.canary and self._first))
                most = sys.maxsize if self._first else 10 * self.settings.calls
                group.open(self.phase, self._every, early, most)
        return group.phase == self.phase

    def _unread(self, name: str, args: tuple[Any, ...], proceed: kernels.Proceed) -> Any:
        self.unread += name != "barrier"
        pg = process_group(name, args)
        group = self.groups.get(pg) or self._met(pg)
        if group is None or name == "barrier":
            return self._run(proceed, args)
        before = private.counted(pg)
        result = self._run(proceed, args)
        with self._count:  # a monitored barrier sends messages, more of them on rank 0
            group.exchanged += private.counted(pg) - before
            group.any_source = group.any_source or name == ANY_SOURCE
        return result

    def _due(
        self,
        name: str,
        args: tuple[Any, ...],
        proceed: kernels.Proceed,
        pg: Any,
        group: Group,
        lane: Lane,
        seq: int,
    ) -> Any:
        """A call that is more than counted."""
        settings = self.settings
        agree = canary = False
        if lane is group.lane:
            tags, number = ("call", group.phase, group.base, seq), group.calls + seq
            agree = number < settings.agree
            canary = self._first and number == 0 and settings.canary and not self._strange()
        else:
            tags, number = ("p2p", *_ends(name, args, group), args[3], seq), seq
        uid = make_key(group.uid, *tags)
        with self._lock:
            look = lane.looked_at(seq)
            asked = agree or canary or look
            call = read(name, args, group.me, group.size) if asked else None
            self.unread += asked and call is None
            if agree:
                text = call.text() if call else f"{name.strip('_')} of tensors that do not fit"
                self._agree(text, group, uid, number)
            if call is not None and canary:
                self._start_canary(call, pg, group)
            if self.since > settings.calls and group.everyone and lane is group.lane:
                self._guard.compare()
        if call is not None and look:
            result = self._judged(call, group, uid, number, args, proceed)
        else:
            result = self._run(proceed, args)
        if call is not None and agree and self.meeting is not None:
            self.tracker.attend(kernels.work_of(result), call, self.meeting)
        return result

    def _agree(self, text: str, group: Group, uid: int, number: int) -> None:
        assert self.meeting is not None
        with self._explained(), ours():
            self.meeting.come(text, group, uid, number)

    def _start_canary(self, call: Call, pg: Any, group: Group) -> None:
        with self._explained(), ours():
            found = canaries.start(pg, group.me, group.size, group.uid, device_of(call))
        flight = self._flight(Call("canary", None), group, make_key(group.uid, "canary"), 0)
        self._canaries.append((found, flight))

    def judge_canaries(self) -> None:
        """Those that are complete; the others may wait for ranks that come later."""
        for canary, flight in [x for x in self._canaries if x[0].complete]:
            self._canaries.remove((canary, flight))
            flight.done = True
            if wrong := canary.verdict():
                flight.flags |= WRONG
                flight.local = {"fault": wrong, "check": "canary"}
            self.tracker.land(flight)

    def _flight(self, call: Call, group: Group, uid: int, seq: int) -> Flight:
        text = call.text().replace("send ", "p2p ").replace("recv ", "p2p ")
        flight = Flight(
            call, uid, make_key(uid, text), group.name, group.me, group.ranks, seq,
            self._guard.steps, self.key,
        )  # fmt: skip
        flight.samples = self.settings.samples
        return flight

    def _judged(
        self,
        call: Call,
        group: Group,
        uid: int,
        seq: int,
        args: tuple[Any, ...],
        proceed: kernels.Proceed,
    ) -> Any:
        self.sampled += 1
        flight = self._flight(call, group, uid, seq)
        if group.any_source and call.op == "recv":
            flight.flags |= UNJUDGED
        exact = self.settings.level == "T3" and exact_sums.fits(call, group.size)
        with ours():
            flight.begin(self.settings.keep > 0)
        if exact:
            with self._explained(ORDER), ours():
                args = self._sum_exactly(flight, group, args)
        result = self._run(proceed, args)
        flight.work, flight.result = kernels.work_of(result), result
        if exact:
            flight.versions = versions(call.tensors)
        self.tracker.follow(flight)
        if flight.work is None and not private.coalescing(ProcessGroup.unbox(call.group)):
            self.tracker.finish(flight, True)  # NCCL: in order on the stream, with no Work
        return result

    def _sum_exactly(self, flight: Flight, group: Group, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """T3: what the backend is to be given instead; the sums are then known to the bit."""
        call, keep = flight.call, self.settings.keep > 0

        def move(part: int, step: int, moved: Call, run: Callable[[], None]) -> None:
            uid = make_key(flight.uid, "T3", part, step)
            other = self._flight(moved, group, uid, flight.seq)
            other.begin(keep)
            run()
            other.finish(keep, True)
            self.tracker.land(other)

        pg = ProcessGroup.unbox(call.group)
        seconds = self.settings.timeout
        sums, fault = exact_sums.sums_of(call, pg, group.me, group.size, move, seconds)
        if fault:
            flight.flags |= WRONG
            flight.local = {"fault": fault}
        share = group.size if call.reduce == "avg" else 1
        flight.expected = [s.reshape(t.shape) / share for s, t in zip(sums, call.sums, strict=True)]
        new = exact_sums.stand_ins(call, sums, group.me, group.size)
        if call.op == "all_reduce":
            for t, value in zip(call.terms, new, strict=True):
                t.detach().copy_(value)
            return args
        return (args[0], exact_sums.in_form_of(args[1], new), *args[2:])


def _ends(name: str, args: tuple[Any, ...], group: Group) -> tuple[int, int]:
    """Sender and receiver of a message, as ranks of the group."""
    return (group.me, args[2]) if name == "send" else (args[2], group.me)
