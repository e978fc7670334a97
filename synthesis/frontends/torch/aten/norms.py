"""Softmax and layer norm with their backwards."""

from collections.abc import Sequence
from typing import Any

from synthesis.frontends.torch.aten.table import Emit, aten


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
    for op, by in (("mul", weight), ("add", bias)):
        if by is not None:
            out = e.add(op, out, e.reshape(by, (groups, channels // groups, 1)))
    return e.reshape(out, e.shape(x)), *(e.reshape(v, (n, groups)) for v in (mean, rstd))


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
