"""Random masks that every rank can make for its own part, because an entry is a function of the
seed and of its index in the whole tensor, and of nothing else.

The index of entry `(i, j, ...)` of the mask is `offset + i strides[0] + j strides[1] + ...`. On one
device the strides are those of the row-major shape and the offset is 0. A shard takes the strides
of the whole tensor, and an offset that is affine in its coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from verifier.domains.base import Array, Domain
from verifier.kernel.ops.composites import composite
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.registry import (
    REQUIRED,
    AttrMap,
    Op,
    Site,
    register,
)
from verifier.kernel.program.traits import Traits
from verifier.kernel.program.types import FLOATS, Affine, TensorType


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense tensor, in entries."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def strides_of(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The strides that are meant: row-major ones where none are given."""
    return tuple(strides) or row_major(shape)


def _types(site: Site) -> tuple[TensorType, ...]:
    (seed,) = site.types
    shape, strides = tuple(site.attrs["shape"]), tuple(site.attrs["strides"])
    if seed.kind != "integer" or seed.shape:
        raise site.fail("the seed is one integer")
    if not 0 <= Fraction(site.attrs["p"]) < 1:
        raise site.fail(f"p={site.attrs['p']}; expected 0 or more, and less than 1")
    if strides and len(strides) != len(shape):
        raise site.fail(f"{len(strides)} strides for {len(shape)} dims")
    if site.attrs["dtype"] not in FLOATS:
        raise site.fail(f"a mask of dtype {site.attrs['dtype']}; expected a float dtype")
    return (TensorType(shape, site.attrs["dtype"]),)


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


dropout_mask = register(
    Op(
        "dropout_mask",
        "create",
        "seed -> ...",
        _mask,
        _types,
        attrs={
            "shape": REQUIRED,
            "p": REQUIRED,
            "strides": (),
            "offset": 0,
            "stream": 0,
            "dtype": "f32",
        },
        flops=lambda types, results, _: 8 * results[0].size,
        doc="`1/(1-p)` with probability `1-p`, else 0, by seed, stream and index in the whole "
        "tensor. A shard takes the strides of the whole, and an offset affine in its coordinates.",
        traits=Traits(sign=0),
    )
)


@dropout_mask.vjp
def _mask_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    return [None]


@composite("..., seed -> ...", p=REQUIRED, strides=(), offset=0, stream=0)
def dropout(
    b: Builder,
    x: str,
    seed: str,
    p: Fraction,
    strides: tuple[int, ...],
    offset: int | Affine,
    stream: int,
) -> str:
    """Dropout that keeps the mean (Srivastava et al. 2014): `x` times a `dropout_mask`."""
    made = b.types[x]
    mask = b.add(
        "dropout_mask",
        seed,
        shape=made.shape,
        p=p,
        strides=strides,
        offset=offset,
        stream=stream,
        dtype=made.dtype,
    )
    return b.add("mul", x, mask)
