"""`Guard`: watches what ranks really exchange, and says the same verdict on all of them."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_pre_hook

from shardproof.synthesis.guard import kernels, parting, private
from shardproof.synthesis.guard.alarm import Alarm
from shardproof.synthesis.guard.cycle import Cycle, aligned, places, split
from shardproof.synthesis.guard.diagnose import answer, diagnose
from shardproof.synthesis.guard.errors import FaultError, GuardError, after_uncaught
from shardproof.synthesis.guard.exchange import Exchange
from shardproof.synthesis.guard.journal import Journal
from shardproof.synthesis.guard.judge import Ledger, Suspect, pack
from shardproof.synthesis.guard.meeting import Meeting
from shardproof.synthesis.guard.observer import Observer
from shardproof.synthesis.guard.ours import ours, thread
from shardproof.synthesis.guard.settings import Settings

_active: Guard | None = None


def active() -> Guard | None:
    """The guard that is on in this process."""
    return _active


class Guard(Settings):
    """Watches the collectives of this job: start it on every rank after `init_process_group`.

    Sees every c10d call of CPU and CUDA tensors, from whatever thread: `torch.distributed`,
    functional collectives, DTensor, FSDP, DDP, pipelining, compiled graphs. It does not see CUDA
    graphs when they are replayed, and what goes to NCCL or another library past c10d.

    Guarantees for a call that is judged, against faults between the call and its wait:

    * moves (all-gather, all-to-all, broadcast, scatter, gather, send and receive): a change inside
      one 8-byte word of what arrived is found for certain, any other but for 2^-64; never a false
      alarm. A send buffer that differs between the call and its wait is found the same way.
    * all-reduce: copies that differ are found the same way (R). A fault common to all copies, and
      those of reduce and reduce-scatter, are found where they touch one of `samples` places by more
      than rounding (T2). `level="T3"` finds every one, to the bit, for sums of floats: terms are
      moved and added in the order of the ranks, and the backend gets terms that it cannot round.
    * descriptors: of ranks that are about to meet in calls of different op, dtype, size or root, in
      the first `agree` calls of a group, no two ever call.

    It does not see what was wrong before the call, calls that are not sampled, `recv` from any
    source, or a result that the program changed before the guard could look (counted, `unjudged`).

    The settings are those of `Settings`.

    Raises:
        GuardError: no process group, another guard is on, or ranks differ in these settings.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._journal = Journal(
            Path(self.log) if self.log else None, Path(self.report) if self.report else None
        )
        self.alarms: list[Alarm] = []
        self.steps = 0
        self.failed = ""
        self.ended = False
        self._ledger = Ledger()
        self.watched = 0
        """Steps that were watched."""
        self._observer = Observer(self, self, 0, None)
        self._cycle = Cycle(0, 1)
        self._drawn = False
        """Whether this step is the one of its cycle."""
        self._layer: kernels.Layer | None = None
        self._undo = contextlib.ExitStack()
        self._aligned = False
        self._exchange: Exchange | None = None

    # -- on and off

    def start(self) -> Guard:
        """Stand in for the c10d kernels. Every rank has to call it."""
        global _active
        if not dist.is_initialized():
            raise GuardError("Guard: no process group; call init_process_group before start")
        if _active is not None:
            raise GuardError("Guard: another guard is on in this process; stop it first")
        private.leave_uncompiled(
            "shardproof.synthesis.guard", "shardproof.synthesis.guard.fingerprint"
        )
        if private.counts_otherwise():
            self.cycle = 1
        settings = self.shared()
        note = {"settings": settings, "run": secrets.randbits(62)}
        self._exchange = exchange = Exchange(self.timeout, note)
        self._journal.rank = exchange.rank
        first = exchange.people[0]
        for rank, person in enumerate(exchange.people):
            if person["settings"] != first["settings"]:
                raise GuardError(
                    f"Guard: rank {rank} was started with {person['settings']}, rank 0 with "
                    f"{first['settings']}; give all ranks the same"
                )
        run = int(first["run"])
        meeting = Meeting(exchange.room("calls"), exchange.rank, self._fail)
        key = run if self.seed is None else self.seed
        self._observer = Observer(self, self, key, meeting)
        self._cycle = Cycle(key, self.cycle)
        self.resume()
        atexit.register(self._at_exit, os.getpid())
        _active = self
        self._journal.write({"event": "start", "ranks": exchange.size, **settings})
        self._journal.report(self.summary(), self.alarms)
        return self

    def stop(self) -> None:
        """Judge what is left, and put the kernels back. Every rank has to call it; where an
        exception is on its way nothing is judged."""
        self._stop(sys.exc_info()[0] is None)

    def _stop(self, judge: bool) -> None:
        if self._exchange is None or self.ended:
            return
        if judge and not self.failed and dist.is_initialized():
            try:
                self.step()
            finally:
                self._off()
        else:
            self._off()

    def _off(self) -> None:
        global _active
        self.pause()
        atexit.unregister(self._at_exit)
        _active = None
        self.ended = True
        if not self.failed and self._exchange is not None:
            # a process group that outlives destroy_process_group has threads when Python ends
            self._observer.release()
            self._exchange.close()
        self._journal.write({"event": "stop", **self.summary()})
        self._journal.report(self.summary(), self.alarms)

    def _at_exit(self, pid: int) -> None:
        exchange = self._exchange
        if os.getpid() != pid or exchange is None:  # a fork of the rank
            return
        together = dist.is_initialized() and not (hasattr(sys, "last_value") or self.failed)
        if together and not (together := parting.all_come(exchange.room("exit"), exchange.size)):
            exchange.tell(parting.LEFT)
        try:
            self._stop(together)
        except GuardError as error:
            sys.stderr.write(f"shardproof guard: {error}\n")

    def __enter__(self) -> Guard:
        return self.start()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is not None:
                self._tell(error)
                if (why := self._why(error)) is not error:
                    raise why from error
        finally:
            self._stop(error is None)

    def pause(self) -> None:
        """Watch nothing until `resume`; every rank has to call it at the same place."""
        if self._layer is not None:
            self._layer.remove()
            self._layer = None
            self._undo.close()
            self._observer.tracker.clear()

    def resume(self) -> None:
        """Watch again."""
        if self._layer is None and self._exchange is not None:
            self._layer = kernels.Layer(self._observer.call, self._observer.tracker.wait_tensor)
            self._observer.begin()
            self._enter(self._observer.watching, self._drawn)
            kernels.patch_wait(self.explained)
            self._undo.callback(kernels.unpatch_wait)
            if self.optimizers:
                hook = private.uncompiled(self._before_optimizer)
                self._undo.callback(register_optimizer_step_pre_hook(hook).remove)
            self._undo.callback(private.on_new_group(self._awake))
            self._undo.callback(after_uncaught(self._tell, self._why))

    # -- what it saw

    @property
    def by_op(self) -> dict[str, int]:
        """Calls of this rank by the name of their c10d op."""
        return self._observer.by_op

    @property
    def seen(self) -> int:
        """Calls of this rank."""
        return sum(self.by_op.values())

    @property
    def watching(self) -> bool:
        """Whether the collectives of this step are looked at."""
        return self._observer.watching

    @property
    def sampled(self) -> int:
        """Calls that were looked at."""
        return self._observer.sampled

    def summary(self) -> dict[str, Any]:
        """Numbers of this rank."""
        return {
            "steps": self.steps,
            "watched": self.watched,
            "calls": self.seen,
            "sampled": self.sampled,
            "judged": self._ledger.judged,
            "unjudged": self._ledger.unjudged,
            "unread": self._observer.unread,
            "alarms": len(self.alarms),
            "by_op": self.by_op,
            "failed": self.failed,
            "ended": self.ended,
        }

    # -- errors

    def _why(self, error: BaseException) -> BaseException:
        """What ended the program, with who is gone where a backend said so: it may have come from
        a step that is not watched."""
        if self._layer is None or self.failed or not private.from_backend(error):
            return error
        assert isinstance(error, RuntimeError)
        return self.explained(error)

    def _tell(self, error: BaseException) -> None:
        """Tell the others of an error of the program's own, before they miss this rank."""
        own = not (isinstance(error, GuardError) or private.from_backend(error))
        if own and self._layer is not None and self._exchange is not None:
            self._exchange.tell(parting.last_words(error))

    def explained(self, error: RuntimeError, what: str = "") -> RuntimeError:
        """The error of a collective, with who is gone; of the guard's own, of a call that the
        backend does not know, and where the guard is off, the error itself."""
        if isinstance(error, GuardError) or thread.on or self._exchange is None:
            return error
        with ours():
            text = self._verdict()
            if not (text or what or private.from_backend(error)):
                return error
            text = text or self._exchange.explain(what or "a collective failed", error)
        self._fail(text)
        return GuardError(text)

    def _verdict(self) -> str:
        with contextlib.suppress(RuntimeError):
            return self._observer.meeting.verdict() if self._observer.meeting else ""
        return ""

    def _fail(self, text: str) -> None:
        assert self._exchange is not None
        self.failed = self.failed or text
        self._exchange.tell(text)
        self._journal.write({"event": "failed", "text": text})
        self._journal.report(self.summary(), self.alarms)

    # -- steps

    def step(self) -> list[Alarm]:
        """Exchange what was sampled since the last step, and judge it. Every rank has to call it;
        it is called before every `optimizer.step()`.

        Raises:
            FaultError: with `on_fault="raise"`, on every rank, where any call went wrong.
            GuardError: a rank did not come, or is gone.
        """
        if self._exchange is None or self._layer is None:
            return []
        try:
            return self.compare()
        finally:
            self._turn()

    def compare(self) -> list[Alarm]:
        """`step`, in the midst of one."""
        exchange = self._exchange
        assert exchange is not None
        with ours():
            try:
                suspects = self._judge(exchange)
                found = [self._diagnosed(s, exchange) for s in suspects[:4]]
            except GuardError as error:
                self._fail(str(error))
                raise
        self.steps += 1
        self._observer.since = 0
        between = max(self.between, 2 * self.cycle)
        self._observer.tracker.forget(self.steps - self._ledger.patience * between)
        self.alarms += found
        for alarm in found:
            self._journal.write(alarm.to_json())
        if found:
            more = f" (and {len(suspects) - len(found)} more)" if len(suspects) > len(found) else ""
            text = "; ".join(map(str, found)) + more
            self._journal.report(self.summary(), self.alarms)
            if self.on_fault == "raise":
                raise FaultError(text)
            if exchange.rank == 0:
                sys.stderr.write(f"shardproof guard: {text}\n")
        return found

    def tell_all(self, data: dict[str, Any], what: str) -> list[dict[str, Any]]:
        """What every rank says, on every rank. Raises GuardError where one does not come."""
        if self._exchange is None:
            raise GuardError("Guard: not started")
        with ours():
            return [json.loads(x) for x in self._exchange.gather(json.dumps(data).encode(), what)]

    def _before_optimizer(self) -> None:
        if self._observer.watching and (self.watched + 1) % self.between == 0:
            self.step()
        else:
            self.steps += 1
            self._turn()

    def _turn(self) -> None:
        """The step is over; whether the next is watched."""
        watched = self._observer.watching
        self.watched += watched
        if self.cycle > 1:
            drawn = self._cycle.takes(self.steps)
            self._enter(drawn or (watched and not self._aligned), drawn)

    def _enter(self, watching: bool, drawn: bool = False) -> None:
        """Watch collectives, or leave them alone."""
        if self._layer is None:  # stopped by what was found
            return
        self._drawn = drawn
        # PyTorch changes kernels while other threads may be about to call them
        wide = watching or self._observer.strangers
        self._observer.enter(watching, max(1, self.every // self.cycle) if drawn else self.every)
        self._layer.widen(wide)

    def _awake(self, pg: Any) -> None:
        """A group was made: its first calls are looked at in steps that are not watched, too."""
        if self._layer is not None:
            self._observer.made(pg)
            self._layer.widen(True)

    def _judge(self, exchange: Exchange) -> list[Suspect]:
        self._observer.judge_canaries()
        landed = self._observer.tracker.take(self.steps)
        rows = [flight.record() for flight in landed]
        here = places(self._observer.groups.values() if self.cycle > 1 else ())
        told = [split(x) for x in exchange.gather(here + pack(rows), f"step {self.steps}")]
        self._aligned = aligned([at for at, _ in told])
        return self._ledger.take(records for _, records in told)

    def _diagnosed(self, suspect: Suspect, exchange: Exchange) -> Alarm:
        mine = self._observer.tracker.kept(suspect.uid)
        rows = exchange.gather(answer(mine), f"step {self.steps}, what was kept of a call")
        return diagnose(suspect, rows)
