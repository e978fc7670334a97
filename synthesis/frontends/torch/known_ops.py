"""What PyTorch knows of ops on fake tensors, handed from one process to those forked after it.

Ranks of a program call nearly the same ops on tensors of the same kinds, and PyTorch looks up what
it has worked out before (`FakeTensorMode.cache`) in its own process alone. Runs in the worker.
"""

# pyright: basic

import contextlib
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode, _DispatchCacheKey
from torch.fx.experimental.symbolic_shapes import ShapeEnvSettings

PLAIN = (
    bool,
    int,
    float,
    str,
    type(None),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    ShapeEnvSettings,
)
"""Parts of a key that mean the same in every process."""


FILE = "known-ops.pickle"


@contextmanager
def known_ops(folder: Path) -> Iterator[None]:
    """Take what ops give from a file in `folder`, if it is there; write it, if it is not."""
    file = folder / FILE
    if file.exists():
        _read(file)
        yield
        return
    before = set(FakeTensorMode.cache)
    yield
    with contextlib.suppress(OSError):  # the disk is full: it only saves time
        folder.mkdir(parents=True, exist_ok=True)
        _write(file, before)


def _read(file: Path) -> None:
    for name, key, entry in pickle.loads(file.read_bytes()):
        with contextlib.suppress(AttributeError):  # an op that is registered later
            packet, overload = name
            func = getattr(getattr(torch.ops.aten, packet), overload)
            FakeTensorMode.cache.setdefault(_DispatchCacheKey((func, *key)), entry)


def _write(file: Path, before: set[Any]) -> None:
    found = []
    for known, entry in list(FakeTensorMode.cache.items()):
        func, *key = known.key
        if known in before or not isinstance(func, OpOverload) or func.namespace != "aten":
            continue
        if all(map(_is_plain, key)):
            packet = func._schema.name.removeprefix("aten::")
            found.append(((packet, func._overloadname), key, entry))
    draft = file.with_suffix(f".{os.getpid()}.draft")
    draft.write_bytes(pickle.dumps(found))
    draft.replace(file)


def _is_plain(part: Any) -> bool:
    """A type stands in a key beside each value, and says what the value is."""
    return isinstance(part, PLAIN) or part in (list, tuple, dict, torch.Size, *PLAIN)
