"""The sampled calls of this rank that are under way, and when their results may be read."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from shardproof.synthesis.guard import kernels, private
from shardproof.synthesis.guard.calls import Call
from shardproof.synthesis.guard.flights import Flight
from shardproof.synthesis.guard.meeting import Meeting
from shardproof.synthesis.guard.ours import ours, thread


class Tracker:
    """Follows calls from their start to their wait, wherever that is: in Python, in a functional
    wait, or in C++ at the end of a backward pass. What is done is kept until `take`."""

    def __init__(self, keep: int, explain: Callable[[RuntimeError], RuntimeError]) -> None:
        self.keep = keep
        self._explain = explain
        self._lock = threading.RLock()
        self._flying: dict[int, Flight] = {}
        self._landed: list[Flight] = []
        self._recent: dict[int, Flight] = {}
        self._held = 0
        """Bytes that are kept of those."""
        self._tasks: set[int] = set()
        self._first: dict[int, tuple[Any, Meeting]] = {}

    def follow(self, flight: Flight) -> None:
        """From now on, as it was called."""
        with self._lock:
            self._flying[id(flight)] = flight
        if flight.work is not None:
            kernels.watch_wait(
                flight.work,
                lambda _, wait: self._waited(flight, wait),
                lambda: self._lose(flight),
            )
        task = private.backward_task()
        if task != -1 and flight.op != "p2p":
            flight.task = task
            if task not in self._tasks:
                self._tasks.add(task)
                private.after_backward(lambda: self._backward_ended(task))

    def attend(self, work: Any, call: Call, meeting: Meeting) -> None:
        """Look for the verdict of the ranks' meeting while the host waits for this call."""
        if work is None or any(t.device.type != "cpu" for t in call.tensors):
            return

        kernels.watch_wait(work, lambda _, wait: meeting.stay(work, wait))
        with self._lock:
            for t in call.written:
                self._first[t.untyped_storage().data_ptr()] = (work, meeting)

    def _lose(self, flight: Flight) -> None:
        """Nobody can tell whether its result is still what arrived."""
        if self._flying.pop(id(flight), None) is not None:
            flight.give_up()
            self.land(flight)

    def _waited(self, flight: Flight, wait: kernels.Proceed) -> Any:
        result = wait()
        self.finish(flight, True)
        return result

    def wait_tensor(self, tensor: torch.Tensor, wait: kernels.Proceed) -> Any:
        """In place of a functional wait."""
        looked = bool(self._flying or self._first) and not thread.on
        try:
            if not looked:
                return wait(tensor)
            here = tensor.untyped_storage().data_ptr()
            work, meeting = self._first.pop(here, (None, None))
            if meeting is None:
                result = wait(tensor)
            else:
                kernels.forget_wait(work)
                result = meeting.stay(work, partial(wait, tensor))
        except RuntimeError as error:
            raise self._explain(error) from error
        with self._lock:
            mine = [
                f for f in self._flying.values()
                if any(t.untyped_storage().data_ptr() == here for t in f.call.written)
            ]  # fmt: skip
        for flight in mine:
            if flight.work is not None:
                kernels.forget_wait(flight.work)
            self.finish(flight, True)
        return result

    def finish(self, flight: Flight, seen: bool) -> None:
        """Hash what arrived, once; `seen`: nothing can have changed since."""
        if self._flying.pop(id(flight), None) is not None:
            with ours():
                flight.finish(self.keep > 0, seen)
            self.land(flight)

    def land(self, flight: Flight) -> None:
        """It is done: have it compared at the next step. Its tensors are the program's again."""
        flight.release()
        with self._lock:
            self._landed.append(flight)
            if before := self._recent.get(flight.uid):
                self._held -= before.kept_bytes
            self._recent[flight.uid] = flight
            self._held += flight.kept_bytes
            for old in self._recent.values() if self._held > self.keep else ():
                self._held -= old.kept_bytes
                old.kept = {}
                if self._held <= self.keep:
                    break

    def _backward_ended(self, task: int) -> None:
        """Calls of a backward pass that nobody waited for in Python: DDP waits in C++, and what it
        calls then may have changed the result."""
        self._tasks.discard(task)
        with self._lock:
            mine = [f for f in self._flying.values() if f.task == task]
        for flight in mine:
            if flight.work is not None:
                kernels.forget_wait(flight.work)
                flight.work.wait()
            self.finish(flight, False)

    def take(self, step: int) -> list[Flight]:
        """Calls that are done, each once; those of steps before that nobody waited for are given
        up."""
        with self._lock:
            late = list(self._flying.values())
            for at, (work, _) in list(self._first.items()):
                if kernels.completed(work):
                    del self._first[at]
                    if all(f.work is not work for f in late):
                        kernels.forget_wait(work)
        for flight in late:
            if flight.work is None:  # part of a coalesced call, whose own wait is another's
                self.finish(flight, False)
            elif flight.step < step:  # waited for in C++, or not at all
                kernels.forget_wait(flight.work)
                self._lose(flight)
        with self._lock:
            landed, self._landed = self._landed, []
        return landed

    def kept(self, uid: int) -> Flight | None:
        """What is kept of a call, for a diagnosis."""
        return self._recent.get(uid)

    def forget(self, before: int) -> None:
        """Let go of calls of steps before this one."""
        with self._lock:
            for uid, flight in list(self._recent.items()):
                if flight.step < before:
                    self._held -= flight.kept_bytes
                    del self._recent[uid]

    def clear(self) -> None:
        """Follow nothing."""
        self._landed.clear()
        self._flying.clear()
        self._first.clear()
