"""Stands between PyTorch and its c10d kernels, at no cost to any other op.

A `TorchDispatchMode` would see every op of the model and cost microseconds at each, is on in one
thread, and sees nothing inside compiled graphs. A kernel registered for the c10d ops themselves
is called for those alone, from Python and C++, in every thread: functional collectives, DTensor,
FSDP, DDP's reducer and compiled graphs all end there.

The dispatch key is `BackendSelect`: it comes right before the backends, on every device and in
every thread, inference mode included. From there a call goes on to its backend without Python's
lock, which a backend may need in another of its threads.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from shardproof.synthesis.guard import private
from shardproof.synthesis.guard.calls import ANY_SOURCE, PAIRS, READERS, UNREAD

Proceed = Callable[..., Any]
Handler = Callable[[str, tuple[Any, ...], Proceed], Any]
"""(name of the op, its arguments, what comes below and takes them) -> what the op returns."""
WaitHandler = Callable[[torch.Tensor, Proceed], Any]
"""(the tensor, what comes below and takes it) -> what the functional wait returns."""
_KEY = "BackendSelect"
_lock = threading.Lock()
_layers: tuple[Layer, ...] = ()
_kernels: dict[bool, list[Any]] = {}
"""The kernels for collectives (True) and for messages (False), from when they were first asked for
to the end of the process: another thread may be on its way into one."""
_covers: dict[bool, list[Any]] = {}
"""What lies over those that nobody asks for: kernels that are skipped at no cost."""
MESSAGES = (*PAIRS, ANY_SOURCE, "monitored_barrier_")
COLLECTIVES = tuple(name for name in (*READERS, *UNREAD) if name not in MESSAGES)


class Layer:
    """Sees the c10d calls of this process, above the layers that are there: messages always,
    collectives and waits while it, or any other layer, is `wide`. Take it off again with
    `remove`."""

    def __init__(self, handler: Handler, on_wait: WaitHandler | None = None) -> None:
        self.handler, self.on_wait = handler, on_wait
        self.wide = True
        _set((*_layers, self))

    def widen(self, wide: bool) -> None:
        """Whether this layer asks for collectives: 0.3 ms, and nothing where that is so already."""
        if wide != self.wide:
            self.wide = wide
            _set(_layers)

    def remove(self) -> None:
        """Take the layer off."""
        _set(tuple(layer for layer in _layers if layer is not self))


def shown(wide: bool) -> bool:
    """Whether the kernels for collectives, or for messages, are called."""
    return wide in _kernels and wide not in _covers


def _set(layers: tuple[Layer, ...]) -> None:
    global _layers
    with _lock:
        _layers = layers
        for wide, asked in ((False, bool(layers)), (True, any(layer.wide for layer in layers))):
            if asked == shown(wide):
                continue
            if not asked:
                _covers[wide] = _libraries(wide, cover=True)
            elif wide in _kernels:
                for library in _covers.pop(wide):
                    library._destroy()
            else:
                _kernels[wide] = _libraries(wide, cover=False)


def _libraries(wide: bool, cover: bool) -> list[Any]:
    skipped = torch.library.fallthrough_kernel
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        c10d: Any = torch.library.Library("c10d", "IMPL")
        for name in COLLECTIVES if wide else MESSAGES:
            c10d.impl(name, skipped if cover else _kernel(name), _KEY, with_keyset=not cover)
        if not wide:
            return [c10d]
        functional: Any = torch.library.Library("_c10d_functional", "IMPL")
        wait = skipped if cover else _wait_kernel()
        functional.impl("wait_tensor", wait, _KEY, with_keyset=not cover)
    return [c10d, functional]


Entry = tuple[Proceed, bool]
"""What comes below a kernel, and whether that is a real backend (it is not for meta tensors, and
those of a graph that is traced)."""


def _entries(op: Any) -> Callable[[Any], Entry]:
    """What comes below the kernel of an op, by the dispatch keys of a call; kept once known."""
    redispatch = private.redispatcher(op)
    known: dict[int, Entry] = {}

    def entry(keys: Any) -> Entry:
        found = known.get(raw := keys.raw_repr())
        if found is None:
            below = keys & private.BELOW
            real = below.has(private.CPU) or below.has(private.CUDA)
            found = known[raw] = partial(redispatch, below), real and not below.has(private.META)
        return found

    return entry


def _kernel(name: str) -> Callable[..., Any]:
    entry = _entries(getattr(torch.ops.c10d, name).default)

    def kernel(keys: Any, *args: Any) -> Any:
        backend, real = entry(keys)
        if not real:
            return backend(*args)
        layers = _layers
        if len(layers) == 1:
            return layers[0].handler(name, args, backend)

        def at(depth: int) -> Proceed:
            if depth == 0:
                return backend
            return lambda *given: layers[depth - 1].handler(name, given, at(depth - 1))

        return at(len(layers))(*args)

    return kernel


def _wait_kernel() -> Callable[..., Any]:
    entry = _entries(torch.ops._c10d_functional.wait_tensor.default)

    def kernel(keys: Any, tensor: torch.Tensor) -> Any:
        backend, real = entry(keys)
        for layer in reversed(_layers):
            if real and layer.on_wait is not None:
                return layer.on_wait(tensor, backend)
        return backend(tensor)

    return kernel


def work_of(result: Any) -> Any:
    """The Work in what a kernel returned, None where there is none."""
    found: Any = result[-1] if isinstance(result, tuple | list) else result  # pyright: ignore[reportUnknownVariableType]
    try:
        return Work.unbox(found)  # pyright: ignore[reportUnknownArgumentType]
    except (RuntimeError, TypeError):
        return None


Then = Callable[[Any, Proceed], Any]
_waited: dict[int, tuple[Any, list[tuple[Then, Callable[[], None] | None]]]] = {}
_explain: Callable[[RuntimeError], RuntimeError] | None = None
_wait: Callable[..., Any] = Work.wait
_is_completed: Callable[..., Any] = Work.is_completed
_works: Any = Work
_get_future: Callable[..., Any] = _works.get_future
TIMED_OUT = "Operation timed out"
"""What `Work.wait` says where the call goes on."""


def patch_wait(explain: Callable[[RuntimeError], RuntimeError]) -> None:
    """Stand in for `Work.wait`, `is_completed` and `get_future` as Python calls them; errors of a
    wait are raised as `explain` says."""
    global _explain
    with _lock:
        _explain = explain
        Work.wait, Work.is_completed = _patched_wait, _patched_is_completed
        Work.get_future = _patched_get_future


def unpatch_wait() -> None:
    """Put them back."""
    global _explain
    with _lock:
        Work.wait, Work.is_completed, Work.get_future = _wait, _is_completed, _get_future
        _explain = None
        _waited.clear()


def watch_wait(work: Any, then: Then, lost: Callable[[], None] | None = None) -> None:
    """Have `then(work, wait)` called in place of the next `work.wait()` from Python, or where
    `work.is_completed()` first says that there is nothing to wait for; of several, the one said
    last comes first, and its `wait` is the one before.

    The object is kept until then: it is what the caller gets, and is known by its identity. With
    `lost`, this is called instead where the program asks for the future of the work: what it has
    that call comes before any wait, and at the same time as anything that we would have it call.
    """
    with _lock:
        _waited.setdefault(id(work), (work, []))[1].append((then, lost))


def forget_wait(work: Any) -> None:
    """Watch it no longer."""
    with _lock:
        _waited.pop(id(work), None)


def completed(work: Any) -> bool:
    """Whether it is, with nothing called that watches it."""
    return _is_completed(work)


def done_within(work: Any, seconds: float) -> bool:
    """Whether a call on the host ends in this time, well or not; it can be waited for again."""
    try:
        _wait(work, timedelta(seconds=seconds))
    except RuntimeError as error:
        return TIMED_OUT not in str(error)
    return True


def _patched_wait(self: Any, timeout: Any = None) -> Any:
    if _waited:
        with _lock:
            _, chain = _waited.pop(id(self), (self, None))
        if chain is not None:
            at: Proceed = partial(_plain_wait, self, timeout)
            for then, _ in chain:
                at = partial(then, self, at)
            return at()
    return _plain_wait(self, timeout)


def _patched_is_completed(self: Any) -> bool:
    done = _is_completed(self)
    if done and id(self) in _waited:
        try:
            _wait(self)
        except RuntimeError:  # for the program's own wait to say
            return done
        _patched_wait(self)
    return done


def _patched_get_future(self: Any) -> Any:
    if id(self) in _waited:
        with _lock:
            _, chain = _waited.pop(id(self), (self, []))
            if left := [pair for pair in chain if pair[1] is None]:
                _waited[id(self)] = (self, left)
        for _, lost in chain:
            if lost is not None:
                lost()
    return _get_future(self)


def _plain_wait(self: Any, timeout: Any) -> Any:
    try:
        return _wait(self) if timeout is None else _wait(self, timeout)
    except RuntimeError as error:
        raise (_explain(error) if _explain else error) from error
