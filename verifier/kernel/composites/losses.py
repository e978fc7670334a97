"""Losses over classes."""

from fractions import Fraction

from shardproof.verifier.kernel.composites.expansion import composite
from shardproof.verifier.kernel.program.builder import Builder


@composite("... [n] -> ...", keepdim=False)
def logsumexp(b: Builder, x: str, keepdim: bool) -> str:
    """Logarithm of the sum of exponentials over the last dim, shifted by the maximum."""
    n = len(b.types[x].shape) - 1
    top = b.add("amax", x, dims=(n,), keepdim=True)
    total = b.add("sum", b.add("exp", b.add("sub", x, top)), dims=(n,), keepdim=True)
    out = b.add("add", top, b.add("log", total))
    return out if keepdim else b.add("reshape", out, shape=b.types[x].shape[:-1])


@composite("... v, ... -> ", ignore_index=-100, smoothing=Fraction(0))
def cross_entropy(
    b: Builder, logits: str, labels: str, ignore_index: int, smoothing: Fraction
) -> str:
    """Mean cross entropy of integer labels, those equal to `ignore_index` left out.

    `smoothing` takes that share of the weight from the label and spreads it over all classes
    (Szegedy et al. 2016). A label that names no class counts, with a logarithm of 0.
    """
    shape, dtype = b.types[logits].shape, b.types[logits].dtype
    n, classes = len(shape) - 1, shape[-1]
    ignored = b.add("full", shape=(), value=Fraction(ignore_index), dtype="i64")
    valid = b.add("cast", b.add("ne", labels, ignored), dtype=dtype)
    logs = b.add("log_softmax", logits)
    line = b.add("reshape", labels, shape=(*shape[:-1], 1))
    picked = b.add("reshape", b.add("take_along", logs, line, dim=n), shape=shape[:-1])
    smoothing = Fraction(smoothing)
    if smoothing:
        spread = b.add("sum", logs, dims=(n,))
        picked = b.add(
            "add",
            b.add("mul_scalar", picked, value=1 - smoothing),
            b.add("mul_scalar", spread, value=smoothing / classes),
        )
    dims = tuple(range(n))
    total = b.add("sum", b.add("mul", picked, valid), dims=dims)
    return b.add("neg", b.add("div", total, b.add("sum", valid, dims=dims)))
