"""Multi-head latent attention (DeepSeek-V2, 2024) up to its queries, keys and values."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.steps import blocks
from benchmarks.steps.model import Model
from shardproof.verifier.kernel.program.builder import Builder


def _cut(b: Builder, x: str, at: int) -> tuple[str, str]:
    """The first `at` entries of the last dim, and the others."""
    shape = b.types[x].shape
    dim, stop = len(shape) - 1, shape[-1]
    low = b.add("slice", x, dim=dim, start=0, stop=at)
    return low, b.add("slice", x, dim=dim, start=at, stop=stop)


def projected(
    b: Builder,
    seen: str,
    weight: Callable[[str], str],
    model: Model,
    heads: int,
    enter: Callable[[str, str], str] = lambda x, _: x,
) -> tuple[str, str, str]:
    """Queries and keys `[n, heads, t, nope + rope]` and values `[n, heads, t, value]`.

    Queries may come from a latent; keys and values do. The rotary part of the keys is one for all
    heads and does not pass through the latent. `heads` of them are at hand: `enter(x, what)` takes
    a value that all ranks of tp share into what each does for its own heads.
    """
    mla = model.mla
    assert mla is not None
    if mla.q_rank:
        low = blocks.linear(b, seen, weight("q_down"))
        low = enter(b.add("rms_norm", low, weight("q_norm"), eps=model.eps), "queries")
    else:
        low = enter(seen, "queries")
    q_nope, q_rope = _cut(b, blocks.heads(b, blocks.linear(b, low, weight("wq")), heads), mla.nope)
    latent, k_rope = _cut(b, blocks.linear(b, seen, weight("kv_down")), mla.kv_rank)
    latent = enter(b.add("rms_norm", latent, weight("kv_norm"), eps=model.eps), "latent")
    both = blocks.heads(b, blocks.linear(b, latent, weight("wkv")), heads)
    k_nope, v = _cut(b, both, mla.nope)
    k_rope = blocks.heads(b, enter(k_rope, "positions"), 1)
    q_rope, k_rope = (blocks.rotated(b, y, "cos", "sin") for y in (q_rope, k_rope))
    q = b.add("concat", q_nope, q_rope, dim=3)
    return q, b.add("concat", k_nope, blocks.repeated(b, k_rope, heads), dim=3), v
