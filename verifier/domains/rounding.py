"""Narrow float formats: the nearest value of a format, as float64.

Ties go to the even significand, what is too large to infinity, as in PyTorch casts. f8e4m3 and
f8e5m2 are those of Micikevicius et al. 2022; e4m3 has no infinity and saturates. e8m0 is the
power-of-two scale of the OCP microscaling formats: its ties go up, negative values have none.
"""

from dataclasses import dataclass

import numpy as np

from verifier.domains.base import Array


@dataclass(frozen=True, slots=True)
class Format:
    """A binary float format."""

    significand: int
    """Bits after the leading one."""
    smallest: int
    """Exponent of the smallest normal number."""
    largest: float
    """The largest finite value."""
    overflow: float
    """What a value that rounds beyond it becomes, up to sign."""


FORMATS: dict[str, Format] = {
    "f16": Format(10, -14, 65504.0, np.inf),
    "bf16": Format(7, -126, (2 - 2.0**-7) * 2.0**127, np.inf),
    "tf32": Format(10, -126, (2 - 2.0**-10) * 2.0**127, np.inf),
    "f8e4m3": Format(3, -6, 448.0, 448.0),
    "f8e5m2": Format(2, -14, 57344.0, np.inf),
    "e8m0": Format(0, -127, 2.0**127, np.nan),
}


def round_to(x: Array, format: str) -> Array:
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
