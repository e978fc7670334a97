"""Threads that the user's lines start: each runs to its end while the one that starts it waits, so
that its ops are recorded in one order. Ops before it is joined may come in another order in a run:
they are refused.
"""

# pyright: basic

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from torch._subclasses import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

Refuse = Callable[[Any, str, str], None]
"""Notes a refusal: the frame, the message and the hint."""


class _Threads:
    def __init__(self, refuse: Refuse, passing: Callable[[], None]) -> None:
        self.refuse, self.passing = refuse, passing
        self.running = [threading.get_ident()]
        """Threads of which each waits for the next; the last one runs."""
        self.begun: dict[Any, int] = {}
        """Threads and futures that are not joined, with the thread that began them."""

    def start(self, original: Any) -> Any:
        def start(thread: threading.Thread) -> None:
            mine = threading.get_ident() == self.running[-1]
            if not mine or not (_by_users(sys._getframe(1)) or thread in self.begun):
                original(thread)
                return
            self.begun[thread] = threading.get_ident()
            modes, run = _get_current_dispatch_mode_stack(), thread.run

            def followed() -> None:
                self.running.append(threading.get_ident())
                try:
                    with ExitStack() as stack:
                        for mode in modes:
                            stack.enter_context(mode)
                        run()
                except BaseException:
                    self.passing()
                    raise
                finally:
                    self.running.pop()

            thread.run = followed
            original(thread)
            _JOIN(thread, PATIENCE_S)
            if thread.is_alive():
                self.refuse(
                    sys._getframe(1),
                    "forward starts a thread that does not end while forward waits for it",
                    "compute it in the thread that calls forward",
                )

        return start

    def join(self, original: Any) -> Any:
        def join(thread: threading.Thread, timeout: Any = None) -> None:
            original(thread, timeout)
            self.begun.pop(thread, None)

        return join

    def submit(self, pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not _by_users(sys._getframe(2)):
            return _SUBMIT(pool, function, *args, **kwargs)
        found: Future[Any] = Future()

        def run() -> None:
            try:
                found.set_result(function(*args, **kwargs))
            except BaseException as problem:  # noqa: BLE001  (the user's code)
                self.passing()
                found.set_exception(problem)

        thread = threading.Thread(target=run)
        self.begun[thread] = threading.get_ident()
        thread.start()
        self.begun[found] = self.begun.pop(thread, threading.get_ident())
        pool.begun = [*getattr(pool, "begun", ()), found]
        return found

    def result(self, original: Any) -> Any:
        def result(future: Any, timeout: Any = None) -> Any:
            self.begun.pop(future, None)
            return original(future, timeout)

        return result

    def shutdown(self, original: Any) -> Any:
        def shutdown(pool: Any, wait: bool = True, **kwargs: Any) -> None:
            for future in getattr(pool, "begun", ()) if wait else ():
                self.begun.pop(future, None)
            original(pool, wait, **kwargs)

        return shutdown

    def alone(self, func: Any) -> None:
        """Refuse an op that may run beside another thread."""
        here = threading.get_ident()
        if here != self.running[-1] or here in self.begun.values():
            self.refuse(
                sys._getframe(2),
                f"{func} runs beside a thread that is not joined: the order is not known",
                "join the thread before, or compute it in the thread that calls forward",
            )

    def dispatch(self, original: Any) -> Any:
        def dispatch(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.alone(func)
            return original.__func__(cls, func, types, args, kwargs)

        return classmethod(dispatch)

    def in_mode(self, original: Any) -> Any:
        def dispatch(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.alone(func)
            return original(mode, func, types, args, kwargs or {})

        return dispatch


_JOIN = threading.Thread.join
_SUBMIT = ThreadPoolExecutor.submit
_DISPATCH = "__torch_dispatch__"
PATIENCE_S = 20.0
"""Seconds for a thread to end."""


@contextmanager
def threads_followed(refuse: Refuse, passing: Callable[[], None]) -> Iterator[None]:
    """What threads do inside is followed. `passing` is called where one ends in an exception."""
    found, kind = _Threads(refuse, passing), threading.Thread
    with (
        patch.object(kind, "start", found.start(kind.start)),
        patch.object(kind, "join", found.join(kind.join)),
        patch.object(ThreadPoolExecutor, "submit", _method(found.submit)),
        patch.object(ThreadPoolExecutor, "shutdown", found.shutdown(ThreadPoolExecutor.shutdown)),
        patch.object(Future, "result", found.result(Future.result)),
        patch.object(FakeTensorMode, _DISPATCH, found.in_mode(vars(FakeTensorMode)[_DISPATCH])),
        patch.object(FakeTensor, _DISPATCH, found.dispatch(vars(FakeTensor)[_DISPATCH])),
    ):
        yield
    if found.begun:
        refuse(
            None,
            "forward starts a thread that it does not join",
            "join it: what it does is awaited",
        )


def _by_users(frame: Any) -> bool:
    """Whether a line of the user's is at a frame: threads of libraries go their way."""
    from shardproof.synthesis.frontends.torch.homes import is_users

    return frame is not None and is_users(frame.f_code.co_filename)


def _method(function: Any) -> Any:
    return lambda *args, **kwargs: function(*args, **kwargs)
