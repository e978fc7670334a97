"""Tensors made from nothing, or from a seed: constants, index ramps and random masks."""

from fractions import Fraction

import numpy as np

from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.kernel.ops import create
from shardproof.verifier.kernel.ops.create import strides_of
from shardproof.verifier.kernel.program.types import FLOATS
from shardproof.verifier.ops.bounds import literal
from shardproof.verifier.ops.facets import describe, stops


def _full(d: Domain, shape: tuple[int, ...], value: Fraction, dtype: str) -> Array:
    if dtype in FLOATS:
        return d.full(shape, Fraction(value))
    return np.full(shape, int(value), dtype=bool if dtype == "bool" else np.int64)


full = describe(
    create.full,
    _full,
    doc="A constant. The same under every layout.",
    literal="value",
    bounds=literal,
    spreads=True,
)


def _iota(d: Domain, shape: tuple[int, ...], dim: int, offset: int, dtype: str) -> Array:
    line = np.arange(offset, offset + shape[dim], dtype=np.int64)
    line = line.reshape((1,) * dim + (-1,) + (1,) * (len(shape) - dim - 1))
    out = np.broadcast_to(line, shape)
    return d.lift(out) if dtype in FLOATS else out


iota = describe(
    create.iota,
    _iota,
    doc="`offset + index along dim`. On a shard the offset is affine in the coordinate.",
    spreads=True,
)


def _mask(
    d: Domain,
    seed: Array,
    shape: tuple[int, ...],
    p: Fraction,
    strides: tuple[int, ...],
    offset: int,
    stream: int,
    dtype: str,
) -> Array:
    index = np.full(shape, offset, np.int64)
    for dim, stride in enumerate(strides_of(shape, strides)):
        line = np.arange(shape[dim], dtype=np.int64) * stride
        index = index + line.reshape((-1,) + (1,) * (len(shape) - dim - 1))
    return d.dropout_mask(Fraction(p), stream, seed, index)


dropout_mask = describe(
    create.dropout_mask,
    _mask,
    doc="`1/(1-p)` with probability `1-p`, else 0, by seed, stream and index in the whole "
    "tensor. A shard takes the strides of the whole, and an offset affine in its coordinates.",
)


dropout_mask.vjp(stops)
