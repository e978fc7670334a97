"""Tensors made from nothing, or from a seed: constants, index ramps and random masks.

The index of entry `(i, j, ...)` of a mask is `offset + i strides[0] + j strides[1] + ...`. On one
device the strides are those of the row-major shape and the offset is 0. A shard takes the strides
of the whole tensor, and an offset that is affine in its coordinates: every rank can make its own
part, because an entry is a function of the seed and of its index in the whole, and of nothing else.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from shardproof.verifier.kernel.ops.map import is_integer
from shardproof.verifier.kernel.program.registry import REQUIRED, Op, Site, register
from shardproof.verifier.kernel.program.traits import Traits
from shardproof.verifier.kernel.program.types import FLOATS, TensorType


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense tensor, in entries."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def strides_of(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The strides that are meant: row-major ones where none are given."""
    return tuple(strides) or row_major(shape)


def _full_types(site: Site) -> tuple[TensorType, ...]:
    dtype, value = site.attrs["dtype"], Fraction(site.attrs["value"])
    if min(site.attrs["shape"], default=0) < 0:
        raise site.fail(f"shape {list(site.attrs['shape'])}")
    if dtype not in FLOATS and not is_integer(value):
        raise site.fail(f"{value} is not of dtype {dtype}")
    if dtype == "bool" and value not in (0, 1):
        raise site.fail(f"{value} is not a bool")
    if dtype == "u8" and not 0 <= value < 256:
        raise site.fail(f"{value} does not fit in u8")
    return (TensorType(tuple(site.attrs["shape"]), site.attrs["dtype"]),)


def _iota_types(site: Site) -> tuple[TensorType, ...]:
    shape = tuple(site.attrs["shape"])
    if min(shape, default=0) < 0:
        raise site.fail(f"shape {list(shape)}")
    if not 0 <= site.attrs["dim"] < len(shape):
        raise site.fail(f"iota along dim {site.attrs['dim']} of {list(shape)}")
    return (TensorType(shape, site.attrs["dtype"]),)


def _mask_types(site: Site) -> tuple[TensorType, ...]:
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


full = register(
    Op(
        "full",
        "create",
        "-> ...",
        _full_types,
        attrs={"shape": REQUIRED, "value": REQUIRED, "dtype": "f32"},
    )
)
iota = register(
    Op(
        "iota",
        "create",
        "-> ...",
        _iota_types,
        attrs={"shape": REQUIRED, "dim": REQUIRED, "offset": 0, "dtype": "i64"},
    )
)
dropout_mask = register(
    Op(
        "dropout_mask",
        "create",
        "seed -> ...",
        _mask_types,
        attrs={
            "shape": REQUIRED,
            "p": REQUIRED,
            "strides": (),
            "offset": 0,
            "stream": 0,
            "dtype": "f32",
        },
        traits=Traits(sign=0),
    )
)
