"""An op on whole lines: the product of the entries up to each one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.registry import (
    REQUIRED,
    AttrMap,
    Op,
    Site,
    register,
)
from shardproof.verifier.kernel.program.traits import Traits
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.ops.facets import describe


def _types(site: Site) -> tuple[TensorType, ...]:
    (x,) = site.types
    if not 0 <= site.attrs["dim"] < len(x.shape):
        raise site.fail(f"a running product along dim {site.attrs['dim']}")
    return (TensorType(x.shape, x.dtype if x.is_float else "i64"),)


def _cumprod(d: Domain, x: Array, dim: int) -> Array:
    lines = np.moveaxis(x, dim, 0)
    return np.moveaxis(np.stack(list(accumulate(lines, d.mul))), 0, dim) if len(lines) else x


cumprod = describe(
    register(
        Op(
            "cumprod",
            "rows",
            "... [dim] -> ... [dim]",
            _types,
            attrs={"dim": REQUIRED},
            traits=Traits(strict=True),
        )
    ),
    _cumprod,
    "Product of the entries up to each one along `dim`. The dim must be whole.",
    analytic=True,
)


@cumprod.vjp
def _vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    """Where no entry is 0."""
    dim = attrs["dim"]
    weighed = b.add("flip", b.add("mul", cts[0], outs[0]), dim=dim)
    return [b.add("div", b.add("flip", b.add("cumsum", weighed, dim=dim), dim=dim), ins[0])]
