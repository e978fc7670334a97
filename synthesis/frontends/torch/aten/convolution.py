"""Convolutions, as one product for each place of the kernel, or one for all where patches tile."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from synthesis.frontends.torch.aten.table import Emit, aten
from synthesis.frontends.torch.aten.views import scatter_lines

MAX_PLACES = 64
"""Kernels of more places are written out only where patches tile the input."""


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

    def places(self) -> Iterator[tuple[int, ...]]:
        if math.prod(self.w[2:]) > MAX_PLACES:
            raise NotImplementedError(
                f"a kernel of {math.prod(self.w[2:])} places whose patches do not tile the input"
            )
        yield from product(*(range(k) for k in self.w[2:]))


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
    terms = [
        _unrows(e, e.add("bmm", _rows(e, _seen(e, padded, form, at), form), k), form)
        for at, k in _kernels(e, w, form)
    ]
    out = terms[0]
    for term in terms[1:]:
        out = e.add("add", out, term)
    return out


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
    dx: str | None = None
    kernels: list[str] = []
    for at, kernel in _kernels(e, w, form):
        if mask[0]:
            part = e.add("bmm", rows, e.permute(kernel, (0, 2, 1)))
            part = _unrows(e, part, form)
            for d, (start, step, extent) in enumerate(_steps(form, at)):
                part = scatter_lines(e, part, d + 2, start, step, extent)
            dx = part if dx is None else e.add("add", dx, part)
        if mask[1]:
            seen = _rows(e, _seen(e, x, form, at), form)
            made = e.add("bmm", e.permute(rows, (0, 2, 1)), seen)
            kernels.append(e.reshape(made, (form.w[0], form.w[1], 1)))
    dw = e.reshape(e.concat(kernels, 2), form.w) if kernels else None
    return (_unpadded(e, dx, form) if dx is not None else None), dw


def _padded(e: Emit, x: str, form: _Form) -> str:
    for d, p in enumerate(form.padding):
        x = e.pad(x, d + 2, p, p)
    return x


def _unpadded(e: Emit, x: str, form: _Form) -> str:
    for d, p in enumerate(form.padding):
        x = e.slice(x, d + 2, p, p + form.x[d + 2])
    return x


def _steps(form: _Form, at: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Along each dim: the first entry that a place of the kernel sees, the step, the extent."""
    sides = zip(at, form.dilation, form.stride, form.padded, strict=True)
    return [(k * d, s, n) for k, d, s, n in sides]


def _seen(e: Emit, x: str, form: _Form, at: tuple[int, ...]) -> str:
    """The entries that one place of the kernel meets: [batch, channels, *size]."""
    for d, ((start, step, _), n) in enumerate(zip(_steps(form, at), form.size, strict=True)):
        x = e.slice(x, d + 2, start, start + (n - 1) * step + 1, step)
    return x


def _rows(e: Emit, x: str, form: _Form) -> str:
    """[batch, channels, *size] as [groups, rows, channels of a group]."""
    shape = e.shape(x)
    split = e.reshape(x, (shape[0], form.groups, shape[1] // form.groups, *shape[2:]))
    spatial = range(3, 3 + len(form.size))
    moved = e.permute(split, (1, 0, *spatial, 2))
    return e.reshape(moved, (form.groups, form.rows, shape[1] // form.groups))


def _unrows(e: Emit, rows: str, form: _Form) -> str:
    """[groups, rows, channels of a group] as [batch, channels, *size]."""
    groups, _, channels = e.shape(rows)
    split = e.reshape(rows, (groups, form.x[0], *form.size, channels))
    moved = e.permute(split, (1, 0, 2 + len(form.size), *range(2, 2 + len(form.size))))
    return e.reshape(moved, (form.x[0], groups * channels, *form.size))


def _kernels(e: Emit, w: str, form: _Form) -> Iterator[tuple[tuple[int, ...], str]]:
    """Each place of the kernel, with its weights as [groups, channels in, channels out]."""
    for at in form.places():
        part = w
        for d, k in enumerate(at):
            part = e.slice(part, d + 2, k, k + 1)
        part = e.reshape(part, (form.groups, form.w[0] // form.groups, form.w[1]))
        yield at, e.permute(part, (0, 2, 1))


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
