"""Pieces of a layer on one rank, written with the sizes at hand; no collective in them."""

from __future__ import annotations

from fractions import Fraction

from shardproof.synthesis.training.optimizer import total
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import Affine

LOW = Fraction(-(10**30))
"""What a masked score is before the softmax."""


def linear(b: Builder, x: str, w: str) -> str:
    """`[n, t, i] x [i, o] -> [n, t, o]`."""
    n, t, i = b.types[x].shape
    y = b.add("mm", b.add("reshape", x, shape=(n * t, i)), w)
    return b.add("reshape", y, shape=(n, t, b.types[w].shape[1]))


def heads(b: Builder, x: str, count: int) -> str:
    """`[n, t, count * d] -> [n, count, t, d]`."""
    n, t, wide = b.types[x].shape
    cut = b.add("reshape", x, shape=(n, t, count, wide // count))
    return b.add("permute", cut, dims=(0, 2, 1, 3))


def joined(b: Builder, x: str) -> str:
    """`[n, h, t, d] -> [n, t, h * d]`."""
    n, h, t, d = b.types[x].shape
    return b.add("reshape", b.add("permute", x, dims=(0, 2, 1, 3)), shape=(n, t, h * d))


def repeated(b: Builder, x: str, times: int) -> str:
    """Each head `times` times, side by side: `[n, h, t, d] -> [n, h * times, t, d]`."""
    if times == 1:
        return x
    n, h, t, d = b.types[x].shape
    wide = b.add("reshape", x, shape=(n, h, 1, t, d))
    wide = b.add("expand", wide, shape=(n, h, times, t, d))
    return b.add("reshape", wide, shape=(n, h * times, t, d))


def rotated(b: Builder, x: str, cos: str, sin: str) -> str:
    """Rotary positions (Su et al. 2021), halves convention: `x cos + (-x2, x1) sin`."""
    d = b.types[x].shape[-1]
    dim = len(b.types[x].shape) - 1
    low = b.add("slice", x, dim=dim, start=0, stop=d // 2)
    high = b.add("slice", x, dim=dim, start=d // 2, stop=d)
    turned = b.add("concat", b.add("neg", high), low, dim=dim)
    return b.add("add", b.add("mul", x, cos), b.add("mul", turned, sin))


def causal_mask(b: Builder, rows: int, cols: int, start: int | Affine) -> str:
    """True where a key is not after its query; `start` is the position of the first query."""
    i = b.add("iota", shape=(rows, 1), dim=0, offset=start, dtype="i64")
    j = b.add("iota", shape=(1, cols), dim=1, offset=0, dtype="i64")
    return b.add("le", j, i)


def position_mask(b: Builder, rows: str, cols: str) -> str:
    """True where a key's position is not after its query's; positions are `[t]`."""
    (t,), (s,) = b.types[rows].shape, b.types[cols].shape
    i = b.add("reshape", rows, shape=(t, 1))
    return b.add("le", b.add("reshape", cols, shape=(1, s)), i)


def scores(b: Builder, q: str, k: str, mask: str, scale: Fraction) -> str:
    """Masked scores `[n * h, t, s]` of queries `[n, h, t, d]` and keys `[n, h, s, d]`."""
    (n, h, t, d), s = b.types[q].shape, b.types[k].shape[2]
    flat = b.add("reshape", q, shape=(n * h, t, d))
    keys = b.add("permute", b.add("reshape", k, shape=(n * h, s, d)), dims=(0, 2, 1))
    found = b.add("mul_scalar", b.add("bmm", flat, keys), value=scale)
    low = b.add("full", shape=(), value=LOW, dtype=b.types[q].dtype)
    return b.add("where", mask, found, low)


def attend(b: Builder, q: str, k: str, v: str, mask: str, scale: Fraction) -> str:
    """Attention of `[n, h, t, d]` on keys and values `[n, h, s, d]`."""
    (n, h, t, _), (_, _, s, e) = b.types[q].shape, b.types[v].shape
    p = b.add("softmax", scores(b, q, k, mask, scale))
    out = b.add("bmm", p, b.add("reshape", v, shape=(n * h, s, e)))
    return b.add("reshape", out, shape=(n, h, t, e))


def gated(b: Builder, x: str, gate: str, up: str) -> str:
    """The inner values of SwiGLU (Shazeer 2020)."""
    return b.add("mul", b.add("silu", linear(b, x, gate)), linear(b, x, up))


def rounded(b: Builder, weight: str, format: str) -> str:
    """The copy of a parameter that is computed with; its gradient is the parameter's."""
    return b.add("round_to", weight, format=format, ste=True) if format else weight


def named(b: Builder, x: str, name: str) -> str:
    """The same value under a name of its own, which a repeated block does not use too."""
    b.add_node("reshape", [x], {"shape": b.types[x].shape}, outputs=[name])
    return name


def head_scale(head_dim: int) -> Fraction:
    """A rational near `1 / sqrt(head_dim)`; the same in both programs."""
    return Fraction(1 / head_dim**0.5).limit_denominator(1 << 20)


def balance(b: Builder, mask: str, probs: str, weight: Fraction) -> str:
    """`weight` times, over sequences and experts, tokens routed there times summed probability.

    With the right weight this is the load-balancing loss of every sequence (DeepSeek-AI 2024).
    """
    routed, likely = (b.add("sum", v, dims=(1,), keepdim=False) for v in (mask, probs))
    return b.add("mul_scalar", total(b, b.add("mul", routed, likely)), value=weight)
