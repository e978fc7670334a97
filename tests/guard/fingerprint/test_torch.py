"""Torch tensors hash to the same bits as numpy arrays, on every path."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from shardproof.synthesis.guard.fingerprint import FingerprintError, TensorPartition, fingerprint

torch = pytest.importorskip("torch")
ours: Any = pytest.importorskip("shardproof.synthesis.guard.fingerprint_torch")
pytestmark = pytest.mark.torch

VIEWS = {"bfloat16": ("int16", "u2"), "float8_e4m3fn": ("uint8", "u1")}
DTYPES = ["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "complex64", "bool", "int8"]
COMPILED = [
    pytest.param("compile", d, marks=[] if d in ("float64", "bfloat16") else pytest.mark.campaign)
    for d in DTYPES
]
"""Seconds of a compiler each."""


def pair(dtype: str, shape: tuple[int, ...]) -> tuple[Any, Any]:
    kind = getattr(torch, dtype)
    x = torch.randn(shape) * 3
    t = x > 0 if dtype == "bool" else x.to(kind)
    name, view = VIEWS.get(dtype, ("", ""))
    return t, t.view(getattr(torch, name)).numpy().view(view) if name else t.numpy()


@pytest.mark.parametrize(("backend", "dtype"), [*product(("numpy", "eager"), DTYPES), *COMPILED])
def test_the_same_to_the_bit(backend: str, dtype: str) -> None:
    if backend == "compile" and not ours.compiles("cpu"):
        pytest.skip("torch.compile has no compiler here")
    part = TensorPartition(1, 4, 2, global_shape=(6, 20))
    for where, shape in ((part, (6, 5)), (None, (6, 5)), (None, (7,)), (None, (0, 3)), (None, ())):
        t, n = pair(dtype, shape)
        assert ours.fingerprint(t, where, 7, backend=backend) == fingerprint(n, where, 7)
    t, n = pair(dtype, (8, 6))
    assert ours.fingerprint(t.T, None, 7, backend=backend) == fingerprint(
        np.ascontiguousarray(n.T), None, 7
    )


@pytest.mark.parametrize("backend", ["numpy", "eager"])
def test_strides_of_one_element_or_none(backend: str) -> None:
    for t in (torch.arange(6.0)[::2][1:2], torch.zeros(1, dtype=torch.bool).expand(0)):
        want = fingerprint(t.contiguous().numpy().copy(), None, 3)
        assert ours.fingerprint(t, None, 3, backend=backend) == want


def test_views_and_gradients() -> None:
    z = torch.randn(5, dtype=torch.complex64)
    assert ours.fingerprint(z.conj(), None, 1) == fingerprint(
        z.conj().resolve_conj().numpy(), None, 1
    )
    w = torch.nn.Parameter(torch.randn(3, 4))
    assert ours.fingerprint(w, None, 1) == fingerprint(w.detach().numpy(), None, 1)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (torch.zeros(3).to_sparse(), "expected a dense tensor"),
        (torch.zeros(3, device="meta"), "on the device meta holds no bits"),
        (np.zeros(3), "expected a torch tensor, got ndarray"),
    ],
)
def test_what_holds_no_bits_is_refused(data: Any, said: str) -> None:
    with pytest.raises(FingerprintError, match=said):
        ours.fingerprint(data)
