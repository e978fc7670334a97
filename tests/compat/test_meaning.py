"""What op classes mean on one device, against numpy written apart from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from shardproof.compat.lowering import Lowering
from shardproof.compat.single import Given
from shardproof.verifier.refute.evaluate import evaluate
from tests.compat.cases import TP, tensor
from verifier import (
    GELU,
    AmaxUpdate,
    CrossEntropyLoss,
    Embedding,
    ExpertCompute,
    FlashAttention,
    IROp,
    LayerNorm,
    LossScale,
    MatMul,
    MoEDispatch,
    Program,
    Reshape,
    RingAttention,
    RMSNorm,
    SiLU,
    Softmax,
    TopKGate,
    Transpose,
)

Array = np.ndarray
RNG = np.random.default_rng(0)


def soft(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def attend(q: Array, k: Array, v: Array, scale: float, causal: bool) -> Array:
    """`[B, S, H, D]`, a key head for each group of query heads."""
    groups = q.shape[2] // k.shape[2]
    k, v = (np.repeat(x, groups, axis=2) for x in (k, v))
    scores = scale * np.einsum("bihd,bjhd->bhij", q, k)
    if causal:
        later = np.triu(np.ones(scores.shape[-2:], bool), 1)
        scores = np.where(later, -np.inf, scores)
    return np.einsum("bhij,bjhd->bihd", soft(scores, -1), v)


def chosen(x: Array, w: Array, k: int) -> Array:
    probs = soft(x @ w, -1)
    rank = np.argsort(np.argsort(-(x @ w), axis=-1), axis=-1)
    kept = np.where(rank < k, probs, 0)
    return kept / kept.sum(-1, keepdims=True)


def gelu(x: Array) -> Array:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def loss(x: Array, t: Array) -> Array:
    picked = np.take_along_axis(soft(x, -1), t[..., None], -1)[..., 0]
    return -np.log(picked)


F, N = (2, 8, 4, 4), (3, 5)
CASES: dict[str, tuple[IROp, Sequence[tuple[int, ...]], Callable[..., Array]]] = {
    "matrix": (MatMul("a", "b", "y"), [(3, 4), (4, 5)], lambda a, b: a @ b),
    "batch x matrix": (MatMul("a", "b", "y"), [(2, 3, 4), (4, 5)], lambda a, b: a @ b),
    "batch x batch": (MatMul("a", "b", "y"), [(2, 3, 4), (2, 4, 5)], lambda a, b: a @ b),
    "batches x batches": (
        MatMul("a", "b", "y"), [(2, 2, 3, 4), (2, 2, 4, 5)], lambda a, b: a @ b,
    ),
    "gelu": (GELU("a", "y"), [N], gelu),
    "silu": (SiLU("a", "y"), [N], lambda a: a / (1 + np.exp(-a))),
    "softmax of columns": (Softmax("a", "y", 0), [N], lambda a: soft(a, 0)),
    "layer norm": (
        LayerNorm("a", "y", 0), [N],
        lambda a: (a - a.mean(0)) / np.sqrt(a.var(0) + 1e-5),
    ),
    "rms norm": (
        RMSNorm("a", "y"), [N], lambda a: a / np.sqrt((a * a).mean(-1, keepdims=True) + 1e-5)
    ),
    "attention": (
        FlashAttention("a", "b", "c", "y", 0.3, causal=True), [F, F, F],
        lambda q, k, v: attend(q, k, v, 0.3, True),
    ),
    "attention of grouped heads": (
        RingAttention("a", "b", "c", "y", 2, softmax_scale=0.5), [F, (2, 8, 2, 4), (2, 8, 2, 4)],
        lambda q, k, v: attend(q, k, v, 0.5, False),
    ),
    "attention of one head": (
        FlashAttention("a", "b", "c", "y", causal=True), [(8, 4)] * 3,
        lambda *qkv: attend(*(x[None, :, None] for x in qkv), 1.0, True)[0, :, 0],
    ),
    "gates": (
        TopKGate("a", "b", "y", "i", 4, top_k=2), [(6, 5), (5, 4)], lambda x, w: chosen(x, w, 2)
    ),
    "experts": (
        ExpertCompute("a", "y", None, 2, "b"), [(2, 3, 4), (2, 4, 5)], lambda x, w: gelu(x @ w)
    ),
    "dispatch": (MoEDispatch("a", "y", 4, 0, 1), [(4, 6)], lambda a: a),
    "magnitude": (AmaxUpdate("a", "y", "a"), [N], lambda a: np.abs(a).max()),
    "unscaled": (LossScale("a", "y", 0.7, "unscale"), [N], lambda a: a / 0.7),
    "reshape": (Reshape("a", "y", (5, 3)), [N], lambda a: a.reshape(5, 3)),
    "transpose": (Transpose("a", "y", 0, -1), [(2, 3, 4)], lambda a: np.swapaxes(a, 0, -1)),
}  # fmt: skip


def value(op: IROp, given: dict[str, Array]) -> Array:
    states = {n: Given(tensor(n, a.shape, "R")) for n, a in given.items()}
    lowered = Lowering(TP, states).lower(Program("p", [op]))
    return evaluate(lowered.one.program, given)[lowered.values["y"].one]


@pytest.mark.parametrize("name", CASES)
def test_an_op_means_what_numpy_says(name: str) -> None:
    op, shapes, meaning = CASES[name]
    arrays = [RNG.standard_normal(s) for s in shapes]
    got = value(op, dict(zip(op.input_names, arrays, strict=True)))
    np.testing.assert_allclose(got, meaning(*arrays), rtol=1e-9, atol=1e-9)


def test_lookups_and_losses() -> None:
    rows, ids = RNG.standard_normal((6, 3)), RNG.integers(0, 6, (4, 2))
    found = value(Embedding("i", "w", "y"), {"i": ids, "w": rows})
    np.testing.assert_array_equal(found, rows[ids])
    x, t = RNG.standard_normal((4, 2, 6)), ids
    for reduction, whole in (("mean", np.mean), ("sum", np.sum), ("none", lambda a: a)):
        op = CrossEntropyLoss("x", "t", "y", reduction=reduction)
        got = value(op, {"x": x, "t": t})
        np.testing.assert_allclose(got, whole(loss(x, t)), rtol=1e-9)
