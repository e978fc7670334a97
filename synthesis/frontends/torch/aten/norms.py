"""Softmax, norms and their backwards."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from synthesis.frontends.torch.aten.table import Emit, aten, fraction


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


@aten("native_layer_norm.default")
def native_layer_norm(
    e: Emit, x: str, shape: Sequence[int], weight: str | None, bias: str | None, eps: float
) -> tuple[str, str, str]:
    dims = _trailing(e, x, shape)
    mean = e.mean(x, dims, keepdim=True)
    centred = e.add("sub", x, mean)
    variance = e.mean(e.add("mul", centred, centred), dims, keepdim=True)
    rstd = e.add("rsqrt", e.shift(variance, eps))
    out = e.add("mul", centred, rstd)
    if weight is not None:
        out = e.add("mul", out, weight)
    if bias is not None:
        out = e.add("add", out, bias)
    return out, mean, rstd


def _trailing(e: Emit, x: str, shape: Sequence[int]) -> tuple[int, ...]:
    rank = len(e.shape(x))
    return tuple(range(rank - len(shape), rank))


@aten("native_layer_norm_backward.default")
def native_layer_norm_backward(
    e: Emit,
    g: str,
    x: str,
    shape: Sequence[int],
    mean: str,
    rstd: str,
    weight: str | None,
    bias: str | None,
    wanted: Sequence[bool],
) -> tuple[str | None, str | None, str | None]:
    dims = _trailing(e, x, shape)
    outer = tuple(range(dims[0]))
    normal = e.add("mul", e.add("sub", x, mean), rstd)
    to_x = to_weight = to_bias = None
    if wanted[0]:
        to_x = _normal_back(e, g, normal, rstd, weight, dims)
    if wanted[1]:
        to_weight = e.sum(e.add("mul", g, normal), outer)
    if wanted[2]:
        to_bias = e.sum(g, outer)
    return to_x, to_weight, to_bias


@aten("native_group_norm.default")
def native_group_norm(
    e: Emit,
    x: str,
    weight: str | None,
    bias: str | None,
    n: int,
    channels: int,
    places: int,
    groups: int,
    eps: float,
) -> tuple[str, str, str]:
    """Over the channels of a group and all places: [n, groups, channels of a group, places]."""
    lines = e.reshape(x, (n, groups, channels // groups, places))
    mean = e.mean(lines, (2, 3), keepdim=True)
    centred = e.add("sub", lines, mean)
    variance = e.mean(e.add("mul", centred, centred), (2, 3), keepdim=True)
    rstd = e.add("rsqrt", e.shift(variance, eps))
    out = e.add("mul", centred, rstd)
    out = _affine(e, out, weight, bias, (groups, channels // groups, 1))
    by_group = n, groups
    return e.reshape(out, e.shape(x)), e.reshape(mean, by_group), e.reshape(rstd, by_group)


@aten("native_group_norm_backward.default")
def native_group_norm_backward(
    e: Emit,
    g: str,
    x: str,
    mean: str,
    rstd: str,
    weight: str | None,
    n: int,
    channels: int,
    places: int,
    groups: int,
    wanted: Sequence[bool],
) -> tuple[str | None, str | None, str | None]:
    """As of layer norm, over the channels of a group and all places."""
    shape = (n, groups, channels // groups, places)
    g, lines = e.reshape(g, shape), e.reshape(x, shape)
    mean, rstd = (e.reshape(v, (n, groups, 1, 1)) for v in (mean, rstd))
    normal = e.add("mul", e.add("sub", lines, mean), rstd)
    if weight is not None:
        weight = e.reshape(weight, (groups, channels // groups, 1))
    dx = _normal_back(e, g, normal, rstd, weight, (2, 3)) if wanted[0] else None
    return (
        e.reshape(dx, e.shape(x)) if dx is not None else None,
        e.reshape(e.sum(e.add("mul", g, normal), (0, 3)), (channels,)) if wanted[1] else None,
        e.reshape(e.sum(g, (0, 3)), (channels,)) if wanted[2] else None,
    )


def _normal_back(
    e: Emit, g: str, normal: str, rstd: str, weight: str | None, dims: tuple[int, ...]
) -> str:
    """With h = g w: rstd (h - mean(h) - normal mean(h normal))."""
    h = g if weight is None else e.add("mul", g, weight)
    centred = e.add("sub", h, e.mean(h, dims, keepdim=True))
    along = e.add("mul", normal, e.mean(e.add("mul", h, normal), dims, keepdim=True))
    return e.add("mul", rstd, e.add("sub", centred, along))


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
    share = fraction(momentum)
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


@aten("native_batch_norm_backward.default")
def batch_norm_backward(
    e: Emit,
    g: str,
    x: str,
    weight: str | None,
    running_mean: str | None,
    running_variance: str | None,
    mean: str | None,
    rstd: str | None,
    train: bool,
    eps: float,
    wanted: Sequence[bool],
) -> tuple[str | None, str | None, str | None]:
    dims, narrow, _ = _channels(e, x)
    if not train:
        assert running_mean is not None
        assert running_variance is not None
        mean, rstd = running_mean, e.add("rsqrt", e.shift(running_variance, eps))
    assert mean is not None
    assert rstd is not None
    mean, rstd = e.reshape(mean, narrow), e.reshape(rstd, narrow)
    normal = e.add("mul", e.add("sub", x, mean), rstd)
    wide = None if weight is None else e.reshape(weight, narrow)
    dx = None
    if wanted[0]:
        h = g if wide is None else e.add("mul", g, wide)
        dx = _normal_back(e, g, normal, rstd, wide, dims) if train else e.add("mul", h, rstd)
    to_weight = e.sum(e.add("mul", g, normal), dims) if wanted[1] else None
    return dx, to_weight, e.sum(g, dims) if wanted[2] else None


@aten("_weight_norm_interface.default")
def weight_norm(e: Emit, v: str, g: str, dim: int = 0) -> tuple[str, str]:
    """`v` at a length `g` along all dims but one."""
    over = tuple(d for d in range(len(e.shape(v))) if d != dim)
    length = e.add("sqrt", e.sum(e.add("mul", v, v), over, keepdim=True))
    return e.add("mul", v, e.add("div", g, length)), length


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
