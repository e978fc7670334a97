"""The float formats whose sums are checked."""

from dataclasses import dataclass
from math import expm1, inf, log1p

import numpy as np

from shardproof.synthesis.guard.fingerprint.errors import FingerprintError
from shardproof.synthesis.guard.fingerprint.region import Array


@dataclass(frozen=True)
class Format:
    """A binary float format."""

    name: str
    digits: int
    """p: bits of the significand, the hidden one counted."""
    largest: float
    smallest_normal: float

    @property
    def unit(self) -> float:
        """Unit roundoff, 2^-p."""
        return 2.0**-self.digits

    def gamma(self, n: int) -> float:
        """(1 + u)^n - 1, the bound on n roundings one after another. It holds for every n, and is
        below nu / (1 - nu) (Higham, Accuracy and Stability, 3.1), which asks for nu < 1."""
        exponent = n * log1p(self.unit)
        return expm1(exponent) * (1 + 1e-12) if exponent < 700 else inf


FORMATS = {
    "f64": Format("f64", 53, float(np.finfo(np.float64).max), 2.0**-1022),
    "f32": Format("f32", 24, float(np.finfo(np.float32).max), 2.0**-126),
    "f16": Format("f16", 11, 65504.0, 2.0**-14),
    "bf16": Format("bf16", 8, 2.0**127 * (2 - 2.0**-7), 2.0**-126),
}
_BY_DTYPE = {"float64": "f64", "float32": "f32", "float16": "f16"}


def format_of(dtype: np.dtype, name: str | None, where: str) -> Format:
    """The format of an array, or the one named: `bf16` for float32 arrays of bfloat16 values.

    Raises:
        FingerprintError: not a float dtype, or no such format.
    """
    own = _BY_DTYPE.get(dtype.name)
    if own is None:
        raise FingerprintError(
            f"{where}: expected float16, float32 or float64, got {dtype}" + _advice(dtype, name)
        )
    if name is None or name == own:
        return FORMATS[own]
    if name not in FORMATS:
        raise FingerprintError(f"{where}: no format {name!r}; one of {', '.join(FORMATS)}")
    if own != "f32" or name != "bf16":
        raise FingerprintError(f"{where}: {name} values come as float32, got {dtype}")
    return FORMATS[name]


def _advice(dtype: np.dtype, name: str | None) -> str:
    if dtype.kind in "iub":
        if name is not None:
            return f"; {name} values come as float32 (floats.widen of their bits)"
        return (
            "; sums of integers are exact in any order: compare their fingerprints, or use level T3"
        )
    return "; view complex numbers as pairs of floats" if dtype.kind == "c" else ""


def as_floats(x: Array, precision: str | None) -> Array:
    """The values of an array; of the bits of bfloat16 (uint16) where that is said."""
    return widen(x) if precision == "bf16" and x.dtype == np.uint16 else x


def widen(bits: Array) -> Array:
    """The float32 values of bfloat16 bits (uint16)."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow(values: Array) -> Array:
    """The bfloat16 bits (uint16) nearest to float32 values, ties to even. NaNs stay NaNs."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    with np.errstate(over="ignore"):
        rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(
            16
        )
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)
