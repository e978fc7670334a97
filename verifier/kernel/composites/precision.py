"""Scales that go with narrow formats."""

from fractions import Fraction

from shardproof.verifier.kernel.composites.expansion import composite
from shardproof.verifier.kernel.composites.formats import FORMATS
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.registry import REQUIRED


def _largest(format: str) -> Fraction:
    return Fraction(FORMATS[format].largest)


@composite("..., ... -> ...", format=REQUIRED, ste=False)
def quantize(b: Builder, x: str, scale: str, format: str, ste: bool) -> str:
    """`x * scale`, clamped to the finite values of the format, then rounded to it."""
    dtype = b.types[x].dtype
    top = b.add("full", shape=(), value=_largest(format), dtype=dtype)
    low = b.add("full", shape=(), value=-_largest(format), dtype=dtype)
    clamped = b.add("maximum", b.add("minimum", b.add("mul", x, scale), top), low)
    return b.add("round_to", clamped, format=format, ste=ste)


@composite("..., ... -> ...")
def dequantize(b: Builder, x: str, scale: str) -> str:
    """`x / scale`: back from the scale that `quantize` was given."""
    return b.add("div", x, scale)


@composite("... -> ")
def abs_max(b: Builder, x: str) -> str:
    """The largest magnitude of a tensor. Split dims leave a pending max."""
    return b.add("amax", b.add("abs", x), dims=tuple(range(len(b.types[x].shape))))


@composite("h, -> h")
def amax_update(b: Builder, history: str, amax: str) -> str:
    """The history of magnitudes with the newest one first, and the oldest one dropped."""
    (n,) = b.types[history].shape
    kept = b.add("slice", history, dim=0, start=0, stop=n - 1)
    return b.add("concat", b.add("reshape", amax, shape=(1,)), kept, dim=0)


@composite("h, -> ", format=REQUIRED, margin=0)
def delayed_scale(b: Builder, history: str, scale: str, format: str, margin: int) -> str:
    """`largest / max(history) / 2**margin`; the old scale where no magnitude was seen yet.

    Delayed scaling (Micikevicius et al. 2022).
    """
    top = b.add("amax", history, dims=(0,))
    zero = b.add("full", shape=(), value=Fraction(0), dtype=b.types[history].dtype)
    value = _largest(format) / 2**margin
    fresh = b.add("mul_scalar", b.add("reciprocal", top), value=value)
    return b.add("where", b.add("gt", top, zero), fresh, scale)


@composite("..., -> ...")
def loss_scale(b: Builder, x: str, scale: str) -> str:
    """A loss, or a gradient, times a scalar: the scale, or its reciprocal."""
    return b.add("mul", x, scale)
