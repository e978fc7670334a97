"""Rounding to narrow formats, and the scales that go with it.

`round_to` is uninterpreted in a proof: a program that rounds elsewhere, or to another format, or
at another scale, is another program. `cast` between float dtypes is the identity over the reals.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial

from verifier.domains.base import Array, Domain
from verifier.domains.functions import Function, declared
from verifier.domains.rounding import FORMATS
from verifier.domains.rounding import round_to as rounded
from verifier.kernel.ops.composites import composite
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.errors import IRError
from verifier.kernel.program.registry import REQUIRED, AttrMap, Op, Site, register
from verifier.kernel.program.traits import Traits
from verifier.kernel.program.types import TensorType


def _types(site: Site) -> tuple[TensorType, ...]:
    (x,) = site.types
    if not x.is_float:
        raise site.fail("rounds floats")
    if site.attrs["format"] not in FORMATS:
        raise site.fail(f"format {site.attrs['format']!r}; expected one of {', '.join(FORMATS)}")
    return (x,)


for _name in FORMATS:
    declared(Function(f"round_to:{_name}", partial(rounded, format=_name), strict=True))


def _round_to(d: Domain, x: Array, format: str, ste: bool) -> Array:
    return d.unary(f"round_to:{format}", x)


round_to = register(
    Op(
        "round_to",
        "map",
        "... -> ...",
        _round_to,
        _types,
        attrs={"format": REQUIRED, "ste": False},
        flops=lambda types, results, _: results[0].size,
        doc="The nearest value of a float format; not linear. With `ste` the gradient passes "
        "straight through (Bengio et al. 2013), without it there is none.",
        traits=Traits(strict=True),
    )
)


@round_to.vjp
def _round_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    if not attrs["ste"]:
        raise IRError("round_to has no vjp: its slope is zero; set ste=true to pass straight")
    return [cts[0]]


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
