"""Mixture of experts: routing by the k largest, dispatch and combine as products (GShard).

Tokens come in groups: `x` is `g t m`, and every group routes its own tokens, so that groups can be
split over ranks. The mask of the k largest is a function of whole rows of scores; its gradient is
zero, and routers learn through the probabilities it masks.
"""

import math
from fractions import Fraction

from shardproof.verifier.kernel.composites.expansion import composite
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import ShapeError
from shardproof.verifier.kernel.program.registry import REQUIRED


@composite("... -> ... v", size=REQUIRED, offset=0, dtype="f32")
def one_hot(b: Builder, ids: str, size: int, offset: int, dtype: str) -> str:
    """1 where the index is `offset` plus the column, else 0: columns of a shard are a window.

    An index outside the window gives a row of zeros. The index may be of a float dtype.
    """
    type = b.types[ids]
    kind = type.dtype if type.is_float else "i64"
    columns = b.add("iota", shape=(size,), dim=0, offset=offset, dtype=kind)
    line = b.add("reshape", ids, shape=(*type.shape, 1))
    return b.add("cast", b.add("eq", line, columns), dtype=dtype)


@composite("... t e -> ... t e", capacity=REQUIRED)
def capacity_mask(b: Builder, mask: str, capacity: int) -> str:
    """A routing mask without the tokens that come after the first `capacity` of an expert."""
    type = b.types[mask]
    before = b.add("cumsum", mask, dim=len(type.shape) - 2, exclusive=True)
    room = b.add("full", shape=(), value=Fraction(capacity), dtype=type.dtype)
    return b.add("mul", mask, b.add("cast", b.add("lt", before, room), dtype=type.dtype))


@composite("... m, m e -> ... e, ... e, ... e", k=REQUIRED, renormalize=True, over_chosen=False)
def top_k_gate(
    b: Builder, x: str, w: str, k: int, renormalize: bool, over_chosen: bool
) -> tuple[str, str, str]:
    """Gates, mask and probabilities of a router (Shazeer et al. 2017, Lepikhin et al. 2021).

    The gates are the probabilities of the k chosen experts, which `renormalize` makes sum to 1.
    With `over_chosen` the softmax runs over the chosen scores alone (Jiang et al. 2024).
    """
    *lead, m = b.types[x].shape
    experts = b.types[w].shape[-1]
    flat = b.add("reshape", x, shape=(math.prod(lead), m))
    scores = b.add("reshape", b.add("mm", flat, w), shape=(*lead, experts))
    n = len(lead)
    probs = b.add("softmax", scores)
    mask = b.add("topk_mask", scores, k=k, dim=n)
    if over_chosen:
        top = b.add("amax", scores, dims=(n,), keepdim=True)
        gates = b.add("mul", mask, b.add("exp", b.add("sub", scores, top)))
    else:
        gates = b.add("mul", mask, probs)
    if renormalize or over_chosen:
        gates = b.add("div", gates, b.add("sum", gates, dims=(n,), keepdim=True))
    return gates, mask, probs


@composite("g t e, g t e -> g t e c, g t e c", capacity=REQUIRED)
def moe_routes(b: Builder, gates: str, mask: str, capacity: int) -> tuple[str, str]:
    """Dispatch and combine tensors (Lepikhin et al. 2021): which token fills which slot.

    A token takes the next free slot of each expert its mask names, in token order within its
    group; where all `capacity` slots are taken, the expert drops it.
    """
    type = b.types[mask]
    before = b.add("cumsum", mask, dim=len(b.types[mask].shape) - 2, exclusive=True)
    slots = b.add("one_hot", before, size=capacity, dtype=type.dtype)
    shape = (*type.shape, 1)
    dispatch = b.add("mul", b.add("reshape", mask, shape=shape), slots)
    return dispatch, b.add("mul", b.add("reshape", gates, shape=shape), dispatch)


@composite("g t m, g t e c -> g e c m")
def moe_dispatch(b: Builder, x: str, dispatch: str) -> str:
    """The tokens in the slots of their experts."""
    g, t, e, c = b.types[dispatch].shape
    flat = b.add("reshape", dispatch, shape=(g, t, e * c))
    filled = b.add("bmm", b.add("permute", flat, dims=(0, 2, 1)), x)
    return b.add("reshape", filled, shape=(g, e, c, b.types[x].shape[-1]))


@composite("g e c m, g t e c -> g t m")
def moe_combine(b: Builder, y: str, combine: str) -> str:
    """The results of the experts back at their tokens, weighted by the gates."""
    g, t, e, c = b.types[combine].shape
    flat = b.add("reshape", combine, shape=(g, t, e * c))
    return b.add("bmm", flat, b.add("reshape", y, shape=(g, e * c, b.types[y].shape[-1])))


def _grouped(b: Builder, x: str) -> str:
    g, e, c, m = b.types[x].shape
    return b.add("reshape", b.add("permute", x, dims=(1, 0, 2, 3)), shape=(e, g * c, m))


def _ungrouped(b: Builder, y: str, like: str) -> str:
    g, e, c, _ = b.types[like].shape
    split = b.add("reshape", y, shape=(e, g, c, b.types[y].shape[-1]))
    return b.add("permute", split, dims=(1, 0, 2, 3))


@composite("g e c m, e m f, e f m -> g e c m", activation="relu")
def expert_ffn(b: Builder, x: str, up: str, down: str, activation: str) -> str:
    """Every expert's two-layer network on the tokens in its slots."""
    hidden = b.add(activation, b.add("bmm", _grouped(b, x), up))
    return _ungrouped(b, b.add("bmm", hidden, down), x)


@composite("g e c m, e m f, e m f, e f m -> g e c m", activation="silu")
def expert_glu(b: Builder, x: str, gate: str, up: str, down: str, activation: str) -> str:
    """Every expert's gated network (Shazeer 2020) on the tokens in its slots."""
    rows = _grouped(b, x)
    hidden = b.add("mul", b.add(activation, b.add("bmm", rows, gate)), b.add("bmm", rows, up))
    return _ungrouped(b, b.add("bmm", hidden, down), x)


@composite("... e, ... e -> ", k=1)
def load_balance_loss(b: Builder, probs: str, mask: str, k: int) -> str:
    """Experts x sum over experts of (share of tokens routed to it) x (mean probability).

    The auxiliary loss of Fedus et al. 2022, with shares of all `k` choices of a token. The mask
    passes no gradient.
    """
    shape = b.types[probs].shape
    lead = tuple(range(len(shape) - 1))
    if k < 1:
        raise ShapeError(f"load_balance_loss: k={k}; expected 1 or more")
    product = b.add("mul", b.add("mean", mask, dims=lead), b.add("mean", probs, dims=lead))
    total = b.add("sum", product, dims=(0,))
    return b.add("mul_scalar", total, value=Fraction(shape[-1], k))
