"""Softmax, norms and their backwards."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from shardproof.synthesis.frontends.torch.aten.table import Emit, aten


def _along_last(op: str, e: Emit, dim: int, *values: str) -> str:
    """Run a last-dim op along `dim`."""
    dim = e.dim(values[0], dim)
    last = len(e.shape(values[0])) - 1
    moved = [e.transpose(v, dim, last) for v in values]
    return e.transpose(e.add(op, *moved), dim, last)


for _name, *_more in (("softmax", "_safe_softmax.default"), ("log_softmax",)):

    def _forward(e: Emit, x: str, dim: int, *_: Any, op: str = _name) -> str:
        return _along_last(op, e, dim, e.cast(x, e.result[0].dtype))

    def _backward(e: Emit, g: str, y: str, dim: int, _: Any, op: str = f"{_name}_backward") -> str:
        return _along_last(op, e, dim, g, y)

    aten(f"_{_name}.default", *_more)(_forward)
    aten(f"_{_name}_backward_data.default")(_backward)


def _channels(e: Emit, x: str) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """The dims of statistics of a batch, a shape that has the channels alone, entries of each."""
    shape = e.shape(x)
    dims = tuple(d for d in range(len(shape)) if d != 1)
    return (
        dims,
        tuple(n if d == 1 else 1 for d, n in enumerate(shape)),
        math.prod(shape) // shape[1],
    )


def _affine(e: Emit, x: str, weight: str | None, bias: str | None, narrow: Sequence[int]) -> str:
    for op, by in (("mul", weight), ("add", bias)):
        if by is not None:
            x = e.add(op, x, e.reshape(by, narrow))
    return x


@aten("_native_batch_norm_legit_functional.default")
def batch_norm(
    e: Emit,
    x: str,
    weight: str | None,
    bias: str | None,
    mean: str,
    variance: str,
    train: bool,
    momentum: float,
    eps: float,
) -> tuple[str, str | None, str | None, str, str]:
    """With statistics of the batch, which also move the running ones toward them: the variance
    there is that of a sample."""
    if not train:
        out = batch_norm_in_eval(e, x, weight, bias, mean, variance, False, momentum, eps)[0]
        return out, None, None, mean, variance
    out, batch_mean, rstd, spread = _batch_normal(e, x, weight, bias, eps)
    count = _channels(e, x)[2]
    share = e.number(momentum, mean)
    sample = e.scale(spread, Fraction(count, count - 1))

    def moved(old: str, new: str) -> str:
        step = e.add("sub", e.reshape(new, e.shape(old)), old)
        return e.add("add", old, e.scale(step, share))

    return out, batch_mean, rstd, moved(mean, batch_mean), moved(variance, sample)


def _batch_normal(
    e: Emit, x: str, weight: str | None, bias: str | None, eps: float
) -> tuple[str, str, str, str]:
    """The result, and by channel the mean, the reciprocal of the deviation, and the variance."""
    dims, narrow, _ = _channels(e, x)
    mean = e.mean(x, dims, keepdim=True)
    centred = e.add("sub", x, mean)
    variance = e.mean(e.add("mul", centred, centred), dims, keepdim=True)
    rstd = e.add("rsqrt", e.shift(variance, eps))
    out = _affine(e, e.add("mul", centred, rstd), weight, bias, narrow)
    shape = (e.shape(x)[1],)
    return out, e.reshape(mean, shape), e.reshape(rstd, shape), e.reshape(variance, shape)


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_of_the_batch(
    e: Emit, x: str, weight: str | None, bias: str | None, train: bool, _: float, eps: float
) -> tuple[str, str, str]:
    return _batch_normal(e, x, weight, bias, eps)[:3]


@aten("_native_batch_norm_legit.default")
def batch_norm_in_eval(
    e: Emit,
    x: str,
    weight: str | None,
    bias: str | None,
    mean: str,
    variance: str,
    train: bool,
    momentum: float,
    eps: float,
) -> tuple[str, None, None]:
    if train:
        raise NotImplementedError("running statistics that are changed in place")
    narrow = _channels(e, x)[1]
    centred = e.add("sub", x, e.reshape(mean, narrow))
    rstd = e.add("rsqrt", e.shift(variance, eps))
    return (
        _affine(e, e.add("mul", centred, e.reshape(rstd, narrow)), weight, bias, narrow),
        None,
        None,
    )


@aten("_native_batch_norm_legit_no_training.default")
def batch_norm_without_training(e: Emit, x: str, *given: Any) -> tuple[str, None, None]:
    *tensors, momentum, eps = given
    return batch_norm_in_eval(e, x, *tensors, False, momentum, eps)


@aten("native_group_norm.default")
def group_norm(
    e: Emit, x: str, weight: str | None, bias: str | None, *given: Any
) -> tuple[str, str, str]:
    batch, _, _, groups, eps = given
    wide = e.cast(x, e.result[1].dtype)
    lines = e.reshape(wide, (batch, groups, -1))
    mean = e.mean(lines, (2,), keepdim=True)
    centred = e.add("sub", lines, mean)
    variance = e.mean(e.add("mul", centred, centred), (2,), keepdim=True)
    rstd = e.add("rsqrt", e.shift(variance, eps))
    out = e.reshape(e.add("mul", centred, rstd), e.shape(x))
    out = e.cast(_affine(e, out, weight, bias, _channels(e, x)[1]), e.type(x).dtype)
    return out, e.reshape(mean, (batch, groups)), e.reshape(rstd, (batch, groups))


@aten("native_group_norm_backward.default")
def group_norm_backward(
    e: Emit, g: str, x: str, mean: str, rstd: str, weight: str | None, *given: Any
) -> tuple[str | None, str | None, str | None]:
    """With n what the norm makes before the weight, and h = g weight: (h - mean(h) - n mean(h n))
    rstd over each group."""
    batch, _, _, groups, mask = given
    dims, narrow, _ = _channels(e, x)
    dtype, lines = e.type(mean).dtype, (batch, groups, -1)
    g, wide = e.cast(g, dtype), e.cast(x, dtype)
    mean, rstd = (e.reshape(v, (batch, groups, 1)) for v in (mean, rstd))
    normal = e.add("mul", e.add("sub", e.reshape(wide, lines), mean), rstd)
    dx = dw = None
    if mask[0]:
        h = e.reshape(_affine(e, g, weight, None, narrow), lines)
        along = e.mean(e.add("mul", h, normal), (2,), keepdim=True)
        left = e.add("sub", h, e.mean(h, (2,), keepdim=True))
        left = e.add("sub", left, e.add("mul", normal, along))
        dx = e.cast(e.reshape(e.add("mul", left, rstd), e.shape(x)), e.type(x).dtype)
    if mask[1]:
        dw = e.sum(e.add("mul", g, e.reshape(normal, e.shape(x))), dims)
    return dx, dw, e.sum(g, dims) if mask[2] else None


@aten("_weight_norm_interface_backward.default")
def weight_norm_backward(
    e: Emit, ct: str, v: str, g: str, length: str, dim: int
) -> tuple[str, str]:
    """With s = sum(ct v): (g / length) (ct - v s / length^2), and s / length."""
    over = tuple(d for d in range(len(e.shape(v))) if d != dim)
    along = e.sum(e.add("mul", ct, v), over, keepdim=True)
    part = e.add("div", along, e.add("mul", length, length))
    left = e.add("sub", ct, e.add("mul", v, part))
    return e.add("mul", e.add("div", g, length), left), e.add("div", along, length)
