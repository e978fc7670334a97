"""Discrete Fourier transforms, as products with the sines and cosines of the roots of unity."""

import math
from collections.abc import Sequence

from shardproof.synthesis.frontends.torch.aten.complex_pairs import declare, pair, parts
from shardproof.synthesis.frontends.torch.aten.table import Emit


@declare("_fft_c2c.default")
def complex_to_complex(
    e: Emit, x: str, dim: Sequence[int], normalization: int, forward: bool
) -> str:
    for d in dim:
        x = _turned(e, x, _place(e, x, d), forward)
    return _normalized(e, x, x, dim, normalization)


@declare("_fft_r2c.default")
def real_to_complex(e: Emit, x: str, dim: Sequence[int], normalization: int, onesided: bool) -> str:
    start = x
    *others, last = dim
    last = e.dim(x, last)
    kept = e.shape(x)[last] // 2 + 1 if onesided else e.shape(x)[last]
    x = e.reshape(x, (*e.shape(x), 1))
    cosine, sine = (_along(e, x, last, f, kept) for f in ("cos", "sin"))
    x = pair(e, cosine, e.scale(sine, -1))
    for d in others:
        x = _turned(e, x, _place(e, x, d), True)
    return _normalized(e, x, e.reshape(start, (*e.shape(start), 1)), dim, normalization)


@declare("_fft_c2r.default")
def complex_to_real(
    e: Emit, x: str, dim: Sequence[int], normalization: int, last_dim_size: int
) -> str:
    """Of n numbers on, the half that is given stands for all: each but the first, and the one in
    the middle, for two."""
    *others, last = dim
    for d in others:
        x = _turned(e, x, _place(e, x, d), False)
    last, n = _place(e, x, last), last_dim_size
    x = e.slice(x, last, 0, n // 2 + 1)
    extents = [n // 2 + 1 if i == last else 1 for i in range(len(e.shape(x)))]
    at = e.cast(e.iota(extents, last), e.type(x).dtype)
    left = e.shift(e.scale(at, -1), n // 2) if n % 2 == 0 else at
    single = e.add("eq", e.add("mul", at, left), e.operand(0, at))
    x = e.add("where", single, x, e.scale(x, 2))
    real, imaginary = parts(e, x)
    real = _along(e, real, last, "cos", n, n)
    out = e.add("sub", real, _along(e, imaginary, last, "sin", n, n))
    out = _normalized(e, out, out, dim, normalization)
    return e.reshape(out, e.shape(out)[:-1])


def _place(e: Emit, x: str, dim: int) -> int:
    return dim % (len(e.shape(x)) - 1)


def _turned(e: Emit, x: str, dim: int, forward: bool) -> str:
    n = e.shape(x)[dim]
    (a, b), (c, d) = ([_along(e, p, dim, f, n) for f in ("cos", "sin")] for p in parts(e, x))
    first, second = ("add", "sub") if forward else ("sub", "add")
    return pair(e, e.add(first, a, d), e.add(second, c, b))


def _along(e: Emit, x: str, dim: int, of: str, count: int, period: int = 0) -> str:
    """Sum over j of x[j] * f(2 pi j k / n) along a dim, for k below `count`."""
    n, dtype = e.shape(x)[dim], e.type(x).dtype
    rows, columns = e.iota((n, 1), 0), e.iota((1, count), 1)
    angle = e.scale(e.cast(e.add("mul", rows, columns), dtype), 2 * math.pi / (period or n))
    last = len(e.shape(x)) - 1
    moved = e.transpose(x, dim, last)
    shape = e.shape(moved)
    flat = e.add("mm", e.reshape(moved, (-1, n)), e.add(of, angle))
    return e.transpose(e.reshape(flat, (*shape[:-1], count)), dim, last)


def _normalized(e: Emit, x: str, like: str, dim: Sequence[int], mode: int) -> str:
    """Divided by nothing, by the root of the number of entries, or by that number."""
    n = math.prod(e.shape(like)[_place(e, like, d)] for d in dim)
    return x if mode == 0 else e.scale(x, 1 / (math.sqrt(n) if mode == 1 else n))
