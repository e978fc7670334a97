"""Fingerprints and samples of torch tensors, as small as they can be made."""

import functools
from typing import Any

import numpy as np
import torch

from shardproof.synthesis.guard import private
from shardproof.synthesis.guard.fingerprint.mix import MASK
from shardproof.synthesis.guard.fingerprint.movement import hash_words
from shardproof.synthesis.guard.fingerprint.region import Runs, raw_words
from shardproof.synthesis.guard.fingerprint.sums import spots

ZERO = np.zeros(1, np.uint64)


def flat_bytes(t: torch.Tensor) -> torch.Tensor:
    """The bits of a dense tensor, row-major, as bytes; a view where it is contiguous."""
    flat = t.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if flat.stride(0) != 1:  # of one element or none, strides say nothing
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8) if flat.dtype != torch.uint8 else flat


def hash_flat(t: torch.Tensor, key: int) -> Any:
    """The movement hash of a tensor's bits in words of 8 bytes, indices from 0: an int, or off the
    CPU a scalar int64 tensor, so that nothing waits for the device."""
    if t.device.type != "cpu":
        from shardproof.synthesis.guard.fingerprint_torch import fingerprint_on_device

        found = fingerprint_on_device(flat_bytes(t), None, key, width=8)
        return found[0] if isinstance(found, tuple) else found.value
    words = raw_words(flat_bytes(t).numpy(), 8)
    return hash_words(words, Runs(ZERO, len(words)), key) if len(words) else 0


def add(a: Any, b: Any) -> Any:
    """The fingerprint of two pieces together."""
    return (a + b) & MASK if isinstance(a, int) and isinstance(b, int) else a + b


@functools.lru_cache(maxsize=64)
def places(count: int, key: int, samples: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Where a tensor of `count` elements is sampled; asked for at a call and at its end."""
    return spots(count, key, samples)


def values(t: torch.Tensor, at: np.ndarray[Any, Any]) -> torch.Tensor:
    """The elements at these places as float64, integers as int64 whose bits are float64's."""
    picked = t.detach().reshape(-1)[private.tensor(at).to(t.device)]
    if picked.dtype.is_floating_point:
        return picked.to(torch.float64)
    return picked.to(torch.int64).view(torch.float64)
