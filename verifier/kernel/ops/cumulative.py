"""Running sums along a dim."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from verifier.domains.base import Array, Domain, is_index
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.registry import (
    REQUIRED,
    AttrMap,
    Op,
    Site,
    register,
)
from verifier.kernel.program.traits import Traits
from verifier.kernel.program.types import TensorType


def _types(site: Site) -> tuple[TensorType, ...]:
    (x,) = site.types
    if not 0 <= site.attrs["dim"] < len(x.shape):
        raise site.fail(f"a running sum along dim {site.attrs['dim']}")
    return (TensorType(x.shape, x.dtype if x.is_float else "i64"),)


def _cumsum(d: Domain, x: Array, dim: int, exclusive: bool) -> Array:
    x = x.astype(np.int64) if is_index(x) else x
    lines = np.moveaxis(x, dim, 0)
    total = np.zeros(lines.shape[1:], np.int64) if is_index(x) else d.const(Fraction(0))
    out = np.empty_like(lines)
    for i, entry in enumerate(lines):
        after = d.add(total, entry)
        out[i] = total if exclusive else after
        total = after
    return np.moveaxis(out, 0, dim)


cumsum = register(
    Op(
        "cumsum",
        "rows",
        "... [dim] -> ... [dim]",
        _cumsum,
        _types,
        linear=(frozenset({0}),),
        attrs={"dim": REQUIRED, "exclusive": False},
        flops=lambda types, results, _: results[0].size,
        doc="Sum of the entries up to each one along `dim`; `exclusive` leaves out the entry "
        "itself. The dim must be whole.",
        traits=Traits(strict=True, analytic=True, keeps=0, adds=True),
    )
)


@cumsum.vjp
def _cumsum_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    dim = attrs["dim"]
    back = b.add("cumsum", b.add("flip", cts[0], dim=dim), dim=dim, exclusive=attrs["exclusive"])
    return [b.add("flip", back, dim=dim)]
