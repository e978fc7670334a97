"""Views and copies: what they compute, and their gradients."""

import numpy as np

from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.kernel.ops import views
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.registry import AttrMap
from shardproof.verifier.ops.arithmetic import reduce_to
from shardproof.verifier.ops.facets import Names, Pulled, moves


def _reshape(d: Domain, x: Array, shape: tuple[int, ...]) -> Array:
    return x.reshape(shape)


reshape = moves(
    views.reshape,
    _reshape,
    "The same elements in row-major order under another shape.",
    rearranges=True,
)


def _permute(d: Domain, x: Array, dims: tuple[int, ...]) -> Array:
    return x.transpose(dims)


permute = moves(views.permute, _permute, "Reorder the dims.", rearranges=True)


def _expand(d: Domain, x: Array, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(x, shape)


expand = moves(
    views.expand,
    _expand,
    "Repeat dims of extent 1 (and new leading dims) up to a shape.",
    spreads=True,
)
reshape.vjp(
    lambda b, ins, outs, cts, attrs: [b.add("reshape", cts[0], shape=b.types[ins[0]].shape)]
)


@permute.vjp
def _permute_vjp(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    dims = attrs["dims"]
    return [b.add("permute", cts[0], dims=tuple(dims.index(i) for i in range(len(dims))))]


expand.vjp(lambda b, ins, outs, cts, attrs: [reduce_to(b, cts[0], ins[0])])
