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
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from synthesis.guard import private
from synthesis.guard.calls import READERS, UNREAD

Proceed = Callable[..., Any]
Handler = Callable[[str, tuple[Any, ...], Proceed], Any]
"""(name of the op, its arguments, what comes below) -> what the op returns."""
WaitHandler = Callable[[torch.Tensor, Proceed], Any]
_KEY = "BackendSelect"
_layers: list[Layer] = []
_libraries: list[Any] = []


class Layer:
    """Sees the c10d calls of this process, above the layers that are there. Take it off again
    with `remove`."""

    def __init__(self, handler: Handler, on_wait: WaitHandler | None = None) -> None:
        self.handler, self.on_wait = handler, on_wait
        if not _layers:
            _install()
        _layers.append(self)

    def remove(self) -> None:
        """Take the layer off; with the last one the kernels are as they were."""
        if self in _layers:
            _layers.remove(self)
        if not _layers:
            for library in _libraries:
                library._destroy()
            _libraries.clear()


def _install() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        c10d: Any = torch.library.Library("c10d", "IMPL")
        functional: Any = torch.library.Library("_c10d_functional", "IMPL")
        _libraries.extend([c10d, functional])
        for name in (*READERS, *UNREAD):
            c10d.impl(name, _kernel(name), _KEY, with_keyset=True)
        functional.impl("wait_tensor", _wait_kernel(), _KEY, with_keyset=True)


_seen: dict[int, tuple[Any, bool]] = {}


def _below(keys: Any) -> tuple[Any, bool]:
    """The dispatch keys from the backend on, and whether that is a real one."""
    raw = keys.raw_repr()
    if raw not in _seen:
        below = keys & private.BELOW
        _seen[raw] = below, below.has(private.CPU) or below.has(private.CUDA)
    return _seen[raw]


def _kernel(name: str) -> Callable[..., Any]:
    redispatch = private.redispatcher(getattr(torch.ops.c10d, name).default)

    def kernel(keys: Any, *args: Any) -> Any:
        below, real = _below(keys)
        if not real:  # meta tensors
            return redispatch(below, *args)

        def backend(*changed: Any) -> Any:
            return redispatch(below, *(changed or args))

        if len(_layers) == 1:
            return _layers[0].handler(name, args, backend)

        def at(depth: int) -> Proceed:
            if depth == 0:
                return backend
            return lambda *changed: _layers[depth - 1].handler(name, changed or args, at(depth - 1))

        return at(len(_layers))()

    return kernel


def _wait_kernel() -> Callable[..., Any]:
    redispatch = private.redispatcher(torch.ops._c10d_functional.wait_tensor.default)

    def kernel(keys: Any, tensor: torch.Tensor) -> Any:
        below, real = _below(keys)
        for layer in reversed(_layers):
            if real and layer.on_wait is not None:
                return layer.on_wait(tensor, lambda: redispatch(below, tensor))
        return redispatch(below, tensor)

    return kernel


def work_of(result: Any) -> Any:
    """The Work in what a kernel returned, None where there is none."""
    found: Any = result[-1] if isinstance(result, tuple | list) else result  # pyright: ignore[reportUnknownVariableType]
    try:
        return Work.unbox(found)  # pyright: ignore[reportUnknownArgumentType]
    except (RuntimeError, TypeError):
        return None


_lock = threading.Lock()
_waited: dict[int, tuple[Any, list[Callable[[Any, Proceed], Any]]]] = {}
_wait: Any = None
_explain: Callable[[RuntimeError], BaseException] | None = None


def patch_wait(explain: Callable[[RuntimeError], BaseException]) -> None:
    """Stand in for `Work.wait` as Python calls it; its errors are raised as `explain` says."""
    global _wait, _explain
    with _lock:
        _explain = explain
        if _wait is None:
            _wait = Work.wait
            Work.wait = _patched_wait


def watch_wait(work: Any, then: Callable[[Any, Proceed], Any]) -> None:
    """Have `then(work, wait)` called in place of the next `work.wait()` from Python; of several,
    the one said last comes first, and its `wait` is the one before.

    The object is kept until then: it is what the caller gets, and is known by its identity.
    """
    with _lock:
        _waited.setdefault(id(work), (work, []))[1].append(then)


def forget_wait(work: Any) -> None:
    """Watch it no longer."""
    with _lock:
        _waited.pop(id(work), None)


def _patched_wait(self: Any, *args: Any, **kwargs: Any) -> Any:
    wait, explain = _wait, _explain
    chain: list[Callable[[Any, Proceed], Any]] = []
    if _waited:
        with _lock:
            chain = _waited.pop(id(self), (self, chain))[1]
    if chain:

        def at(depth: int) -> Proceed:
            if depth == 0:
                return lambda: wait(self, *args, **kwargs)
            return lambda: chain[depth - 1](self, at(depth - 1))

        return at(len(chain))()
    try:
        return wait(self, *args, **kwargs)
    except RuntimeError as error:
        if explain is None:
            raise
        raise explain(error) from error


def unpatch_wait() -> None:
    """Put `Work.wait` back."""
    global _wait, _explain
    with _lock:
        if _wait is not None:
            Work.wait = _wait
        _wait = _explain = None
        _waited.clear()
