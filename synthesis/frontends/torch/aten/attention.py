"""Fused attention on CPU, forward and backward."""

import math
from fractions import Fraction
from typing import Any

import numpy as np

from shardproof.synthesis.frontends.torch.aten.table import INFINITY, Emit, aten
from shardproof.verifier.kernel.composites.attention import LOW


def _scale(e: Emit, q: str, scale: Any) -> Fraction:
    return e.number(scale if scale is not None else 1 / math.sqrt(e.shape(q)[-1]), q)


def _rows(e: Emit, x: str) -> str:
    n, h, i, d = e.shape(x)
    return e.reshape(x, (n * h, i, d))


def _shared(e: Emit, x: str, q: str) -> str:
    """Keys or values of which several heads in a row take the same, once for each head."""
    (n, kept, j, d), heads = e.shape(x), e.shape(q)[1]
    if kept == heads:
        return x
    wide = e.expand(e.reshape(x, (n, kept, 1, j, d)), (n, kept, heads // kept, j, d))
    return e.reshape(wide, (n, heads, j, d))


def _together(e: Emit, x: str, like: str) -> str:
    """The sum over the heads that take the same keys or values [rows, j, d], shaped like these."""
    n, kept, j, d = e.shape(like)
    heads = e.shape(x)[0] // n
    if kept == heads:
        return e.reshape(x, (n, kept, j, d))
    apart = e.reshape(x, (n, kept, heads // kept, j, d))
    return e.sum(apart, (2,))


def _weights(e: Emit, q: str, k: str, causal: bool, mask: str | None, scale: Fraction) -> str:
    """Attention weights [b, h, i, j]."""
    (n, h, i, _), j = e.shape(q), e.shape(k)[2]
    scores = e.add("bmm", _rows(e, q), e.permute(_rows(e, k), (0, 2, 1)))
    scores = e.scale(e.reshape(scores, (n, h, i, j)), scale)
    low = e.full(LOW, (), e.type(q).dtype)
    if causal and e.tables:
        scores = e.add("where", e.table_of(np.tri(i, j, dtype=bool)), scores, low)
    elif causal:
        keep = e.add("le", e.iota((1, j), 1), e.iota((i, 1), 0))
        scores = e.add("where", keep, scores, low)
    if mask is not None and (keep := _kept(e, mask)):
        scores = e.add("where", keep, scores, low)
    elif mask is not None:
        scores = e.add("add", scores, mask)
    return e.add("softmax", scores)


def _kept(e: Emit, mask: str) -> str:
    """The entries that a mask keeps: a boolean one, or zeros and minus infinities, which PyTorch
    makes of that. Empty of another."""
    if e.type(mask).dtype == "bool":
        return mask
    table = e.consts.get(mask)
    if table is not None:
        two = bool(((table == 0) | np.isneginf(table)).all())
        return e.table_of(table == 0) if two else ""
    node = e.made(mask)
    if node is not None and node.op in ("reshape", "expand"):
        keep = _kept(e, node.inputs[0])
        return keep and e.add(node.op, keep, **node.attrs)
    if node is None or node.op != "where":
        return ""
    values = tuple(map(e.constant, node.inputs[1:]))
    return node.inputs[0] if values == (0, -INFINITY) else ""


@aten("_scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention_for_cpu(
    e: Emit,
    q: str,
    k: str,
    v: str,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: str | None = None,
    scale: Any = None,
) -> tuple[str, None]:
    """The log-sum-exp that PyTorch keeps for the backward is not needed: it is recomputed."""
    k, v = _shared(e, k, q), _shared(e, v, q)
    if attn_mask is None and e.fused:
        return e.add("sdpa", q, k, v, causal=causal, scale=_scale(e, q, scale)), None
    p = _weights(e, q, k, causal, attn_mask, _scale(e, q, scale))
    return _out(e, p, v), None


def _out(e: Emit, p: str, v: str) -> str:
    n, h, i, _ = e.shape(p)
    return e.reshape(e.add("bmm", _rows(e, p), _rows(e, v)), (n, h, i, e.shape(v)[3]))


@aten("_scaled_dot_product_flash_attention_for_cpu_backward.default")
def flash_attention_for_cpu_backward(
    e: Emit,
    g: str,
    q: str,
    k: str,
    v: str,
    out: str,
    lse: Any,
    dropout: float,
    causal: bool,
    *,
    attn_mask: str | None = None,
    scale: Any = None,
) -> tuple[str, str, str]:
    s = _scale(e, q, scale)
    own = k, v
    k, v = _shared(e, k, q), _shared(e, v, q)
    n, h, i, _ = e.shape(q)
    j = e.shape(k)[2]
    p = _weights(e, q, k, causal, attn_mask, s)
    rows = _rows(e, g)
    to_v = e.add("bmm", e.permute(_rows(e, p), (0, 2, 1)), rows)
    to_p = e.add("bmm", rows, e.permute(_rows(e, v), (0, 2, 1)))
    to_scores = e.add("softmax_backward", e.reshape(to_p, (n, h, i, j)), p)
    scaled = _rows(e, e.scale(to_scores, s))
    to_q = e.add("bmm", scaled, _rows(e, k))
    to_k = e.add("bmm", e.permute(scaled, (0, 2, 1)), _rows(e, q))
    return (
        e.reshape(to_q, e.shape(q)),
        _together(e, to_k, own[0]),
        _together(e, to_v, own[1]),
    )
