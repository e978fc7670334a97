"""Recognises the structure of constant arrays, exactly: every entry is compared.

Kinds: one value, an index ramp, a band of a matrix (causal and sliding-window masks), or opaque.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardproof.synthesis.frontends.torch.aten.table import Emit, content_name, fraction

Array = NDArray[Any]
_ROWS = 1 << 22
"""Entries that one step of a whole comparison looks at."""


@dataclass(frozen=True)
class Full:
    """All entries equal."""

    value: Fraction


@dataclass(frozen=True)
class Ramp:
    """offset + index along `dim`; all other extents are 1."""

    dim: int
    offset: int


@dataclass(frozen=True)
class Band:
    """`inside` where low <= j - i <= high for the dims i, j, else `outside`; None: no bound."""

    i: int
    j: int
    low: int | None
    high: int | None
    inside: Fraction
    outside: Fraction


@dataclass(frozen=True, eq=False)
class Opaque:
    """No structure found: a constant input."""

    name: str
    value: Array


Structure = Full | Ramp | Band | Opaque


@dataclass(frozen=True, eq=False)
class Constant:
    """A constant array: `shape` with its dims of equal entries cut to extent 1 (`narrow`)."""

    shape: tuple[int, ...]
    narrow: tuple[int, ...]
    dtype: str
    structure: Structure


def cut(value: Array) -> Array:
    """Extent 1 along every dim whose entries are all equal, by whole comparison."""
    for dim in range(value.ndim):
        if value.shape[dim] > 1:
            first = value[(slice(None),) * dim + (slice(0, 1),)]
            if value.strides[dim] == 0 or _equal(value, np.broadcast_to(first, value.shape)):
                value = first
    return value


def _equal(a: Array, b: Array) -> bool:
    """Whole comparison in steps along the longest dim; NaN is never equal."""
    dim = int(np.argmax(a.shape)) if a.ndim else 0
    if a.size <= _ROWS:
        return bool((a == b).all())
    step = max(1, _ROWS * a.shape[dim] // a.size)
    before = (slice(None),) * dim
    return all(
        bool((a[(*before, slice(k, k + step))] == b[(*before, slice(k, k + step))]).all())
        for k in range(0, a.shape[dim], step)
    )


def recognise(value: Array, dtype: str) -> Constant:
    """Raises ValueError for NaN."""
    small = cut(value)
    return Constant(tuple(value.shape), tuple(small.shape), dtype, _structure(small, dtype))


def table(value: Array, dtype: str) -> Constant:
    """As `recognise`, but nothing is said of entries that are not all equal."""
    found = recognise(value, dtype)
    small = np.ascontiguousarray(cut(value))
    alike = isinstance(found.structure, Full)
    return found if alike else replace(found, structure=Opaque(content_name(small), small))


def opaque(value: Array, dtype: str, label: str) -> Constant:
    """A constant of which nothing is said but its extents, and which no other is but one of the
    same label. Dims are cut where one entry stands there in memory."""
    small = value
    for dim in range(value.ndim):
        if value.strides[dim] == 0 and value.shape[dim] > 1:
            small = small[(slice(None),) * dim + (slice(0, 1),)]
    held = Opaque(f"{content_name(small)}.{label}", np.array(small, order="C"))
    return Constant(tuple(value.shape), tuple(small.shape), dtype, held)


def _structure(x: Array, dtype: str) -> Structure:
    wide = [d for d, n in enumerate(x.shape) if n > 1]
    if not wide:
        if x.dtype.kind == "f" and np.isnan(x).any():
            raise ValueError("NaN")
        return Full(fraction(x.reshape(()).item(), dtype)) if x.size else Full(Fraction(0))
    if len(wide) == 1 and x.dtype.kind == "i":
        line = x.reshape(-1)
        offset = int(line[0])
        if _equal(line, np.arange(offset, offset + line.size, dtype=line.dtype)):
            return Ramp(wide[0], offset)
    if len(wide) == 2:
        band = _band(x.reshape(x.shape[wide[0]], x.shape[wide[1]]), wide[0], wide[1], dtype)
        if band is not None:
            return band
    return Opaque(content_name(x), np.ascontiguousarray(x))


def _band(x: Array, i: int, j: int, dtype: str) -> Band | None:
    """A band, if the values are two and depend on j - i alone."""
    rows = x.shape[0]
    line = np.concatenate([x[::-1, 0], x[0, 1:]])
    steps = [int(k) for k in np.nonzero(line[1:] != line[:-1])[0]]
    if not 1 <= len(steps) <= 2 or (len(steps) == 2 and line[0] != line[-1]):
        return None
    gaps = [k - (rows - 1) for k in steps]
    if len(gaps) == 2:
        low, high = gaps[0] + 1, gaps[1]
        inside, outside = line[steps[0] + 1], line[0]
    else:
        low, high = None, gaps[0]
        inside, outside = line[0], line[-1]
    if not _equal(x[1:, 1:], x[:-1, :-1]):
        return None
    values = (fraction(v.item(), dtype) for v in (inside, outside))
    return Band(i, j, low, high, *values)


def emit(e: Emit, constant: Constant) -> str:
    """The constant in ops, of shape `constant.narrow`."""
    s = constant.structure
    match s:
        case Full(value):
            return e.full(value, constant.narrow, constant.dtype)
        case Ramp(dim, offset):
            return e.iota(constant.narrow, dim, offset, constant.dtype)
        case Band():
            return _emit_band(e, constant, s)
        case Opaque(name, _):
            if name not in e.b.types:
                from shardproof.verifier.kernel.program.types import TensorType

                e.b.input(name, TensorType(constant.narrow, constant.dtype), "const")
            return name


def _emit_band(e: Emit, constant: Constant, s: Band) -> str:
    rank = len(constant.narrow)

    def line(dim: int, offset: int = 0) -> str:
        return e.iota([constant.narrow[d] if d == dim else 1 for d in range(rank)], dim, offset)

    column = line(s.j)
    within = ""
    if s.high is not None:
        within = e.add("le", column, line(s.i, s.high))
    if s.low is not None:
        above = e.add("ge", column, line(s.i, s.low))
        within = e.add("logical_and", within, above) if within else above
    if constant.dtype == "bool":
        return within if s.inside else e.add("logical_not", within)
    return e.add(
        "where",
        within,
        e.full(s.inside, (), constant.dtype),
        e.full(s.outside, (), constant.dtype),
    )
