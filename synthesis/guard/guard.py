"""`Guard`: watches what ranks really exchange, and says the same verdict on all of them."""

from __future__ import annotations

import atexit
import contextlib
import json
import secrets
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup
from torch.optim.optimizer import register_optimizer_step_pre_hook

from synthesis.guard import canaries, exact_sums, kernels, meeting, private
from synthesis.guard.alarm import Alarm
from synthesis.guard.calls import ANY_SOURCE, PAIRS, READERS, Call, process_group, read
from synthesis.guard.diagnose import answer, diagnose
from synthesis.guard.errors import FaultError, GuardError
from synthesis.guard.exchange import Exchange
from synthesis.guard.flights import Flight, versions
from synthesis.guard.groups import Group, group_of
from synthesis.guard.journal import Journal
from synthesis.guard.judge import UNJUDGED, WRONG, Ledger, Suspect, pack
from synthesis.guard.settings import Settings
from verifier.fingerprint.mix import key as make_key

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
    * descriptors: ranks that meet in calls of different op, dtype or size.

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
        self.key = self.seed or 0
        self.alarms: list[Alarm] = []
        self.steps = 0
        self.seen = 0
        self.sampled = 0
        self.unread = 0
        self.failed = ""
        self.by_op: dict[str, int] = {}
        self._ledger = Ledger()
        self._groups: dict[Any, Group | None] = {}
        self._early = max(self.agree, int(self.canary))
        self._flying: dict[int, Flight] = {}
        self._landed: list[Flight] = []
        self._recent: dict[int, Flight] = {}
        self._tasks: set[int] = set()
        self._since = 0
        self._updates = 0
        self._lock = threading.RLock()
        self._own = threading.local()
        self._layer: kernels.Layer | None = None
        self._hook: Any = None
        self._exchange: Exchange | None = None

    # -- on and off

    def start(self) -> Guard:
        """Stand in for the c10d kernels. Every rank has to call it."""
        global _active
        if not dist.is_initialized():
            raise GuardError("Guard: no process group; call init_process_group before start")
        if _active is not None:
            raise GuardError("Guard: another guard is on in this process; stop it first")
        settings = self.shared()
        note = {"settings": settings, "seed": secrets.randbits(62)}
        self._exchange = Exchange(self.timeout, note)
        self._journal.rank = self._exchange.rank
        people = self._exchange.people
        for rank, person in enumerate(people):
            if person["settings"] != people[0]["settings"]:
                raise GuardError(
                    f"Guard: rank {rank} was started with {person['settings']}, rank 0 with "
                    f"{people[0]['settings']}; give all ranks the same"
                )
        self.key = int(people[0]["seed"]) if self.seed is None else self.seed
        self.resume()
        atexit.register(self._at_exit)
        _active = self
        self._journal.write({"event": "start", "ranks": self._exchange.size, **settings})
        return self

    def stop(self) -> None:
        """Judge what is left, and put the kernels back. Every rank has to call it."""
        global _active
        if self._layer is None:
            return
        if sys.exc_info()[0] is None and not self.failed and dist.is_initialized():
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
        self._journal.write({"event": "stop", **self.summary()})
        self._journal.report(self.summary(), self.alarms)

    def _at_exit(self) -> None:
        if hasattr(sys, "last_value") or self._exchange is None:
            self._off()
            return
        with contextlib.suppress(GuardError):
            self.stop()

    def __enter__(self) -> Guard:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def pause(self) -> None:
        """Watch nothing until `resume`; every rank has to call it at the same place."""
        if self._layer is not None:
            self._layer.remove()
            self._hook.remove()
            kernels.unpatch_wait()
            self._layer = None
            self._landed.clear()
            self._flying.clear()

    def resume(self) -> None:
        """Watch again."""
        if self._layer is None and self._exchange is not None:
            self._layer = kernels.Layer(self._call, self._wait_tensor)
            kernels.patch_wait(self._explained)
            self._hook = register_optimizer_step_pre_hook(self._before_optimizer)

    def summary(self) -> dict[str, Any]:
        """Numbers of this rank."""
        return {
            "steps": self.steps,
            "calls": self.seen,
            "sampled": self.sampled,
            "judged": self._ledger.judged,
            "unjudged": self._ledger.unjudged,
            "unread": self.unread,
            "alarms": len(self.alarms),
            "by_op": dict(sorted(self.by_op.items())),
            "failed": self.failed,
        }

    # -- calls

    @contextlib.contextmanager
    def _ourselves(self) -> Any:
        """Calls in here are the guard's own, and go straight through."""
        before = getattr(self._own, "on", False)
        self._own.on = True
        try:
            with torch.no_grad():
                yield
        finally:
            self._own.on = before

    @property
    def busy(self) -> bool:
        """Whether this thread is in a call of the guard's own."""
        return bool(getattr(self._own, "on", False))

    def _call(self, name: str, args: tuple[Any, ...], proceed: kernels.Proceed) -> Any:
        if getattr(self._own, "on", False):
            return proceed()
        if name not in READERS:
            self.unread += name != "barrier"
            if name == ANY_SOURCE and (group := self._group(process_group(name, args))):
                group.any_source = True
            return self._run(proceed)
        pg = process_group(name, args)
        group = self._group(pg)
        if group is None:
            return proceed()
        with self._lock:
            self.seen += 1
            self.by_op[name] = self.by_op.get(name, 0) + 1
            if name in PAIRS:
                ends = (group.me, args[2]) if name == "send" else (args[2], group.me)
                seq, look = group.next_message(*ends, args[3])
                tags: tuple[int | str, ...] = ("p2p", *ends, args[3], seq)
            else:
                seq = group.next_call()
                look = group.draw.takes(seq)
                tags = (seq,)
                if seq < self._early:
                    self._before(pg, group, seq, name, args)
                if group.everyone:
                    self._since += 1
                    if self._since > self.calls:
                        self.step()
        if not look:
            return self._run(proceed)
        call = read(name, args, group.me, group.size)
        return self._judged(call, group, make_key(group.uid, *tags), seq, args, proceed)

    def _group(self, pg: Any) -> Group | None:
        try:
            return self._groups[pg]
        except KeyError:
            return self._groups.setdefault(pg, group_of(pg, self.key, self.every))

    def _before(self, pg: Any, group: Group, seq: int, name: str, args: tuple[Any, ...]) -> None:
        """What is done before the first collective calls of a group, the same on all ranks."""
        call = read(name, args, group.me, group.size)
        if seq < self.agree:
            self._agree(call, pg, group, seq)
        if seq == 0 and self.canary:
            self._canary(call, pg, group)

    def _run(self, proceed: kernels.Proceed, *args: Any) -> Any:
        try:
            return proceed(*args)
        except GuardError:
            raise
        except RuntimeError as error:
            raise self._explained(error) from error

    def _explained(self, error: RuntimeError) -> RuntimeError:
        """The error of a collective, with who is gone."""
        assert self._exchange is not None
        if isinstance(error, GuardError) or self.busy:
            return error
        with self._ourselves():
            text = self._exchange.explain("a collective failed", error)
        self._fail(text)
        return GuardError(text)

    def _fail(self, text: str) -> None:
        assert self._exchange is not None
        self.failed = self.failed or text
        self._exchange.tell(text)
        self._journal.write({"event": "failed", "text": text})
        self._journal.report(self.summary(), self.alarms)

    def _agree(self, call: Call, pg: Any, group: Group, seq: int) -> None:
        """One clear error on every member where they are about to meet in different calls."""
        try:
            with self._ourselves():
                said = meeting.descriptions(call, pg, group.size)
        except RuntimeError as error:
            raise self._explained(error) from error
        if len(set(said)) > 1:
            each = ", ".join(f"rank {r}: {t}" for r, t in zip(group.ranks, said, strict=True))
            what = f"ranks meet in different calls, call {seq} of group {group.name}: {each}"
            self._fail(what)
            raise GuardError(what)

    def _canary(self, call: Call, pg: Any, group: Group) -> None:
        try:
            with self._ourselves():
                device = meeting.device_of(call)
                wrong = canaries.run(pg, group.me, group.size, group.uid, device)
        except RuntimeError as error:
            raise self._explained(error) from error
        flight = self._flight(Call("canary", None), group, make_key(group.uid, "canary"), 0)
        flight.done = True
        if wrong:
            flight.flags |= WRONG
            flight.local = {"fault": wrong, "check": "canary"}
        self._land(flight)

    def _flight(self, call: Call, group: Group, uid: int, seq: int) -> Flight:
        text = call.text().replace("send ", "p2p ").replace("recv ", "p2p ")
        flight = Flight(
            call, uid, make_key(uid, text), group.name, group.me, group.ranks, seq, self.steps,
            self.key,
        )  # fmt: skip
        flight.samples = self.samples
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
        changed: tuple[Any, ...] = ()
        with self._ourselves():
            flight.begin(self.keep > 0)
            if self.level == "T3" and exact_sums.fits(call, group.size):
                changed = self._sum_exactly(flight, group, args)
        result = self._run(proceed, *changed)
        flight.work, flight.result = kernels.work_of(result), result
        if changed:
            flight.versions = versions(call.tensors)
        with self._lock:
            self._flying[id(flight)] = flight
        if flight.work is not None:
            kernels.watch_wait(flight.work, lambda _, wait: self._waited(flight, wait))
        task = private.backward_task()
        if task != -1 and flight.op != "p2p":
            flight.task = task
            if task not in self._tasks:
                self._tasks.add(task)
                private.after_backward(lambda: self._backward_ended(task))
        return result

    def _sum_exactly(self, flight: Flight, group: Group, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """T3: what the backend is to be given instead; the sums are then known to the bit."""
        call = flight.call

        def move(part: int, step: int, moved: Call, run: Callable[[], None]) -> None:
            uid = make_key(flight.uid, "T3", part, step)
            other = self._flight(moved, group, uid, flight.seq)
            other.begin(self.keep > 0)
            run()
            other.finish(self.keep > 0, True)
            self._land(other)

        pg = ProcessGroup.unbox(call.group)
        sums, fault = exact_sums.sums_of(call, pg, group.me, group.size, move)
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

    def _waited(self, flight: Flight, wait: kernels.Proceed) -> Any:
        try:
            result = wait()
        except RuntimeError as error:
            raise self._explained(error) from error
        self._finish(flight, True)
        return result

    def _wait_tensor(self, tensor: torch.Tensor, wait: kernels.Proceed) -> Any:
        result = self._run(wait)
        if self._flying and not self.busy:
            at = tensor.untyped_storage().data_ptr()
            with self._lock:
                mine = [
                    f for f in self._flying.values()
                    if any(t.untyped_storage().data_ptr() == at for t in f.call.written)
                ]  # fmt: skip
            for flight in mine:
                if flight.work is not None:
                    kernels.forget_wait(flight.work)
                self._finish(flight, True)
        return result

    def _finish(self, flight: Flight, seen: bool) -> None:
        with self._ourselves():
            flight.finish(self.keep > 0, seen)
        self._land(flight)

    def _land(self, flight: Flight) -> None:
        with self._lock:
            self._flying.pop(id(flight), None)
            self._landed.append(flight)
            self._recent[flight.uid] = flight
            held = sum(f.kept_bytes for f in self._recent.values()) if self.keep else 0
            for old in list(self._recent.values()):
                if held <= self.keep:
                    break
                held -= old.kept_bytes
                old.kept = {}

    def _backward_ended(self, task: int) -> None:
        """Calls of a backward pass that nobody waited for in Python: DDP waits in C++."""
        self._tasks.discard(task)
        with self._lock:
            mine = [f for f in self._flying.values() if f.task == task]
        for flight in mine:
            if flight.work is not None:
                kernels.forget_wait(flight.work)
                self._run(flight.work.wait)
            self._finish(flight, flight.work is not None)

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
        with self._ourselves():
            try:
                suspects = self._judge()
                found = [self._diagnosed(s) for s in suspects[:4]]
            except GuardError as error:
                self._fail(str(error))
                raise
        now, self.steps = self.steps, self.steps + 1
        self._since = 0
        for uid, flight in list(self._recent.items()):
            if flight.step < now - self._ledger.patience * self.between:
                del self._recent[uid]
        self.alarms += found
        for alarm in found:
            self._journal.write(alarm.to_json())
        if found:
            more = f" (and {len(suspects) - len(found)} more)" if len(suspects) > len(found) else ""
            text = "; ".join(map(str, found)) + more
            self._journal.report(self.summary(), self.alarms)
            if self.on_fault == "raise":
                raise FaultError(text)
            if self._exchange.rank == 0:
                sys.stderr.write(f"shardproof guard: {text}\n")
        return found

    def tell_all(self, data: dict[str, Any], what: str) -> list[dict[str, Any]]:
        """What every rank says, on every rank. Raises GuardError where one does not come."""
        if self._exchange is None:
            raise GuardError("Guard: not started")
        with self._ourselves():
            return [json.loads(x) for x in self._exchange.gather(json.dumps(data).encode(), what)]

    def _before_optimizer(self, *_: object) -> None:
        self._updates += 1
        if self._updates % self.between == 0:
            self.step()
        else:
            self.steps += 1

    def _judge(self) -> list[Suspect]:
        assert self._exchange is not None
        with self._lock:
            late = list(self._flying.values())
        for flight in late:
            if flight.work is None:  # part of a coalesced call, whose own wait is another's
                self._finish(flight, False)
            elif flight.step < self.steps:  # waited for in C++, or not at all
                kernels.forget_wait(flight.work)
                flight.give_up()
                self._land(flight)
        with self._lock:
            landed, self._landed = self._landed, []
        rows = [flight.record() for flight in landed]
        for flight in landed:
            flight.release()
        told = self._exchange.gather(pack(rows), f"step {self.steps}")
        return self._ledger.take(told)

    def _diagnosed(self, suspect: Suspect) -> Alarm:
        assert self._exchange is not None
        mine = self._recent.get(suspect.uid)
        rows = self._exchange.gather(answer(mine), f"step {self.steps}, what was kept of a call")
        return diagnose(suspect, rows)
