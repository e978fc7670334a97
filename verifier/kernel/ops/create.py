"""Tensors made from nothing: constants and index ramps."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from verifier.domains.base import Array, Domain
from verifier.kernel.ops.map import is_integer
from verifier.kernel.program.registry import (
    REQUIRED,
    SPREADS,
    Op,
    Site,
    register,
)
from verifier.kernel.program.traits import Traits, literal
from verifier.kernel.program.types import FLOATS, TensorType


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


def _full(d: Domain, shape: tuple[int, ...], value: Fraction, dtype: str) -> Array:
    if dtype in FLOATS:
        return d.full(shape, Fraction(value))
    return np.full(shape, int(value), dtype=bool if dtype == "bool" else np.int64)


full = register(
    Op(
        "full",
        "create",
        "-> ...",
        _full,
        _full_types,
        attrs={"shape": REQUIRED, "value": REQUIRED, "dtype": "f32"},
        flops=lambda types, results, _: 0,
        doc="A constant. The same under every layout.",
        traits=Traits(literal="value", bounds=literal),
        tags=SPREADS,
    )
)


def _iota_types(site: Site) -> tuple[TensorType, ...]:
    shape = tuple(site.attrs["shape"])
    if min(shape, default=0) < 0:
        raise site.fail(f"shape {list(shape)}")
    if not 0 <= site.attrs["dim"] < len(shape):
        raise site.fail(f"iota along dim {site.attrs['dim']} of {list(shape)}")
    return (TensorType(shape, site.attrs["dtype"]),)


def _iota(d: Domain, shape: tuple[int, ...], dim: int, offset: int, dtype: str) -> Array:
    line = np.arange(offset, offset + shape[dim], dtype=np.int64)
    line = line.reshape((1,) * dim + (-1,) + (1,) * (len(shape) - dim - 1))
    out = np.broadcast_to(line, shape)
    return d.lift(out) if dtype in FLOATS else out


iota = register(
    Op(
        "iota",
        "create",
        "-> ...",
        _iota,
        _iota_types,
        attrs={"shape": REQUIRED, "dim": REQUIRED, "offset": 0, "dtype": "i64"},
        flops=lambda types, results, _: 0,
        doc="`offset + index along dim`. On a shard the offset is affine in the coordinate.",
        tags=SPREADS,
    )
)
