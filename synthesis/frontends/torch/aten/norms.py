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
    """With n = (x - mean) rstd and h = g w: rstd (h - mean(h) - n mean(h n))."""
    dims = _trailing(e, x, shape)
    outer = tuple(range(dims[0]))
    normal = e.add("mul", e.add("sub", x, mean), rstd)
    to_x = to_weight = to_bias = None
    if wanted[0]:
        h = g if weight is None else e.add("mul", g, weight)
        centred = e.add("sub", h, e.mean(h, dims, keepdim=True))
        along = e.add("mul", normal, e.mean(e.add("mul", h, normal), dims, keepdim=True))
        to_x = e.add("mul", rstd, e.add("sub", centred, along))
    if wanted[1]:
        to_weight = e.sum(e.add("mul", g, normal), outer)
    if wanted[2]:
        to_bias = e.sum(g, outer)
    return to_x, to_weight, to_bias
