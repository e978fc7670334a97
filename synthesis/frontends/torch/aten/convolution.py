"""Convolutions, as one product of all that the kernel sees with the kernel."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardproof.synthesis.frontends.torch.aten.table import Emit, aten
from shardproof.synthesis.frontends.torch.aten.views import scatter_lines

MAX_PLACES = 64
"""Kernels of more places along a dim are written out only where patches tile the input."""


@dataclass(frozen=True)
class _Form:
    """A convolution: `x` [batch, channels, *size], `w` [out, channels / groups, *kernel]."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    x: tuple[int, ...]
    w: tuple[int, ...]

    @property
    def padded(self) -> tuple[int, ...]:
        return tuple(n + 2 * p for n, p in zip(self.x[2:], self.padding, strict=True))

    @property
    def size(self) -> tuple[int, ...]:
        """Places of the result."""
        return tuple(
            (n - d * (k - 1) - 1) // s + 1
            for n, k, s, d in zip(self.padded, self.w[2:], self.stride, self.dilation, strict=True)
        )

    @property
    def tiles(self) -> bool:
        """Whether patches neither overlap nor leave gaps."""
        whole = set(self.dilation) == {1} and self.groups == 1
        return whole and self.stride == self.w[2:]

    @property
    def rows(self) -> int:
        return self.x[0] * math.prod(self.size)


def _form(x: tuple[int, ...], w: tuple[int, ...], *given: Any) -> _Form:
    stride, padding, dilation, _, _, groups = given
    rank = len(x) - 2

    def each(value: Sequence[int]) -> tuple[int, ...]:
        return tuple(value) if len(value) == rank else tuple(value) * rank

    return _Form(each(stride), each(padding), each(dilation), groups, x, w)


@aten("convolution.default")
def convolution(e: Emit, x: str, w: str, bias: str | None, *given: Any) -> str:
    if given[3]:
        out = _toward_input(e, x, w, _form(e.result[0].shape, e.shape(w), *given))
    else:
        out = _convolved(e, x, w, _form(e.shape(x), e.shape(w), *given))
    if bias is None:
        return out
    return e.add("add", out, e.reshape(bias, (-1, *[1] * (len(e.shape(x)) - 2))))


def _convolved(e: Emit, x: str, w: str, form: _Form) -> str:
    padded = _padded(e, x, form)
    if form.tiles:
        kernel = e.permute(e.reshape(w, (form.w[0], -1)), (1, 0))
        return _channels_first(e, e.add("mm", _patches(e, padded, form), kernel), form)
    kernel = e.permute(_kernel(e, w, form), (0, 2, 1))
    out = e.add("bmm", _rows(e, _unfolded(e, padded, form), form), kernel)
    return _unrows(e, out, (form.w[0],), form)


def _toward_input(e: Emit, g: str, w: str, form: _Form) -> str:
    """What a convolution passes back to its input. A transposed convolution is this."""
    back = _tiled_back if form.tiles else _summed_back
    dx, _ = back(e, g, "", w, form, (True, False))
    assert dx is not None
    return dx


def _toward_kernel(e: Emit, g: str, x: str, w: str, form: _Form) -> str:
    back = _tiled_back if form.tiles else _summed_back
    _, dw = back(e, g, _padded(e, x, form), w, form, (False, True))
    assert dw is not None
    return dw


@aten("convolution_backward.default")
def convolution_backward(
    e: Emit, g: str, x: str, w: str, bias_sizes: Any, *given: Any
) -> tuple[str | None, str | None, str | None]:
    *shape, mask = given
    whole, part, toward = (g, x, _convolved) if shape[3] else (x, g, _toward_input)
    form = _form(e.shape(whole), e.shape(w), *shape)
    dx = toward(e, g, w, form) if mask[0] else None
    dw = _toward_kernel(e, part, whole, w, form) if mask[1] else None
    return dx, dw, e.sum(g, (0, *range(2, len(e.shape(g))))) if mask[2] else None


def _tiled_back(
    e: Emit, g: str, x: str, w: str, form: _Form, mask: Sequence[bool]
) -> tuple[str | None, str | None]:
    last = (0, *range(2, 2 + len(form.size)), 1)
    rows = e.reshape(e.permute(g, last), (form.rows, form.w[0]))
    dx = dw = None
    if mask[0]:
        dx = _unpatched(e, e.add("mm", rows, e.reshape(w, (form.w[0], -1))), form)
        dx = _unpadded(e, dx, form)
    if mask[1]:
        dw = e.reshape(e.add("mm", e.permute(rows, (1, 0)), _patches(e, x, form)), form.w)
    return dx, dw


def _summed_back(
    e: Emit, g: str, x: str, w: str, form: _Form, mask: Sequence[bool]
) -> tuple[str | None, str | None]:
    rows = _rows(e, g, form)
    dx = dw = None
    if mask[0]:
        seen = e.add("bmm", rows, _kernel(e, w, form))
        seen = _unrows(e, seen, (form.x[1], *form.w[2:]), form)
        dx = _unpadded(e, _folded(e, seen, form), form)
    if mask[1]:
        seen = _rows(e, _unfolded(e, x, form), form)
        dw = e.reshape(e.add("bmm", e.permute(rows, (0, 2, 1)), seen), form.w)
    return dx, dw


def _padded(e: Emit, x: str, form: _Form) -> str:
    for d, p in enumerate(form.padding):
        x = e.pad(x, d + 2, p, p)
    return x


def _unpadded(e: Emit, x: str, form: _Form) -> str:
    for d, p in enumerate(form.padding):
        x = e.slice(x, d + 2, p, p + form.x[d + 2])
    return x


def _places(form: _Form, d: int) -> list[int]:
    """The first entry that each place of the kernel sees along a dim."""
    if form.w[d + 2] > MAX_PLACES:
        raise NotImplementedError(
            f"a kernel of {form.w[d + 2]} places along a dim whose patches do not tile the input"
        )
    return [k * form.dilation[d] for k in range(form.w[d + 2])]


def _unfolded(e: Emit, x: str, form: _Form) -> str:
    """What each place of the kernel sees: [batch, channels, *kernel, *size]."""
    for d, (n, step) in enumerate(zip(form.size, form.stride, strict=True)):
        at = 2 * d + 2
        shape = e.shape(x)
        one = (*shape[: d + 2], 1, *shape[d + 2 : at], n, *shape[at + 1 :])
        seen = (e.slice(x, at, k, k + (n - 1) * step + 1, step) for k in _places(form, d))
        x = e.concat([e.reshape(part, one) for part in seen], d + 2)
    return x


def _folded(e: Emit, seen: str, form: _Form) -> str:
    """The adjoint of `_unfolded`: what places of the kernel see is added up where they see it."""
    for d in reversed(range(len(form.size))):
        at = 2 * d + 2
        shape = e.shape(seen)
        one = (*shape[: d + 2], *shape[d + 3 :])
        whole = ""
        for i, k in enumerate(_places(form, d)):
            part = e.reshape(e.slice(seen, d + 2, i, i + 1), one)
            part = scatter_lines(e, part, at, k, form.stride[d], form.padded[d])
            whole = e.add("add", whole, part) if whole else part
        seen = whole
    return seen


def _kernel(e: Emit, w: str, form: _Form) -> str:
    """[groups, channels out, channels in * kernel] of a group."""
    return e.reshape(w, (form.groups, form.w[0] // form.groups, math.prod(form.w[1:])))


def _rows(e: Emit, x: str, form: _Form) -> str:
    """[batch, channels, ..., *size] as [groups, rows, channels of a group * ...]."""
    shape = e.shape(x)
    wide = math.prod(shape[1 : len(shape) - len(form.size)]) // form.groups
    split = e.reshape(x, (shape[0], form.groups, wide, *form.size))
    moved = e.permute(split, (1, 0, *range(3, 3 + len(form.size)), 2))
    return e.reshape(moved, (form.groups, form.rows, wide))


def _unrows(e: Emit, rows: str, channels: tuple[int, ...], form: _Form) -> str:
    """[groups, rows, channels of a group * ...] as [batch, *channels, *size]."""
    groups, _, wide = e.shape(rows)
    split = e.reshape(rows, (groups, form.x[0], *form.size, wide))
    rank = len(form.size)
    moved = e.permute(split, (1, 0, 2 + rank, *range(2, 2 + rank)))
    return e.reshape(moved, (form.x[0], *channels, *form.size))


def _patches(e: Emit, x: str, form: _Form) -> str:
    """[rows, channels * kernel] of patches that tile the input."""
    batch, channels = form.x[:2]
    for d, (n, k) in enumerate(zip(form.size, form.stride, strict=True)):
        x = e.slice(x, d + 2, 0, n * k)
    pairs = [v for n, k in zip(form.size, form.stride, strict=True) for v in (n, k)]
    rank = len(form.size)
    outer, inner = [2 + 2 * d for d in range(rank)], [3 + 2 * d for d in range(rank)]
    cut = e.permute(e.reshape(x, (batch, channels, *pairs)), (0, *outer, 1, *inner))
    return e.reshape(cut, (form.rows, channels * math.prod(form.stride)))


def _unpatched(e: Emit, rows: str, form: _Form) -> str:
    """Patches back at their places; what no patch covers is zero."""
    batch, channels = form.x[:2]
    rank = len(form.size)
    cut = e.reshape(rows, (batch, *form.size, channels, *form.stride))
    order = [v for d in range(rank) for v in (1 + d, 2 + rank + d)]
    whole = e.permute(cut, (0, 1 + rank, *order))
    covered = [n * k for n, k in zip(form.size, form.stride, strict=True)]
    out = e.reshape(whole, (batch, channels, *covered))
    for d, (have, want) in enumerate(zip(covered, form.padded, strict=True)):
        out = e.pad(out, d + 2, 0, want - have)
    return out


def _channels_first(e: Emit, rows: str, form: _Form) -> str:
    split = e.reshape(rows, (form.x[0], *form.size, form.w[0]))
    rank = len(form.size)
    return e.permute(split, (0, 1 + rank, *range(1, 1 + rank)))
