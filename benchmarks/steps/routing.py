"""Which experts a token goes to, and with what weight; no collective in it."""

from __future__ import annotations

from benchmarks.steps import blocks
from benchmarks.steps.model import Moe
from shardproof.verifier.kernel.program.builder import Builder


def routed(b: Builder, x: str, router: str, moe: Moe) -> tuple[str, str, str]:
    """Gates, mask of the chosen experts, and probabilities, `[n, t, experts]` each.

    Scores are a softmax over the experts (Shazeer et al. 2017) or a sigmoid of each (DeepSeek-V3,
    2024). The gates are the scores of the `top_k` best, made to sum to 1 if so constrained, times
    `scale`. The mask passes no gradient. The probabilities, for balancing, sum to 1.
    """
    found = blocks.linear(b, x, router)
    scores = b.add(moe.scores, found)
    probs = scores if moe.scores == "softmax" else _normal(b, scores)
    ranked = found
    if moe.groups > 1:
        ranked = b.add("mul", scores, _best_groups(b, scores, moe))
    mask = b.add("topk_mask", ranked, k=moe.top_k, dim=2)
    gates = b.add("mul", mask, scores)
    if moe.renormalize:
        gates = _normal(b, gates)
    if moe.scale != 1:
        gates = b.add("mul_scalar", gates, value=moe.scale)
    return gates, mask, probs


def _normal(b: Builder, x: str) -> str:
    return b.add("div", x, b.add("sum", x, dims=(2,), keepdim=True))


def _best_groups(b: Builder, scores: str, moe: Moe) -> str:
    """1 for the experts of the `top_groups` best groups, else 0.

    A group is as good as its best expert (DeepSeek-V2), or, with sigmoid scores, as its two best
    together (DeepSeek-V3).
    """
    n, t, experts = b.types[scores].shape
    each = (n, t, moe.groups, experts // moe.groups)
    grouped = b.add("reshape", scores, shape=each)
    if moe.scores == "sigmoid":
        best = b.add("mul", grouped, b.add("topk_mask", grouped, k=min(2, each[3]), dim=3))
        value = b.add("sum", best, dims=(3,), keepdim=False)
    else:
        value = b.add("amax", grouped, dims=(3,), keepdim=False)
    mask = b.add("topk_mask", value, k=moe.top_groups, dim=2)
    wide = b.add("expand", b.add("reshape", mask, shape=(n, t, moe.groups, 1)), shape=each)
    return b.add("reshape", wide, shape=(n, t, experts))
