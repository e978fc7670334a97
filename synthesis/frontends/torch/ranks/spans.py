"""The memory that a tensor lies in."""

# pyright: basic
# (PyTorch has no types for what is used here.)

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import is_fake


def storage(t: torch.Tensor) -> Any:
    return t.untyped_storage()


def same_storage(a: Any, b: Any) -> bool:
    return a._cdata == b._cdata


@dataclass(frozen=True)
class Span:
    """The part of a storage that a tensor lies in."""

    storage: Any
    first: int
    last: int
    """Bytes from the start of the storage."""

    @classmethod
    def of(cls, t: torch.Tensor) -> Span:
        size = t.element_size()
        steps = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
        first = int(t.storage_offset()) * size
        return cls(storage(t), first, first + steps * size + size - 1 if t.numel() else first - 1)

    def meets(self, other: Span) -> bool:
        apart = self.last < other.first or other.last < self.first
        return same_storage(self.storage, other.storage) and not apart


def held_beside(t: torch.Tensor) -> bool:
    """Whether something keeps another tensor with the memory of one."""
    gc.collect()
    place = storage(t)._cdata
    return any(
        held is not t and not is_fake(held) and storage(held)._cdata == place
        for held in gc.get_objects()
        if type(held) in (torch.Tensor, torch.nn.Parameter)
    )


def same_entries(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are the same memory, entry by entry."""
    return same_storage(storage(a), storage(b)) and _laid(a) == _laid(b)


def _laid(t: torch.Tensor) -> tuple[object, ...]:
    read = t.dtype, t.is_conj(), t.is_neg()
    return (*read, t.shape, t.stride(), t.storage_offset())


def share(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether an entry of the one is one of the other. Tensors of unlike strides whose spans meet
    are taken to."""
    if not Span.of(a).meets(Span.of(b)):
        return False
    if (a.shape, a.stride(), a.dtype) != (b.shape, b.stride(), b.dtype):
        return True
    steps = sorted(((s, n - 1) for s, n in zip(a.stride(), a.shape, strict=True)), reverse=True)
    return _reached(int(b.storage_offset()) - int(a.storage_offset()), steps)


def _reached(apart: int, steps: Sequence[tuple[int, int]]) -> bool:
    """Whether a sum of strides, each at most so many times forth or back, is `apart`."""
    if not steps:
        return apart == 0
    (stride, most), rest = steps[0], steps[1:]
    reach = sum(s * n for s, n in rest)
    if stride == 0:
        return _reached(apart, rest)
    low = max(-most, -((reach - apart) // stride))
    high = min(most, (apart + reach) // stride)
    return any(_reached(apart - k * stride, rest) for k in range(low, high + 1))
