"""Composites mean what the public formulas say."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from shardproof.verifier.domains.base import Array
from shardproof.verifier.kernel.composites.formats import FORMATS
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program import types as kinds
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import Attr, TensorType
from shardproof.verifier.ops.precision import rounded as round_to
from shardproof.verifier.refute.evaluate import evaluate
from tests.ops.clipping import clip_by_global_norm
from tests.ops.running import run

pytestmark = pytest.mark.torch

HALF = Fraction(1, 2)
STEP = 1e-6


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


@pytest.mark.parametrize("smoothing", [Fraction(0), Fraction(1, 8)])
def test_cross_entropy(smoothing: Fraction) -> None:
    logits, labels = normal(5, 7), np.array([1, 3, -100, 6, 0])
    (got,) = run("cross_entropy", {"logits": logits, "labels:i64": labels}, smoothing=smoothing)
    want = functional.cross_entropy(
        torch.from_numpy(logits), torch.from_numpy(labels), label_smoothing=float(smoothing)
    )
    assert float(got) == pytest.approx(float(want))


def test_logsumexp() -> None:
    x = normal(3, 4)
    (got,) = run("logsumexp", {"x": x})
    np.testing.assert_allclose(got, torch.logsumexp(torch.from_numpy(x), -1).numpy())


def steps(make: Any, op: str, buffers: list[str], **attrs: Attr) -> None:
    """Three steps of a PyTorch optimizer and of ours."""
    param = torch.nn.Parameter(torch.from_numpy(normal(3, 4)))
    optimizer = make([param])
    state = {"p": param.detach().numpy().copy(), **{k: np.zeros((3, 4)) for k in buffers}}
    for step in range(1, 4):
        g = normal(3, 4, seed=step)
        param.grad = torch.from_numpy(g.copy())
        optimizer.step()
        operands = {"p": state["p"], "g": g, **{k: state[k] for k in buffers}}
        if op == "adamw_update":
            operands["step"] = np.asarray(float(step))
        state = dict(zip(["p", *buffers], run(op, operands, **attrs), strict=True))
        np.testing.assert_allclose(state["p"], param.detach().numpy(), rtol=1e-12)


def test_adamw() -> None:
    steps(
        lambda ps: torch.optim.AdamW(ps, lr=0.125, betas=(0.75, 0.875), eps=2**-20),
        "adamw_update",
        ["m", "v"],
        lr=Fraction(1, 8),
        beta1=Fraction(3, 4),
        beta2=Fraction(7, 8),
        eps=Fraction(1, 2**20),
    )


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd(nesterov: bool) -> None:
    steps(
        lambda ps: torch.optim.SGD(
            ps, lr=0.125, momentum=0.5, weight_decay=0.25, nesterov=nesterov
        ),
        "sgd_update",
        ["buffer"],
        lr=Fraction(1, 8),
        momentum=HALF,
        weight_decay=Fraction(1, 4),
        nesterov=nesterov,
    )


@pytest.mark.parametrize("limit", [Fraction(1, 2), Fraction(100)])
def test_clipping_by_the_global_norm(limit: Fraction) -> None:
    b = Builder("clip")
    names = [b.input(f"g{i}", TensorType((2, i + 1), "f64")) for i in range(3)]
    for out in clip_by_global_norm(b, names, limit):
        b.output(out)
    made = b.build()
    grads = [normal(2, i + 1) for i in range(3)]
    params = [torch.nn.Parameter(torch.zeros(g.shape, dtype=torch.float64)) for g in grads]
    for p, g in zip(params, grads, strict=True):
        p.grad = torch.from_numpy(g.copy())
    torch.nn.utils.clip_grad_norm_(params, float(limit))
    state = evaluate(made, dict(zip(names, grads, strict=True)))
    for out, p in zip(inline(made).outputs, params, strict=True):
        assert p.grad is not None
        np.testing.assert_allclose(state[out.value], p.grad.numpy(), rtol=1e-12)


def test_causal_attention_at_an_offset_is_a_part_of_the_whole() -> None:
    q, k, v = (normal(1, 2, 6, 4, seed=s) for s in range(3))
    whole = functional.scaled_dot_product_attention(
        *(torch.from_numpy(x) for x in (q, k, v)), is_causal=True, scale=0.5
    ).numpy()
    part = {"q": q[:, :, 4:], "k": k, "v": v}
    (got,) = run("sdpa", part, causal=True, scale=HALF, q_offset=4)
    np.testing.assert_allclose(got, whole[:, :, 4:], rtol=1e-10)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_attention_in_steps_is_attention(order: tuple[int, ...]) -> None:
    q, k, v = (normal(1, 2, 6, 4, seed=s) for s in range(3))
    (whole,) = run("sdpa", {"q": q, "k": k, "v": v}, causal=True, scale=HALF)
    start = [np.full((1, 2, 6, 1), -1e30), np.zeros((1, 2, 6, 1)), np.zeros((1, 2, 6, 4))]
    one, both = start, [start, start]
    for n in order:
        keys = {"q": q, "k": k[:, :, 2 * n : 2 * n + 2], "v": v[:, :, 2 * n : 2 * n + 2]}
        at: dict[str, Attr] = {"causal": True, "scale": HALF, "k_offset": 2 * n}
        one = run("attention_step", {**dict(zip("abc", one, strict=True)), **keys}, **at)
        part = dict(zip("abc", both[n % 2], strict=True))
        both[n % 2] = run("attention_step", {**part, **keys}, **at)
    merged = run("attention_merge", dict(zip("abcdef", [*both[0], *both[1]], strict=True)))
    for state in (one, merged):
        out, _ = run("attention_end", dict(zip("abc", state, strict=True)))
        np.testing.assert_allclose(out, whole, rtol=1e-10)


def experts(x: Array, w: Array, up: Array, down: Array, capacity: int, k: int) -> Array:
    """A layer of experts, token by token."""
    out = np.zeros_like(x)
    for g in range(x.shape[0]):
        used = np.zeros(w.shape[1], int)
        for t, token in enumerate(x[g]):
            scores = token @ w
            probs = np.exp(scores) / np.exp(scores).sum()
            chosen = sorted(np.argsort(-scores)[:k])
            for e in chosen:
                used[e] += 1
                if used[e] <= capacity:
                    y = np.maximum(token @ up[e], 0) @ down[e]
                    out[g, t] += probs[e] / probs[chosen].sum() * y
    return out


@pytest.mark.parametrize(("capacity", "k"), [(8, 2), (2, 2), (1, 1), (3, 1)])
def test_experts_get_their_tokens_and_no_more_than_they_hold(capacity: int, k: int) -> None:
    x, w, up, down = normal(2, 5, 3), normal(3, 4), normal(4, 3, 6), normal(4, 6, 3)
    b = Builder("moe")
    for name, value in (("x", x), ("w", w), ("up", up), ("down", down)):
        b.input(name, TensorType(value.shape, "f64"))
    gates, mask, probs = b.add_node("top_k_gate", ("x", "w"), {"k": k})
    dispatch, combine = b.add_node("moe_routes", (gates, mask), {"capacity": capacity})
    y = b.add("expert_ffn", b.add("moe_dispatch", "x", dispatch), "up", "down")
    b.output(b.add("moe_combine", y, combine))
    b.output(b.add("load_balance_loss", probs, mask, k=k))
    b.output(b.add("sum", b.add("capacity_mask", mask, capacity=capacity), dims=(1,)))
    b.output(b.add("sum", dispatch, dims=(1, 3)))
    made = b.build()
    state = evaluate(made, {"x": x, "w": w, "up": up, "down": down})
    got, loss, kept, filled = (state[o.value] for o in inline(made).outputs)
    np.testing.assert_allclose(got, experts(x, w, up, down, capacity, k), rtol=1e-10)
    np.testing.assert_array_equal(kept, filled)
    assert kept.max() <= capacity
    scores = (x.reshape(-1, 3) @ w).reshape(2, 5, 4)
    p = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    routed = (scores >= np.sort(scores)[..., -k][..., None]).mean((0, 1)) / k
    assert float(loss) == pytest.approx(4 * float(np.sum(routed * p.mean((0, 1)))))


def test_equal_scores_are_routed_to_the_lower_index() -> None:
    (got,) = run("topk_mask", {"x": [[1.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0]]}, k=2, dim=1)
    assert got.tolist() == [[0, 1, 1, 0], [1, 1, 0, 0]]


TORCH = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f8e4m3": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
    "e8m0": torch.float8_e8m0fnu,
}


@pytest.mark.parametrize("name", sorted(TORCH))
def test_rounding_agrees_with_pytorch(name: str) -> None:
    rng = np.random.default_rng(0)
    scales = 2.0 ** rng.integers(-140, 120, 4000)
    x = np.concatenate([rng.standard_normal(4000) * scales, np.arange(-999, 999) / 4, [0.0, 57345]])
    x = x.astype(np.float32)
    if name == "e8m0":
        x = np.abs(x)[np.abs(x) >= 2.0**-126]
    else:
        x = np.concatenate([x, np.float32([np.inf, np.nan])])
    want = torch.from_numpy(x).to(TORCH[name]).to(torch.float64).numpy()
    np.testing.assert_array_equal(round_to(x, name), want)


def test_tf32_keeps_ten_bits() -> None:
    x = np.array([1 + 2.0**-10, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 3e38, 1e39])
    assert round_to(x, "tf32").tolist() == [
        1 + 2.0**-10,
        1.0,
        1 + 2.0**-9,
        *round_to(x[3:], "tf32"),
    ]
    assert np.isinf(round_to(x, "tf32")[-1])


def test_formats_are_listed_alike() -> None:
    assert tuple(FORMATS) == kinds.FORMATS


def test_dropout_keeps_the_mean_and_its_masks_differ() -> None:
    shape, p = (64, 64), Fraction(1, 4)
    seeds = [
        run("dropout_mask", {"seed:i64": seed}, shape=shape, p=p, stream=stream)[0]
        for seed, stream in ((0, 0), (1, 0), (0, 1))
    ]
    for mask in seeds:
        assert set(np.unique(mask)) == {0.0, float(1 / (1 - p))}
        assert float(mask.mean()) == pytest.approx(1, abs=0.05)
    for i, mask in enumerate(seeds):
        for other in seeds[:i]:
            assert 0.5 < float(np.mean((mask > 0) == (other > 0))) < 0.75
