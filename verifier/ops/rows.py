"""Running sums along a dim, and the largest entries."""

from fractions import Fraction

import numpy as np

from shardproof.verifier.domains.base import Array, Domain, is_index
from shardproof.verifier.kernel.ops import rows
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.registry import AttrMap
from shardproof.verifier.ops.bounds import always
from shardproof.verifier.ops.facets import Names, Pulled, describe, stops


def _cumsum(d: Domain, x: Array, dim: int, exclusive: bool) -> Array:
    x = x.astype(np.int64) if is_index(x) else x
    lines = np.moveaxis(x, dim, 0)
    total = np.zeros(lines.shape[1:], np.int64) if is_index(x) else d.const(Fraction(0))
    out = np.empty_like(lines)
    for i in range(len(lines)):
        after = d.add(total, lines[i, ...])
        out[i, ...] = total if exclusive else after
        total = after
    return np.moveaxis(out, 0, dim)


cumsum = describe(
    rows.cumsum,
    _cumsum,
    doc="Sum of the entries up to each one along `dim`; `exclusive` leaves out the entry "
    "itself. The dim must be whole.",
    analytic=True,
    adds=True,
)


@cumsum.vjp
def _cumsum_vjp(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    dim = attrs["dim"]
    back = b.add("cumsum", b.add("flip", cts[0], dim=dim), dim=dim, exclusive=attrs["exclusive"])
    return [b.add("flip", back, dim=dim)]


def _topk_mask(d: Domain, x: Array, k: int, dim: int) -> Array:
    return d.topk_mask(x, k, dim)


topk_mask = describe(
    rows.topk_mask,
    _topk_mask,
    doc="1 at the `k` largest entries along `dim`, ties by lower index, else 0. The dim must "
    "be whole. The gradient is zero.",
    bounds=always(0, 1),
)


topk_mask.vjp(stops)


def _topk_index(d: Domain, x: Array, k: int, dim: int) -> Array:
    return d.topk_index(x, k, dim)


topk_index = describe(
    rows.topk_index,
    _topk_index,
    doc="Where the `k` largest entries along `dim` are, the largest first, ties by lower "
    "index. The dim must be whole. There is no gradient.",
)


topk_index.vjp(stops)
