"""Pooling, and what else reads a tensor in windows: by a table of what each result sees."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from shardproof.synthesis.frontends.torch.aten.table import Emit, aten

Table = NDArray[np.int64]
"""[places of the result, entries of a window]: which entry is seen; -1 for none."""


@dataclass(frozen=True)
class Windows:
    """What each result along the last dims sees. `sides` has a table a dim, of entries there."""

    size: tuple[int, ...]
    """Extents of the dims that are read."""
    sides: tuple[Table, ...]

    @property
    def out(self) -> tuple[int, ...]:
        return tuple(len(side) for side in self.sides)

    @property
    def table(self) -> Table:
        """Of places in the dims taken as one."""
        flat = np.zeros((1, 1), np.int64)
        for n, side in zip(self.size, self.sides, strict=True):
            outside = (flat < 0)[:, None, :, None] | (side < 0)[None, :, None, :]
            joined = flat[:, None, :, None] * n + side[None, :, None, :]
            joined = np.where(outside, -1, joined)
            flat = joined.reshape(len(flat) * len(side), -1)
        return flat

    @property
    def tiles(self) -> bool:
        """Whether windows lie side by side and cover all."""
        return all(
            np.array_equal(side.reshape(-1), np.arange(n))
            for n, side in zip(self.size, self.sides, strict=True)
        )

    @property
    def inside(self) -> Table:
        """As `table`, with an entry of the same window where there is none."""
        flat = self.table
        first = np.take_along_axis(flat, (flat >= 0).argmax(1)[:, None], 1)
        if (first < 0).any():
            raise NotImplementedError("a window that sees no entry")
        return np.where(flat < 0, first, flat)


def each(value: Any, rank: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values if len(values) == rank else values * rank


def moving(
    size: Sequence[int],
    out: Sequence[int],
    kernel: Any,
    stride: Any,
    padding: Any = 0,
    dilation: Any = 1,
) -> Windows:
    """Windows that move by `stride` from `padding` before the first entry."""
    rank = len(size)
    kernel, stride = each(kernel, rank), each(stride or kernel, rank)
    sides: list[Table] = []
    for n, m, k, s, p, d in zip(
        size, out, kernel, stride, each(padding, rank), each(dilation, rank), strict=True
    ):
        at = cast(Table, np.arange(m)[:, None] * s - p + np.arange(k)[None, :] * d)
        sides.append(np.where((at < 0) | (at >= n), -1, at))
    return Windows(tuple(size), tuple(sides))


def adaptive(size: Sequence[int], out: Sequence[int]) -> Windows:
    """Windows from floor(i n / m) up to ceil((i + 1) n / m), as PyTorch's adaptive pools have."""
    sides: list[Table] = []
    for n, m in zip(size, out, strict=True):
        starts = cast(Table, np.arange(m) * n // m)
        stops = cast(Table, -(-(np.arange(m) + 1) * n // m))
        at = cast(Table, starts[:, None] + np.arange((stops - starts).max())[None, :])
        sides.append(np.where(at < stops[:, None], at, -1))
    return Windows(tuple(size), tuple(sides))


def _lines(e: Emit, x: str, rank: int) -> str:
    """The last `rank` dims as one."""
    return e.reshape(x, (*e.shape(x)[: len(e.shape(x)) - rank], -1))


def seen(e: Emit, x: str, windows: Windows, table: Table) -> str:
    """[..., places, entries of a window]; 0 where a window sees none."""
    rank = len(windows.size)
    lines = _lines(e, x, rank)
    taken = e.add("take", lines, e.held(table.reshape(-1)), dim=len(e.shape(lines)) - 1)
    return e.reshape(taken, (*e.shape(lines)[:-1], *table.shape))


def unseen(e: Emit, g: str, windows: Windows, table: Table) -> str:
    """The adjoint of `seen`: [..., *size]."""
    lead = e.shape(g)[:-2]
    last = len(lead)
    lines = e.reshape(g, (*lead, -1))
    moved = e.permute(lines, (last, *range(last)))
    total = math.prod(windows.size)
    added = e.add("index_add", moved, e.held(table.reshape(-1)), size=total)
    return e.reshape(e.permute(added, (*range(1, last + 1), 0)), (*lead, *windows.size))


def _tiled(windows: Windows, lead: Sequence[int]) -> tuple[list[int], list[int]]:
    """A shape with two dims for each, its places and what a window has; where the latter are."""
    shape = [*lead, *(n for side in windows.sides for n in side.shape)]
    return shape, [len(lead) + 2 * i + 1 for i in range(len(windows.sides))]


def average(e: Emit, x: str, windows: Windows, counts: NDArray[np.int64]) -> str:
    """The sum over each window over a count for each place."""
    lead = e.shape(x)[: len(e.shape(x)) - len(windows.size)]
    if windows.tiles and (counts == counts.flat[0]).all():
        shape, dims = _tiled(windows, lead)
        return e.scale(e.sum(e.reshape(x, shape), dims), _over(counts))
    total = e.sum(seen(e, x, windows, windows.table), (len(lead) + 1,))
    return e.reshape(_divided(e, total, counts), (*lead, *windows.out))


def average_back(e: Emit, g: str, windows: Windows, counts: NDArray[np.int64]) -> str:
    lead = e.shape(g)[: len(e.shape(g)) - len(windows.size)]
    if windows.tiles and (counts == counts.flat[0]).all():
        shape, dims = _tiled(windows, lead)
        narrow = [1 if i in dims else n for i, n in enumerate(shape)]
        spread = e.expand(e.reshape(e.scale(g, _over(counts)), narrow), shape)
        return e.reshape(spread, (*lead, *windows.size))
    table = windows.table
    lines = _divided(e, e.reshape(g, (*lead, -1)), counts)
    spread = e.expand(e.reshape(lines, (*lead, len(table), 1)), (*lead, *table.shape))
    return unseen(e, spread, windows, table)


def _over(counts: NDArray[np.int64]) -> Fraction:
    return Fraction(1, int(counts.flat[0]))


def _divided(e: Emit, x: str, counts: NDArray[np.int64]) -> str:
    if (counts == counts.flat[0]).all():
        return e.scale(x, _over(counts))
    return e.add("div", x, e.cast(e.held(counts), e.type(x).dtype))


def _averaging(
    e: Emit,
    x: str,
    out: Sequence[int],
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil: bool = False,
    include: bool = True,
    divisor: int | None = None,
) -> tuple[Windows, NDArray[np.int64]]:
    size = e.shape(x)[len(e.shape(x)) - len(out) :]
    windows = moving(size, out, kernel, stride, padding)
    if divisor:
        return windows, np.full(math.prod(out), divisor)
    if not include:
        return windows, (windows.table >= 0).sum(1)
    padded = moving(
        [n + 2 * p for n, p in zip(size, each(padding, len(out)), strict=True)], out, kernel, stride
    )
    return windows, (padded.table >= 0).sum(1)


def _pooled(op: str) -> int:
    """Over how many dims an op like `avg_pool2d` pools."""
    return int(op[op.index("d", op.index("pool")) - 1])


@aten("avg_pool2d.default", "avg_pool3d.default")
def avg_pool(e: Emit, x: str, *given: Any) -> str:
    out = e.result[0].shape[-_pooled(e.op) :]
    return average(e, x, *_averaging(e, x, out, *given))


@aten("avg_pool2d_backward.default", "avg_pool3d_backward.default")
def avg_pool_backward(e: Emit, g: str, x: str, *given: Any) -> str:
    out = e.shape(g)[-_pooled(e.op) :]
    return average_back(e, g, *_averaging(e, x, out, *given))


@aten("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default")
def adaptive_avg_pool(e: Emit, x: str, out: Sequence[int]) -> str:
    windows = adaptive(e.shape(x)[-len(out) :], out)
    return average(e, x, windows, (windows.table >= 0).sum(1))


@aten("_adaptive_avg_pool2d_backward.default", "_adaptive_avg_pool3d_backward.default")
def adaptive_avg_pool_backward(e: Emit, g: str, x: str) -> str:
    rank = _pooled(e.op)
    windows = adaptive(e.shape(x)[-rank:], e.shape(g)[-rank:])
    return average_back(e, g, windows, (windows.table >= 0).sum(1))


def _largest(e: Emit, x: str, windows: Windows) -> tuple[str, str]:
    """The largest entry of each window, and where the first of these lies in the dims read."""
    table = windows.inside
    found = seen(e, x, windows, table)
    last = len(e.shape(found)) - 1
    lead, places = e.shape(found)[:-2], len(table)
    choice = e.add("topk_index", found, k=1, dim=last)
    values = e.reshape(e.add("take_along", found, choice, dim=last), (*lead, *windows.out))
    starts = e.add("mul", e.iota((places,), 0), e.full(table.shape[1], (), "i64"))
    flat = e.add("add", e.reshape(choice, (*lead, places)), starts)
    where = e.add("take", e.held(table.reshape(-1)), flat, dim=0)
    return values, e.reshape(where, (*lead, *windows.out))


@aten("max_pool2d_with_indices.default", "max_pool3d_with_indices.default")
def max_pool(
    e: Emit,
    x: str,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil: bool = False,
) -> tuple[str, str]:
    rank = _pooled(e.op)
    out = e.result[0].shape[-rank:]
    return _largest(e, x, moving(e.shape(x)[-rank:], out, kernel, stride, padding, dilation))


@aten("adaptive_max_pool2d.default", "adaptive_max_pool3d.default")
def adaptive_max_pool(e: Emit, x: str, out: Sequence[int]) -> tuple[str, str]:
    return _largest(e, x, adaptive(e.shape(x)[-len(out) :], out))


@aten(
    *("max_pool2d_with_indices_backward.default", "max_pool3d_with_indices_backward.default"),
    *("adaptive_max_pool2d_backward.default", "adaptive_max_pool3d_backward.default"),
)
def max_pool_backward(e: Emit, g: str, x: str, *given: Any) -> str:
    rank, ids = _pooled(e.op), given[-1]
    total = math.prod(e.shape(x)[-rank:])
    lead = len(e.shape(x)) - rank
    lines = [_lines(e, v, rank) for v in (g, ids)]
    return e.reshape(e.add("put_along", *lines, dim=lead, size=total), e.shape(x))


@aten("unfold.default")
def unfold(e: Emit, x: str, dim: int, size: int, step: int) -> str:
    """Windows along one dim; what is in them is the last dim."""
    dim, last = e.dim(x, dim), len(e.shape(x)) - 1
    windows = moving([e.shape(x)[dim]], [e.result[0].shape[dim]], size, step)
    found = seen(e, e.transpose(x, dim, last), windows, windows.table)
    return e.transpose(found, dim, last)


@aten("unfold_backward.default")
def unfold_backward(e: Emit, g: str, sizes: Sequence[int], dim: int, size: int, step: int) -> str:
    dim, last = dim % len(sizes), len(sizes) - 1
    windows = moving([sizes[dim]], [e.shape(g)[dim]], size, step)
    lines = e.transpose(g, dim, last)
    return e.transpose(unseen(e, lines, windows, windows.table), dim, last)


def _diagonal(
    sizes: Sequence[int], offset: int, a: int, b: int
) -> tuple[list[int], Windows, Table]:
    """The order of dims with `a` and `b` last, and where the diagonal lies in these."""
    order = [d for d in range(len(sizes)) if d not in (a, b)]
    rows, columns = sizes[a], sizes[b]
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    at = np.arange(count) + max(-offset, 0)
    windows = Windows((rows, columns), ())
    return [*order, a, b], windows, (at * columns + at + offset)[:, None]


@aten("diagonal.default")
def diagonal(e: Emit, x: str, offset: int = 0, dim1: int = 0, dim2: int = 1) -> str:
    order, windows, table = _diagonal(e.shape(x), offset, e.dim(x, dim1), e.dim(x, dim2))
    return e.reshape(seen(e, e.permute(x, order), windows, table), e.result[0].shape)


@aten("diagonal_backward.default")
def diagonal_backward(
    e: Emit, g: str, sizes: Sequence[int], offset: int, dim1: int, dim2: int
) -> str:
    rank = len(sizes)
    order, windows, table = _diagonal(sizes, offset, dim1 % rank, dim2 % rank)
    whole = unseen(e, e.reshape(g, (*e.shape(g), 1)), windows, table)
    return e.permute(whole, [order.index(d) for d in range(rank)])


@aten(*(f"replication_pad{n}d_backward.default" for n in (1, 2, 3)))
def replication_pad_backward(e: Emit, g: str, x: str, padding: Sequence[int]) -> str:
    """What stands in for an entry passes its gradient to it."""
    rank = len(padding) // 2
    sides: list[Table] = []
    for dim, n in enumerate(e.shape(x)[-rank:]):
        lo, hi = padding[2 * (rank - 1 - dim)], padding[2 * (rank - 1 - dim) + 1]
        sides.append(np.clip(np.arange(-lo, n + hi), 0, n - 1)[:, None])
    windows = Windows(e.shape(x)[-rank:], tuple(sides))
    return unseen(
        e, e.reshape(_lines(e, g, rank), (*e.shape(x)[:-rank], -1, 1)), windows, windows.table
    )


def _places(e: Emit, sizes: Sequence[int], out: Sequence[int], factors: Sequence[Any]) -> Windows:
    """For each place of the result, the one entry that is nearest.

    Raises NotImplementedError where a factor is not that of the extents."""
    _check_factors(sizes, out, factors)
    sides = [(np.arange(m) * n // m)[:, None] for n, m in zip(sizes, out, strict=True)]
    return Windows(tuple(sizes), tuple(sides))


def _check_factors(sizes: Sequence[int], out: Sequence[int], factors: Sequence[Any]) -> None:
    for n, m, factor in zip(sizes, out, factors, strict=True):
        if factor is not None and n * factor != m:
            raise NotImplementedError(f"an interpolation by {factor} from {n} to {m} entries")


@aten(*(f"upsample_nearest{n}d.default" for n in (1, 2, 3)))
def nearest(e: Emit, x: str, out: Sequence[int], *factors: Any) -> str:
    windows = _places(e, e.shape(x)[2:], out, factors or [None] * len(out))
    found = seen(e, x, windows, windows.table)
    return e.reshape(found, (*e.shape(x)[:2], *out))


@aten(*(f"upsample_nearest{n}d_backward.default" for n in (1, 2, 3)))
def nearest_backward(
    e: Emit, g: str, out: Sequence[int], sizes: Sequence[int], *factors: Any
) -> str:
    windows = _places(e, sizes[2:], out, factors or [None] * len(out))
    return unseen(e, e.reshape(g, (*sizes[:2], -1, 1)), windows, windows.table)


def _between(
    n: int, m: int, corners: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
    """For each of `m` places the entries before and after it among `n`, and how far it is from the
    first, in parts of a whole."""
    whole = max(m - 1, 1) if corners else 2 * m
    i = np.arange(m)
    at = i * (n - 1) if corners and m > 1 else i * 0 if corners else (2 * i + 1) * n - m
    at = np.maximum(at, 0)
    low = at // whole
    return low, np.minimum(low + 1, n - 1), at - low * whole, whole


def _mixed(e: Emit, x: str, dim: int, m: int, corners: bool) -> str:
    """`m` places along a dim, each a mean of the entries on both sides."""
    low, high, far, whole = _between(e.shape(x)[dim], m, corners)
    ends = [e.add("take", x, e.held(at), dim=dim) for at in (low, high)]
    by = [_share(e, x, dim, part, whole) for part in (whole - far, far)]
    return e.add("add", *(e.add("mul", v, w) for v, w in zip(ends, by, strict=True)))


def _share(e: Emit, x: str, dim: int, part: NDArray[np.int64], whole: int) -> str:
    shape = [len(part) if d == dim else 1 for d in range(len(e.shape(x)))]
    share = e.cast(e.held(part), e.type(x).dtype)
    return e.reshape(e.scale(share, Fraction(1, whole)), shape)


def _mixed_back(e: Emit, g: str, dim: int, n: int, corners: bool) -> str:
    low, high, far, whole = _between(n, e.shape(g)[dim], corners)
    order = [dim, *(d for d in range(len(e.shape(g))) if d != dim)]
    parts: list[str] = []
    for at, part in ((low, whole - far), (high, far)):
        lines = e.add("mul", g, _share(e, g, dim, part, whole))
        parts.append(e.add("index_add", e.permute(lines, order), e.held(at), size=n))
    return e.permute(e.add("add", *parts), [order.index(d) for d in range(len(order))])


@aten("upsample_linear1d.default", "upsample_bilinear2d.default", "upsample_trilinear3d.default")
def linear(e: Emit, x: str, out: Sequence[int], corners: bool, *factors: Any) -> str:
    if not corners:
        _check_factors(e.shape(x)[2:], out, factors or [None] * len(out))
    for dim, m in enumerate(out, 2):
        x = _mixed(e, x, dim, m, corners)
    return x


@aten(
    *("upsample_linear1d_backward.default", "upsample_bilinear2d_backward.default"),
    "upsample_trilinear3d_backward.default",
)
def linear_backward(
    e: Emit, g: str, out: Sequence[int], sizes: Sequence[int], corners: bool, *factors: Any
) -> str:
    for dim, n in reversed(list(enumerate(sizes[2:], 2))):
        g = _mixed_back(e, g, dim, n, corners)
    return g
