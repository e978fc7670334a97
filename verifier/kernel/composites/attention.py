"""Attention, whole and in steps over blocks of keys.

Rows and columns of the mask are global positions: `q_offset` and `k_offset` say where the queries
and keys at hand begin, affine in the coordinates on a shard of the sequence.
"""

from fractions import Fraction

from shardproof.verifier.kernel.composites.expansion import composite
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.registry import REQUIRED
from shardproof.verifier.kernel.program.types import Affine

Offset = int | Affine
LOW = Fraction(-(10**30))
"""The score of a key that a query does not see, and the running maximum before the first key."""


def _flat(b: Builder, x: str) -> str:
    n, h, rows, cols = b.types[x].shape
    return b.add("reshape", x, shape=(n * h, rows, cols))


def _scores(
    b: Builder, q: str, k: str, scale: Fraction, causal: bool, q_offset: Offset, k_offset: Offset
) -> str:
    """`scale q k^T` by (batch and head, query, key), with `LOW` for keys after the query."""
    i, j = b.types[q].shape[2], b.types[k].shape[2]
    keys = b.add("permute", _flat(b, k), dims=(0, 2, 1))
    scores = b.add("mul_scalar", b.add("bmm", _flat(b, q), keys), value=scale)
    if not causal:
        return scores
    rows = b.add("iota", shape=(i, 1), dim=0, offset=q_offset, dtype="i64")
    cols = b.add("iota", shape=(1, j), dim=1, offset=k_offset, dtype="i64")
    low = b.add("full", shape=(), value=LOW, dtype=b.types[q].dtype)
    return b.add("where", b.add("le", cols, rows), scores, low)


@composite(
    "b h i d, b h j d, b h j e -> b h i e",
    causal=False,
    scale=REQUIRED,
    q_offset=0,
    k_offset=0,
)
def sdpa(
    b: Builder,
    q: str,
    k: str,
    v: str,
    causal: bool,
    scale: Fraction,
    q_offset: Offset,
    k_offset: Offset,
) -> str:
    """Scaled dot-product attention over heads, causal by global position (Vaswani et al. 2017)."""
    (n, h, i, _), e = b.types[q].shape, b.types[v].shape[3]
    weights = b.add("softmax", _scores(b, q, k, scale, causal, q_offset, k_offset))
    return b.add("reshape", b.add("bmm", weights, _flat(b, v)), shape=(n, h, i, e))


_STATE = "b h i 1, b h i 1, b h i e"


@composite(
    f"{_STATE}, b h i d, b h j d, b h j e -> {_STATE}",
    causal=False,
    scale=REQUIRED,
    q_offset=0,
    k_offset=0,
)
def attention_step(
    b: Builder,
    top: str,
    total: str,
    out: str,
    q: str,
    k: str,
    v: str,
    causal: bool,
    scale: Fraction,
    q_offset: Offset,
    k_offset: Offset,
) -> tuple[str, str, str]:
    """One block of keys more: running maximum, running sum, and result times that sum.

    Online softmax (Milakov, Gimelshein 2018; Dao et al. 2022). The start is the maximum -10**30
    and zeros; `attention_end` divides.
    """
    (n, h, i, _), e = b.types[q].shape, b.types[v].shape[3]
    j = b.types[k].shape[2]
    flat = _scores(b, q, k, scale, causal, q_offset, k_offset)
    scores = b.add("reshape", flat, shape=(n, h, i, j))
    higher = b.add("maximum", top, b.add("amax", scores, dims=(3,), keepdim=True))
    weights = b.add("exp", b.add("sub", scores, higher))
    kept = b.add("exp", b.add("sub", top, higher))
    more = b.add("sum", weights, dims=(3,), keepdim=True)
    product = b.add("bmm", _flat(b, weights), _flat(b, v))
    part = b.add("reshape", product, shape=(n, h, i, e))
    return (
        higher,
        b.add("add", b.add("mul", total, kept), more),
        b.add("add", b.add("mul", out, kept), part),
    )


@composite(f"{_STATE}, {_STATE} -> {_STATE}")
def attention_merge(
    b: Builder, top: str, total: str, out: str, top2: str, total2: str, out2: str
) -> tuple[str, str, str]:
    """The running state over the keys of two states together."""
    higher = b.add("maximum", top, top2)
    first = b.add("exp", b.add("sub", top, higher))
    second = b.add("exp", b.add("sub", top2, higher))

    def both(x: str, y: str) -> str:
        return b.add("add", b.add("mul", x, first), b.add("mul", y, second))

    return higher, both(total, total2), both(out, out2)


@composite(f"{_STATE} -> b h i e, b h i 1")
def attention_end(b: Builder, top: str, total: str, out: str) -> tuple[str, str]:
    """Attention and the logarithm of its sum of exponentials, from a running state."""
    return b.add("div", out, total), b.add("add", top, b.add("log", total))
