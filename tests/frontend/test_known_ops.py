"""What ops give on fake tensors is handed from one process to the next: what, and what not."""

from __future__ import annotations

# pyright: basic
# (PyTorch has no types for what is used here.)
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode, _DispatchCacheKey

from shardproof.synthesis.frontends.torch.known_ops import known_ops


@pytest.fixture(autouse=True)
def own_cache() -> Iterator[None]:
    kept = dict(FakeTensorMode.cache)
    FakeTensorMode.cache_clear()
    yield
    FakeTensorMode.cache_clear()
    FakeTensorMode.cache.update(kept)


def product(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    with FakeTensorMode():
        x, w = torch.empty(3, 5, dtype=dtype), torch.empty(7, 5, dtype=dtype)
        return torch.nn.functional.gelu(x @ w.t())[1:].sum(0, keepdim=True)


def test_the_next_process_looks_up_what_the_first_worked_out(tmp_path: Path) -> None:
    with known_ops(tmp_path):
        first = product()
    worked_out = FakeTensorMode.cache_info().misses
    assert worked_out > 3
    FakeTensorMode.cache_clear()
    with known_ops(tmp_path):
        again = product()
        assert FakeTensorMode.cache_info().misses == 0
        other = product(torch.bfloat16)
    assert FakeTensorMode.cache_info().misses == worked_out
    assert (again.shape, again.stride(), again.dtype) == (first.shape, first.stride(), first.dtype)
    assert other.dtype == torch.bfloat16


def test_what_means_something_in_one_process_alone_is_not_handed_on(tmp_path: Path) -> None:
    with known_ops(tmp_path):
        product()
        key, entry = next(iter(FakeTensorMode.cache.items()))
        func = key.key[0]
        for own in (object(), product, slice):
            FakeTensorMode.cache[_DispatchCacheKey((func, own))] = entry
        FakeTensorMode.cache[_DispatchCacheKey((torch.ops.prims.neg.default, 1))] = entry
    known = set(FakeTensorMode.cache)
    FakeTensorMode.cache_clear()
    with known_ops(tmp_path):
        assert len(known) - len(FakeTensorMode.cache) == 4


def test_what_was_known_before_is_left_out(tmp_path: Path) -> None:
    product()
    with known_ops(tmp_path):
        product()
    FakeTensorMode.cache_clear()
    with known_ops(tmp_path):
        assert not FakeTensorMode.cache
