"""Rounding to narrow formats: the nearest value of a format, as float64.

Ties go to the even significand, what is too large to infinity, as in PyTorch casts. f8e4m3 and
f8e5m2 are those of Micikevicius et al. 2022; e4m3 has no infinity and saturates. e8m0 is the
power-of-two scale of the OCP microscaling formats: its ties go up, negative values have none.
"""

from functools import partial

import numpy as np

from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.domains.floats import Function, declared
from shardproof.verifier.kernel.composites.formats import FORMATS, Format
from shardproof.verifier.kernel.ops import precision
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.registry import AttrMap
from shardproof.verifier.ops.facets import Names, Pulled, describe


def rounded(x: Array, format: str) -> Array:
    """The nearest values of a format, element by element. NaN stays NaN."""
    kind = FORMATS[format]
    x = np.asarray(x, dtype=np.float64)
    if format == "e8m0":
        return _power_of_two(x, kind)
    _, exponent = np.frexp(x)
    unit = np.maximum(exponent - 1, kind.smallest) - kind.significand
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.ldexp(np.rint(np.ldexp(x, -unit)), unit)
        return np.where(np.abs(near) > kind.largest, np.copysign(kind.overflow, x), near)


def _power_of_two(x: Array, kind: Format) -> Array:
    fraction, exponent = np.frexp(x)
    power = np.where(fraction >= 0.75, exponent, exponent - 1)
    power = np.where(x == 0, kind.smallest, np.maximum(power, kind.smallest))
    with np.errstate(over="ignore"):
        near = np.ldexp(1.0, power)
    return np.where((x >= 0) & (near <= kind.largest), near, np.nan)


for _name in FORMATS:
    declared(Function(f"round_to:{_name}", partial(rounded, format=_name), strict=True))


def _round_to(d: Domain, x: Array, format: str, ste: bool) -> Array:
    return d.unary(f"round_to:{format}", x)


round_to = describe(
    precision.round_to,
    _round_to,
    doc="The nearest value of a float format; not linear. With `ste` the gradient passes "
    "straight through (Bengio et al. 2013), without it there is none.",
)


@round_to.vjp
def _round_vjp(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    if not attrs["ste"]:
        raise IRError("round_to has no vjp: its slope is zero; set ste=true to pass straight")
    return [cts[0]]
