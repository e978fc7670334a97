"""Means, softmax and norms over the last dim."""

from fractions import Fraction

from shardproof.verifier.kernel.composites.expansion import composite
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.registry import REQUIRED


def _last(b: Builder, x: str) -> int:
    return len(b.types[x].shape) - 1


@composite("... [dims] -> ...", dims=REQUIRED, keepdim=False)
def mean(b: Builder, x: str, dims: tuple[int, ...], keepdim: bool) -> str:
    """Mean over `dims`: the sum times one over the extent at hand."""
    count = 1
    for d in dims:
        count *= b.types[x].shape[d]
    total = b.add("sum", x, dims=tuple(dims), keepdim=keepdim)
    return b.add("mul_scalar", total, value=Fraction(1, count))


@composite("... [n] -> ... [n]")
def softmax(b: Builder, x: str) -> str:
    """Softmax over the last dim, shifted by the maximum."""
    n = _last(b, x)
    e = b.add("exp", b.add("sub", x, b.add("amax", x, dims=(n,), keepdim=True)))
    return b.add("div", e, b.add("sum", e, dims=(n,), keepdim=True))


@composite("... [n], ... [n] -> ... [n]")
def softmax_backward(b: Builder, g: str, y: str) -> str:
    """`y * (g - sum(g * y))` over the last dim."""
    n = _last(b, y)
    gy = b.add("mul", g, y)
    return b.add("sub", gy, b.add("mul", y, b.add("sum", gy, dims=(n,), keepdim=True)))


@composite("... [n] -> ... [n]")
def log_softmax(b: Builder, x: str) -> str:
    """Log-softmax over the last dim, shifted by the maximum."""
    n = _last(b, x)
    shifted = b.add("sub", x, b.add("amax", x, dims=(n,), keepdim=True))
    total = b.add("sum", b.add("exp", shifted), dims=(n,), keepdim=True)
    return b.add("sub", shifted, b.add("log", total))


@composite("... [n], ... [n] -> ... [n]")
def log_softmax_backward(b: Builder, g: str, y: str) -> str:
    """`g - exp(y) * sum(g)` over the last dim."""
    n = _last(b, y)
    total = b.add("sum", g, dims=(n,), keepdim=True)
    return b.add("sub", g, b.add("mul", b.add("exp", y), total))


@composite("... [n], n, n -> ... [n]", eps=REQUIRED)
def layer_norm(b: Builder, x: str, weight: str, bias: str, eps: Fraction) -> str:
    """Layer norm over the last dim (Ba et al. 2016)."""
    n = _last(b, x)
    centred = b.add("sub", x, b.add("mean", x, dims=(n,), keepdim=True))
    var = b.add("mean", b.add("mul", centred, centred), dims=(n,), keepdim=True)
    scale = b.add("rsqrt", b.add("add_scalar", var, value=eps))
    return b.add("add", b.add("mul", b.add("mul", centred, scale), weight), bias)


@composite("... [n], n -> ... [n]", eps=REQUIRED)
def rms_norm(b: Builder, x: str, weight: str, eps: Fraction) -> str:
    """RMS norm over the last dim (Zhang, Sennrich 2019)."""
    n = _last(b, x)
    square = b.add("mean", b.add("mul", x, x), dims=(n,), keepdim=True)
    scale = b.add("rsqrt", b.add("add_scalar", square, value=eps))
    return b.add("mul", b.add("mul", x, scale), weight)


@composite("... -> ...")
def detach(b: Builder, x: str) -> str:
    """The same value, through which no gradient passes."""
    return x
