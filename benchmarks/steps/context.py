"""Attention when the sequence is split over ranks (context parallelism)."""

from __future__ import annotations

from benchmarks.steps import blocks
from benchmarks.steps.model import Degrees, Model
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import Affine


def attention(
    b: Builder, q: str, k: str, v: str, model: Model, degrees: Degrees, label: str
) -> tuple[str, list[str]]:
    """Causal attention of the queries `[n, h, t, d]` of this rank on all keys.

    Zigzag gives every rank an early and a late part of the sequence, so that all have the same
    work (Llama 3, Dubey et al. 2024). Tokens come in that order with their positions, which say
    what is masked; nothing here depends on which order it is.

    Returns the result `[n, h, t, d]` and the values that pass no gradient on.
    """
    if degrees.cp == 1:
        return _local(b, q, k, v, model, 0), []
    if degrees.cp_kind == "ulysses":
        return _ulysses(b, q, k, v, model, degrees), []
    if degrees.cp_kind == "ring":
        return _ring(b, q, k, v, model, degrees, label)
    t = b.types[q].shape[2]
    k, v = (b.add("all_gather", y, mesh_dim="cp", dim=2) for y in (k, v))
    if degrees.cp_kind == "zigzag":
        seen = b.add("all_gather", "positions", mesh_dim="cp", dim=0)
        mask = blocks.position_mask(b, "positions", seen)
        return _masked(b, q, k, v, model, mask), []
    return _local(b, q, k, v, model, Affine.of(0, {"cp": t})), []


def _local(b: Builder, q: str, k: str, v: str, model: Model, start: int | Affine) -> str:
    mask = blocks.causal_mask(b, b.types[q].shape[2], b.types[k].shape[2], start)
    return _masked(b, q, k, v, model, mask)


def _masked(b: Builder, q: str, k: str, v: str, model: Model, mask: str) -> str:
    groups = b.types[q].shape[1] // b.types[k].shape[1]
    k, v = (blocks.repeated(b, y, groups) for y in (k, v))
    return blocks.attend(b, q, k, v, mask, blocks.head_scale(model.score_dim))


def _ulysses(b: Builder, q: str, k: str, v: str, model: Model, degrees: Degrees) -> str:
    """Heads are exchanged for positions around the attention (Jacobs et al. 2023)."""
    if b.types[k].shape[1] % degrees.cp:
        groups = b.types[q].shape[1] // b.types[k].shape[1]
        k, v = (blocks.repeated(b, y, groups) for y in (k, v))
    q, k, v = (b.add("all_to_all", y, mesh_dim="cp", split_dim=1, concat_dim=2) for y in (q, k, v))
    o = _local(b, q, k, v, model, 0)
    return b.add("all_to_all", o, mesh_dim="cp", split_dim=2, concat_dim=1)


def _ring(
    b: Builder, q: str, k: str, v: str, model: Model, degrees: Degrees, label: str
) -> tuple[str, list[str]]:
    """Keys and values travel around the ring; softmax is kept online (Liu et al. 2023)."""
    n, h, t, _ = b.types[q].shape
    wide = b.types[v].shape[3]
    groups, scale = h // b.types[k].shape[1], blocks.head_scale(model.score_dim)
    rows = b.add("iota", shape=(t,), dim=0, offset=Affine.of(0, {"cp": t}), dtype="i64")
    cols, best, norm, out = rows, "", "", ""
    stopped: list[str] = []
    for step in range(degrees.cp):
        if step:
            k, v, cols = (b.add("ring_shift", y, mesh_dim="cp", shift=1) for y in (k, v, cols))
        keys, values = (blocks.repeated(b, y, groups) for y in (k, v))
        mask = blocks.position_mask(b, rows, cols)
        s = blocks.scores(b, q, keys, mask, scale)
        top = b.add("amax", s, dims=(2,), keepdim=True)
        new = b.add("maximum", best, top) if step else top
        new = blocks.named(b, new, f"{label}.top{step}")
        stopped.append(new)
        e = b.add("exp", b.add("sub", s, new))
        share = b.add("bmm", e, b.add("reshape", values, shape=(n * h, t, wide)))
        mass = b.add("sum", e, dims=(2,), keepdim=True)
        if step:
            fade = b.add("exp", b.add("sub", best, new))
            share = b.add("add", b.add("mul", out, fade), share)
            mass = b.add("add", b.add("mul", norm, fade), mass)
        best, norm, out = new, mass, share
    return b.add("reshape", b.add("div", out, norm), shape=(n, h, t, wide)), stopped
