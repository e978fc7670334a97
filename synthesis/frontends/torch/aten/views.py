"""Views and copies: reshape, permute, expand, slice, concat, pad and their adjoints."""

import math
from collections.abc import Sequence
from typing import Any

from shardproof.synthesis.frontends.torch.aten.table import Emit, aten, fraction


@aten("view.default", "_unsafe_view.default", "reshape.default", "_reshape_alias.default")
def view(e: Emit, x: str, shape: Sequence[int], *_: Any) -> str:
    return e.reshape(x, shape)


@aten("unsqueeze.default", "squeeze.dim", "squeeze.dims", "squeeze.default")
def unsqueeze(e: Emit, x: str, *_: Any) -> str:
    return e.reshape(x, e.result[0].shape)


@aten("t.default", "numpy_T.default")
def t(e: Emit, x: str) -> str:
    return e.permute(x, tuple(reversed(range(len(e.shape(x))))))


aten("transpose.int")(Emit.transpose)
aten("permute.default")(Emit.permute)


@aten("as_strided.default")
def as_strided(e: Emit, x: str, size: Sequence[int], *how: Any) -> str:
    _whole(e, x, True, size, *how)
    return e.reshape(x, size)


@aten("as_strided_scatter.default")
def as_strided_scatter(e: Emit, x: str, source: str, *how: Any) -> str:
    _whole(e, x, False, *how)
    return e.reshape(source, e.shape(x))


def _whole(
    e: Emit,
    x: str,
    read: bool,
    size: Sequence[int],
    stride: Sequence[int],
    offset: int | None = None,
) -> None:
    """Refuse all but the whole tensor in the order of its memory. What is not `read` but written
    has no two entries in one place."""
    start, strides = e.memory
    shape = e.shape(x)
    same = read and tuple(size) == shape and _steps(size, stride) == _steps(shape, strides)
    dense = _dense(size, stride) and _dense(shape, strides) and math.prod(size) == math.prod(shape)
    if offset not in (None, start) or not (same or dense):
        raise NotImplementedError("it reads memory by strides")


def _steps(size: Sequence[int], stride: Sequence[int]) -> list[int]:
    """Strides, without those of dims of one entry, which say nothing."""
    return [k for n, k in zip(size, stride, strict=True) if n != 1]


def _dense(size: Sequence[int], stride: Sequence[int]) -> bool:
    step = 1
    for n, k in reversed(list(zip(size, stride, strict=True))):
        if n != 1 and k != step:
            return False
        step *= n
    return True


@aten("expand.default")
def expand(e: Emit, x: str, shape: Sequence[int], implicit: bool = False) -> str:
    return e.expand(x, shape)


@aten("repeat.default")
def repeat(e: Emit, x: str, times: Sequence[int]) -> str:
    old = (1,) * (len(times) - len(e.shape(x))) + e.shape(x)
    pairs = [(n, k) for n, k in zip(times, old, strict=True)]
    split = e.reshape(x, [v for _, k in pairs for v in (1, k)])
    spread = e.expand(split, [v for pair in pairs for v in pair])
    return e.reshape(spread, e.result[0].shape)


@aten("slice.Tensor")
def slice_(
    e: Emit, x: str, dim: int = 0, start: Any = None, stop: Any = None, step: int = 1
) -> str:
    dim, lines = e.dim(x, dim), slice(start, stop, step).indices(e.shape(x)[dim])
    if (step := lines[2]) > 1 and e.shape(x)[dim] == len(range(*lines)) * step:
        return every(e, x, dim, lines[0], step)
    return e.slice(x, dim, *lines)


def every(e: Emit, x: str, dim: int, start: int, step: int) -> str:
    """Of groups of `step` lines, that at `start` of each."""
    before, n, after = e.shape(x)[:dim], e.shape(x)[dim] // step, e.shape(x)[dim + 1 :]
    x = e.reshape(x, (*before, n, step, *after))
    return e.reshape(e.slice(x, dim + 1, start, start + 1), (*before, n, *after))


@aten("roll.default")
def roll(e: Emit, x: str, shifts: Sequence[int], dims: Sequence[int] = ()) -> str:
    """Pieces in another order: as PyTorch opens it, rows are picked by a table. Without dims it is
    the flat tensor that is rolled."""
    if not dims:
        flat = e.reshape(x, (math.prod(e.shape(x)),))
        return e.reshape(roll(e, flat, shifts, (0,)), e.shape(x))
    for shift, dim in zip(shifts, dims, strict=True):
        dim = e.dim(x, dim)
        extent = e.shape(x)[dim]
        if extent and shift % extent:
            cut = extent - shift % extent
            x = e.concat([e.slice(x, dim, cut, extent), e.slice(x, dim, 0, cut)], dim)
    return x


@aten("slice_scatter.default")
def slice_scatter(
    e: Emit, x: str, part: str, dim: int = 0, start: Any = None, stop: Any = None, step: int = 1
) -> str:
    """`x` with some of its lines exchanged for those of `part`."""
    dim = e.dim(x, dim)
    extent = e.shape(x)[dim]
    first, last, step = slice(start, stop, step).indices(extent)
    if _is_slice_of(e, part, x, dim, range(first, last, step)):
        return x
    if step != 1:
        return _every_nth(e, x, part, dim, range(first, last, step))
    ends = [e.slice(x, dim, 0, first), part, e.slice(x, dim, max(first, last), extent)]
    return e.concat([p for p in ends if e.shape(p)[dim]], dim)


def _every_nth(e: Emit, x: str, part: str, dim: int, lines: range) -> str:
    """`x` with these of its lines exchanged for those of `part`: whole steps as the first lines of
    blocks, and a last one that the end cuts short."""
    shape = list(e.shape(x))
    whole = max(0, min(len(lines), (shape[dim] - lines.start) // lines.step))
    end = lines.start + whole * lines.step
    pieces = [e.slice(x, dim, 0, lines.start)]
    if whole:
        blocks = [*shape[:dim], whole, lines.step, *shape[dim + 1 :]]
        rest = e.slice(e.reshape(e.slice(x, dim, lines.start, end), blocks), dim + 1, 1, lines.step)
        firsts = [*shape[:dim], whole, 1, *shape[dim + 1 :]]
        made = [e.reshape(e.slice(part, dim, 0, whole), firsts), rest]
        joined = [*shape[:dim], whole * lines.step, *shape[dim + 1 :]]
        pieces.append(e.reshape(e.concat(made, dim + 1), joined))
    if whole < len(lines):
        pieces.append(e.slice(part, dim, whole, whole + 1))
        end += 1
    pieces.append(e.slice(x, dim, end, shape[dim]))
    return e.concat([p for p in pieces if e.shape(p)[dim]], dim)


def _is_slice_of(e: Emit, part: str, x: str, dim: int, lines: range) -> bool:
    """Whether a value is these lines of another, as it was read there."""
    made = e.made(part)
    groups = e.made(made.inputs[0]) if made is not None and made.op == "reshape" else None
    if lines.step > 1 and groups is not None and groups.op == "slice":  # as `every` reads them
        of = e.made(groups.inputs[0])
        shape = (*e.shape(x)[:dim], len(lines), lines.step, *e.shape(x)[dim + 1 :])
        if of is None or (of.op, of.inputs, e.shape(groups.inputs[0])) != ("reshape", (x,), shape):
            return False
        made, x, dim, lines = groups, groups.inputs[0], dim + 1, range(lines.start, lines.start + 1)
    if made is None or made.op != "slice" or made.inputs != (x,):
        return False
    where = {"dim": dim, "start": lines.start, "stop": lines.stop, "step": lines.step}
    return {k: made.attrs.get(k) for k in where} == where


@aten("select_scatter.default")
def select_scatter(e: Emit, x: str, part: str, dim: int, index: int) -> str:
    """`x` with one of its lines exchanged."""
    dim = e.dim(x, dim)
    index %= e.shape(x)[dim]
    line = e.reshape(part, [1 if i == dim else n for i, n in enumerate(e.shape(x))])
    return slice_scatter(e, x, line, dim, index, index + 1)


@aten("copy.default", "copy_.default")
def copy(e: Emit, x: str | None, source: str, non_blocking: bool = False) -> str:
    """What is copied; it takes the shape and the dtype of what it is copied to."""
    return e.cast(source, e.result[0].dtype)


@aten("slice_backward.default")
def slice_backward(
    e: Emit, g: str, sizes: Sequence[int], dim: int, start: int, stop: int, step: int
) -> str:
    dim = dim % len(sizes)
    start, stop, step = slice(start, stop, step).indices(sizes[dim])
    return scatter_lines(e, g, dim, start, step, sizes[dim])


def scatter_lines(e: Emit, g: str, dim: int, start: int, step: int, size: int) -> str:
    """Zeros of extent `size` along `dim` with `g` at start, start+step, ..."""
    shape = e.shape(g)
    n = shape[dim]
    if step > 1 and n * step == size:
        g = e.reshape(g, (*shape[: dim + 1], 1, *shape[dim + 1 :]))
        g = e.pad(g, dim + 1, start, step - 1 - start)
        return e.reshape(g, (*shape[:dim], size, *shape[dim + 1 :]))
    if step > 1 and n:
        g = e.reshape(g, (*shape[: dim + 1], 1, *shape[dim + 1 :]))
        g = e.pad(g, dim + 1, 0, step - 1)
        g = e.reshape(g, (*shape[:dim], n * step, *shape[dim + 1 :]))
        if start + n * step > size:
            g = e.slice(g, dim, 0, size - start)
    return e.pad(g, dim, start, size - start - e.shape(g)[dim])


@aten("select.int")
def select(e: Emit, x: str, dim: int, index: int) -> str:
    dim = e.dim(x, dim)
    index = index % e.shape(x)[dim]
    return e.reshape(e.slice(x, dim, index, index + 1), e.result[0].shape)


@aten("select_backward.default")
def select_backward(e: Emit, g: str, sizes: Sequence[int], dim: int, index: int) -> str:
    dim = dim % len(sizes)
    index = index % sizes[dim]
    line = e.reshape(g, [1 if i == dim else n for i, n in enumerate(sizes)])
    return e.pad(line, dim, index, sizes[dim] - index - 1)


@aten("split.Tensor")
def split(e: Emit, x: str, size: int, dim: int = 0) -> tuple[str, ...]:
    dim = e.dim(x, dim)
    extent = e.shape(x)[dim]
    return tuple(e.slice(x, dim, i, min(i + size, extent)) for i in range(0, extent, size))


@aten("split_with_sizes.default")
def split_with_sizes(e: Emit, x: str, sizes: Sequence[int], dim: int = 0) -> tuple[str, ...]:
    out: list[str] = []
    start = 0
    for size in sizes:
        out.append(e.slice(x, dim, start, start + size))
        start += size
    return tuple(out)


@aten("unbind.int")
def unbind(e: Emit, x: str, dim: int = 0) -> tuple[str, ...]:
    dim = e.dim(x, dim)
    rest = tuple(n for i, n in enumerate(e.shape(x)) if i != dim)
    return tuple(e.reshape(e.slice(x, dim, i, i + 1), rest) for i in range(e.shape(x)[dim]))


@aten("cat.default")
def cat(e: Emit, parts: Sequence[str], dim: int = 0) -> str:
    """Tensors of shape (0,) are left out, whatever the others are."""
    parts = [p for p in parts if e.shape(p) != (0,)] or parts[:1]
    parts = [e.cast(p, e.result[0].dtype) if e.result else p for p in parts]
    return e.concat(parts, e.dim(parts[0], dim))


@aten("constant_pad_nd.default")
def constant_pad_nd(e: Emit, x: str, pads: Sequence[int], value: Any = 0) -> str:
    """Negative pads cut; a value other than 0 is joined as a constant."""
    rank = len(e.shape(x))
    for i in range(0, len(pads), 2):
        dim, lo, hi = rank - 1 - i // 2, pads[i], pads[i + 1]
        extent = e.shape(x)[dim]
        x = e.slice(x, dim, max(0, -lo), extent - max(0, -hi))
        lo, hi = max(lo, 0), max(hi, 0)
        if value == 0 and e.type(x).dtype != "bool":
            x = e.pad(x, dim, lo, hi)
            continue
        shape = e.shape(x)
        ends = [(*shape[:dim], n, *shape[dim + 1 :]) for n in (lo, hi)]
        parts = [e.full(value, s, e.type(x).dtype) for s in ends]
        x = e.concat([p for p, n in ((parts[0], lo), (x, 1), (parts[1], hi)) if n], dim)
    return x


@aten("cumsum.default")
def cumsum(e: Emit, x: str, dim: int, dtype: Any = None) -> str:
    return e.add("cumsum", e.cast(x, e.result[0].dtype), dim=e.dim(x, dim))


@aten("flip.default")
def flip(e: Emit, x: str, dims: Sequence[int]) -> str:
    for dim in dims:
        x = e.add("flip", x, dim=e.dim(x, dim))
    return x


@aten("tril.default", "triu.default")
def triangle(e: Emit, x: str, diagonal: int = 0) -> str:
    """The elements with row + diagonal >= column, or <=; zeros elsewhere."""
    kept = "ge" if e.op == "tril" else "le"
    *_, rows, columns = e.shape(x)
    row = e.shift(e.iota((rows, 1), 0), diagonal)
    return e.add("where", e.add(kept, row, e.iota((1, columns), 1)), x, e.operand(0, x))


@aten("sum.dim_IntList", "sum.default", "mean.dim", "mean.default")
def total(e: Emit, x: str, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> str:
    over = e.sum if e.op == "sum" else e.mean
    return over(e.cast(x, e.result[0].dtype), e.dims(x, dims), keepdim)


@aten("logsumexp.default")
def logsumexp(e: Emit, x: str, dims: Sequence[int], keepdim: bool = False) -> str:
    return e.add("log", e.sum(e.add("exp", x), e.dims(x, list(dims)), keepdim))


@aten("logaddexp.default")
def logaddexp(e: Emit, a: str, b: str) -> str:
    return e.add("log", e.add("add", e.add("exp", a), e.add("exp", b)))


@aten("amax.default", "amin.default", "max.default", "min.default")
def extreme(e: Emit, x: str, dims: Any = (), keepdim: bool = False) -> str:
    over = e.dims(x, list(dims))
    if e.op in ("amax", "max"):
        return e.add("amax", x, dims=over, keepdim=keepdim)
    return e.add("neg", e.add("amax", e.add("neg", x), dims=over, keepdim=keepdim))


@aten("cumprod.default")
def cumprod(e: Emit, x: str, dim: int, dtype: Any = None) -> str:
    """By doubling: after each step, the product of twice as many entries up to each one."""
    x, dim = e.cast(x, e.result[0].dtype), e.dim(x, dim)
    step, n = 1, e.shape(x)[dim]
    while step < n:
        shape = [step if d == dim else k for d, k in enumerate(e.shape(x))]
        ones = e.full(1, shape, e.type(x).dtype)
        x = e.add("mul", x, e.concat([ones, e.slice(x, dim, 0, n - step)], dim))
        step *= 2
    return x


@aten("prod.default", "prod.dim_int")
def prod(e: Emit, x: str, dim: int | None = None, keepdim: bool = False, dtype: Any = None) -> str:
    """By halves."""
    x = e.cast(x if dim is not None else e.reshape(x, (-1,)), e.result[0].dtype)
    dim = e.dim(x, dim or 0)
    while (n := e.shape(x)[dim]) > 1:
        half = e.add("mul", e.slice(x, dim, 0, n // 2), e.slice(x, dim, n // 2, n // 2 * 2))
        x = e.concat([half, e.slice(x, dim, n - 1, n)], dim) if n % 2 else half
    return e.reshape(x, e.result[0].shape)


@aten("var.correction", "var_mean.correction")
def var(e: Emit, x: str, dims: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
    over = e.dims(x, dims)
    count = math.prod(e.shape(x)[d] for d in over) - fraction(
        1 if correction is None else correction
    )
    if count <= 0:
        raise NotImplementedError("a variance of no more entries than its correction")
    centred = e.add("sub", x, e.mean(x, over, keepdim=True))
    total = e.sum(e.add("mul", centred, centred), over, keepdim)
    variance = e.scale(total, 1 / count)
    return variance if len(e.result) == 1 else (variance, e.mean(x, over, keepdim))
