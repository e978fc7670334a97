"""Embeddings, gathers and scatters."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import numpy as np

from shardproof.synthesis.frontends.torch.aten.table import Emit, aten
from shardproof.synthesis.frontends.torch.aten.views import slice_scatter
from shardproof.verifier.kernel.program.registry import traits
from shardproof.verifier.kernel.program.types import FLOATS


def _rows_in_order(e: Emit, ids: str, size: int) -> tuple[int, int] | None:
    """(first, last + 1) where `ids` counts up through rows of a table, as positions do."""
    ramp = e.ramp(ids)
    if ramp is None:
        return None
    first, stop = ramp, ramp + e.type(ids).size
    return (first, stop) if first >= 0 and stop <= size else None


@aten("embedding.default")
def embedding(e: Emit, weight: str, ids: str, *_: Any) -> str:
    rows = _rows_in_order(e, ids, e.shape(weight)[0])
    if rows is not None:
        return e.reshape(e.slice(weight, 0, *rows), (*e.shape(ids), e.shape(weight)[1]))
    return e.add("take", weight, ids, dim=0)


@aten("embedding_dense_backward.default")
def embedding_dense_backward(
    e: Emit, g: str, ids: str, size: int, padding: int, scale_by_freq: bool
) -> str:
    if scale_by_freq:
        raise NotImplementedError("embedding with scale_grad_by_freq")
    if 0 <= padding < size:
        keep = e.add("ne", ids, e.full(padding, (), e.type(ids).dtype))
        keep = e.reshape(keep, (*e.shape(ids), 1))
        g = e.add("where", keep, g, e.full(0, (), e.type(g).dtype))
    rows = _rows_in_order(e, ids, size)
    if rows is not None:
        lines = e.reshape(g, (e.type(ids).size, e.shape(g)[-1]))
        return e.pad(lines, 0, rows[0], size - rows[1])
    return e.add("index_add", g, ids, size=size)


@aten("index_select.default")
def index_select(e: Emit, x: str, dim: int, ids: str) -> str:
    return e.add("take", x, ids, dim=e.dim(x, dim))


@aten("index.Tensor", "_unsafe_index.Tensor")
def index(e: Emit, x: str, ids: Sequence[str | None]) -> str:
    """Index tensors on some of the dims. Where the first counts through the lines of a dim, every
    line has entries of its own; else the dims are taken as one."""
    rows = _entries_of_lines(e, x, ids)
    if rows is not None:
        return rows.read(e, x, e.result[0].shape)
    x, dim, rows, _ = _one_dim(e, x, _without_whole(e, x, ids))
    lines = _constant_lines(e, rows, e.shape(x)[dim])
    if lines is not None:
        part = e.slice(x, dim, *lines)
        shape = e.shape(x)
        return e.reshape(part, (*shape[:dim], *e.shape(rows), *shape[dim + 1 :]))
    return e.add("take", x, from_start(e, rows, e.shape(x)[dim]), dim=dim)


def _without_whole(e: Emit, x: str, ids: Sequence[str | None]) -> Sequence[str | None]:
    """Of indices that lie side by side, the first may count through its dim, along an axis that no
    other has: as `None`, with the others along the axes after it."""
    at = next(d for d, i in enumerate(ids) if i is not None)
    head, *rest = [i for i in ids if i is not None]
    if not rest or None in ids[at : at + len(rest) + 1]:
        return ids
    rank = max(len(e.shape(i)) for i in (head, *rest))
    long, *others = [(*[1] * (rank - len(s)), *s) for s in map(e.shape, (head, *rest))]
    table, *tables = cast(list[Any], [e.table(i) for i in (head, *rest)])
    if table is None or not long[0] == table.size == e.shape(x)[at]:
        return ids
    if any(s[0] != 1 for s in others) or (table.ravel() != np.arange(long[0])).any():
        return ids
    held = zip(rest, tables, (s[1:] for s in others), strict=True)
    moved = [e.reshape(i, s) if t is None else e.held(t.reshape(s)) for i, t, s in held]
    return _without_whole(e, x, (*ids[:at], None, *moved, *ids[at + len(rest) + 1 :]))


def _one_dim(e: Emit, x: str, ids: Sequence[str | None]) -> tuple[str, int, str, tuple[int, ...]]:
    """`x` with the dims that are indexed as one, which dim that is, the index into it, and how the
    dims of `x` were ordered. Dims that do not lie side by side come first, as in PyTorch."""
    given = [(d, i) for d, i in enumerate(ids) if i is not None]
    if any(e.type(i).dtype in ("bool", "u8") for _, i in given):
        raise NotImplementedError("indexing with a mask: what it picks depends on values")
    dims, shape = [d for d, _ in given], e.shape(x)
    rest = [d for d in range(len(shape)) if d not in dims]
    first = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    order = (*rest[:first], *dims, *rest[first:])
    sizes = [shape[d] for d in dims]
    if len(dims) > 1:
        moved = [shape[d] for d in order]
        merged = (*moved[:first], math.prod(sizes), *moved[first + len(dims) :])
        x = e.reshape(e.permute(x, order), merged)
    return x, first, _joined(e, [i for _, i in given], sizes), order


def _joined(e: Emit, ids: Sequence[str], sizes: Sequence[int]) -> str:
    """Several indices, of dims of these sizes, as one into the dims taken together."""
    if len(ids) == 1:
        return ids[0]
    tables: list[Any] = [e.table(i) for i in ids]
    if all(t is not None for t in tables):
        at = cast(Any, np.zeros((), np.int64))
        for t, n in zip(tables, sizes, strict=True):
            at = cast(Any, at * n + np.where(t < 0, t + n, t))
        return e.held(at)
    out = from_start(e, ids[0], sizes[0])
    for i, n in zip(ids[1:], sizes[1:], strict=True):
        line = e.add("mul", out, e.full(n, (), e.type(out).dtype))
        out = e.add("add", line, from_start(e, i, n))
    return out


@dataclass(frozen=True)
class _Entries:
    """Of each line along dim 0, entries along dim 1: `columns` [lines, entries]."""

    columns: str

    def read(self, e: Emit, x: str, shape: Sequence[int]) -> str:
        return e.reshape(e.add("take_along", x, self._over(e, x), dim=1), shape)

    def _over(self, e: Emit, x: str) -> str:
        rest = e.shape(x)[2:]
        narrow = e.reshape(self.columns, (*e.shape(self.columns), *(1 for _ in rest)))
        return e.expand(narrow, (*e.shape(self.columns), *rest))

    def put(self, e: Emit, x: str, value: str, accumulate: bool) -> str:
        """`x` with values added to, or put in, these entries. Only of a single one a line no two
        can be one."""
        ids = self._over(e, x)
        if not accumulate and e.shape(ids)[1] != 1:
            raise NotImplementedError("writing at indices that may meet")
        size = e.shape(x)[1]
        moved = e.add("put_along", e.reshape(value, e.shape(ids)), ids, dim=1, size=size)
        if accumulate:
            return moved if e.is_zero(x) else e.add("add", x, moved)
        return e.add("where", hit(e, ids, 1, e.shape(x)), moved, x)


def put(e: Emit, source: str, ids: str, dim: int, shape: tuple[int, ...]) -> str:
    """A tensor of `shape` with what an index sends along `dim`, summed where it meets, zeros
    elsewhere. The index may be shorter along other dims: it reaches the first lines there, from
    the first of the source."""
    source = _first(e, source, e.shape(ids))
    moved = e.add("put_along", source, ids, dim=dim, size=shape[dim])
    for d, extent in enumerate(e.shape(moved)):
        moved = e.pad(moved, d, 0, shape[d] - extent)
    return moved


def _first(e: Emit, x: str, shape: Sequence[int]) -> str:
    """The first so many entries along each dim."""
    for d, (held, extent) in enumerate(zip(e.shape(x), shape, strict=True)):
        if held > extent:
            x = e.add("slice", x, dim=d, start=0, stop=extent, step=1)
    return x


def hit(e: Emit, ids: str, dim: int, shape: tuple[int, ...]) -> str:
    """Which places of a tensor of `shape` an index along `dim` names."""
    ones = put(e, e.full(1, e.shape(ids), "i64"), ids, dim, shape)
    return e.add("gt", ones, e.full(0, (), "i64"))


def _entries_of_lines(e: Emit, x: str, ids: Sequence[str | None]) -> _Entries | None:
    """Of `x[lines, columns]`, where `lines` counts up through all of dim 0."""
    if len(ids) != 2 or ids[0] is None or ids[1] is None or len(e.shape(x)) < 2:
        return None
    lines, columns = ids[0], ids[1]
    count, size = e.shape(x)[:2]
    rank = max(len(e.shape(lines)), len(e.shape(columns)))
    shape = e.shape(columns)
    along = e.type(lines).size == count and len(e.shape(lines)) == rank and len(shape) == rank
    first = along and e.shape(lines)[0] == count and shape[0] == count
    if not first or e.ramp(lines) != 0 or e.type(columns).dtype == "bool":
        return None
    return _Entries(e.reshape(from_start(e, columns, size), (count, -1)))


def _constant_lines(e: Emit, ids: str, size: int) -> tuple[int, int] | None:
    """(first, last + 1) where `ids` is one constant, from the end if below 0, or counts up."""
    value = e.constant(ids)
    if value is not None and e.type(ids).size == 1 and value.denominator == 1:
        at = int(value) + (size if value < 0 else 0)
        return (at, at + 1) if 0 <= at < size else None
    return _rows_in_order(e, ids, size)


def from_start(e: Emit, ids: str, size: int) -> str:
    """An index whose negative entries, which count from the end, are counted from the start."""
    held = e.consts.get(ids)
    if held is not None:
        return ids if held.min(initial=0) >= 0 else e.held(np.where(held < 0, held + size, held))
    if _not_negative(e, ids):
        return ids
    below = e.add("lt", ids, e.full(0, (), e.type(ids).dtype))
    return e.add("where", below, e.shift(ids, size), ids)


def _not_negative(e: Emit, x: str) -> bool:
    """Whether integers are from 0 on by the ops that made them. Integer inputs are, by contract."""
    made = e.made(x)
    if made is None:
        if x in e.consts:
            return bool(e.consts[x].min(initial=0) >= 0)
        e.notes.add("Integer inputs that are used as an index are not below 0.")
        return True
    if e.type(x).dtype in ("bool", "u8") or made.op in ("topk_index", "eq", "lt"):
        return True
    if made.op == "iota":
        return isinstance(made.attrs["offset"], int) and made.attrs["offset"] >= 0
    if made.op == "full":
        return isinstance(made.attrs["value"], Fraction) and made.attrs["value"] >= 0
    if made.op == "cast" and e.type(made.inputs[0]).is_float:
        return False
    if made.op == "maximum":
        return any(_not_negative(e, v) for v in made.inputs)
    if made.op == "where":
        mask, masked, others = made.inputs
        kept = _holds_below(e, mask, others) or _not_negative(e, others)
        return kept and _not_negative(e, masked)
    known = traits(made.op)
    kept = made.inputs[: known.index]
    return known.keeps is not None and all(_not_negative(e, v) for v in kept)


def _holds_below(e: Emit, mask: str, x: str) -> bool:
    """Whether a mask holds wherever `x` is below 0, by the comparisons that it is made of."""
    made = e.made(mask)
    if made is None:
        return False
    if made.op == "logical_or":
        return any(_holds_below(e, v, x) for v in made.inputs)
    limit = e.constant(made.inputs[1]) if made.op == "lt" else None
    return limit is not None and limit >= 0 and made.inputs[0] == x


def _places_of(e: Emit, x: str, k: int, dim: int, largest: bool = True) -> str:
    """Where the `k` largest entries, or least, are; integers are reals as they are."""
    x = x if e.type(x).is_float else e.cast(x, "f64")
    return e.add("topk_index", x if largest else e.add("neg", x), k=k, dim=dim)


@aten("topk.default")
def topk(
    e: Emit, x: str, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[str, str]:
    """Values and indices. Which of several equal entries is taken, PyTorch leaves open."""
    dim = e.dim(x, dim)
    e.notes.add(
        f"Among equal entries {e.op} takes the one of lower index first, on every device; "
        "PyTorch leaves open which it takes, and without `sorted` in which order."
    )
    ids = _places_of(e, x, k, dim, largest)
    return e.add("take_along", x, ids, dim=dim), ids


@aten("sort.default", "sort.stable")
def sort(
    e: Emit, x: str, dim: int = -1, descending: bool = False, *, stable: bool | None = False
) -> tuple[str, str]:
    """Stable in any case."""
    dim = e.dim(x, dim)
    if not stable:
        return topk(e, x, e.shape(x)[dim], dim, descending)
    ids = _places_of(e, x, e.shape(x)[dim], dim, descending)
    return e.add("take_along", x, ids, dim=dim), ids


@aten("max.dim", "min.dim")
def max_dim(e: Emit, x: str, dim: int, keepdim: bool = False) -> tuple[str, str]:
    """Values, and where the first of them stand."""
    dim, shape = e.dim(x, dim), e.result[0].shape
    ids = _places_of(e, x, 1, dim, e.op == "max")
    if e.op == "max" and e.type(x).is_float:
        return e.add("amax", x, dims=(dim,), keepdim=keepdim), e.reshape(ids, shape)
    return e.reshape(e.add("take_along", x, ids, dim=dim), shape), e.reshape(ids, shape)


@aten("argmax.default", "argmin.default")
def argmax(e: Emit, x: str, dim: int | None = None, keepdim: bool = False) -> str:
    """Where the first of the largest entries stands; without a dim, in the flat tensor."""
    if dim is None:
        x, dim = e.reshape(x, (-1,)), 0
    ids = _places_of(e, x, 1, e.dim(x, dim), e.op == "argmax")
    return e.reshape(ids, e.result[0].shape)


@aten("scatter.src")
def scatter(e: Emit, x: str, dim: int, ids: str, source: str) -> str:
    """At places of which no two are one: those of a topk, or one on each line."""
    made, dim = e.made(ids), e.dim(x, dim)
    found = made is not None and made.op == "topk_index" and made.attrs["dim"] == dim
    if not (found or e.shape(ids)[dim] == 1):
        raise NotImplementedError("values scattered where two may meet")
    moved = put(e, source, ids, dim, e.shape(x))
    return moved if e.is_zero(x) else e.add("where", hit(e, ids, dim, e.shape(x)), moved, x)


@aten("scatter.value")
def scatter_value(e: Emit, x: str, dim: int, ids: str, value: Any) -> str:
    """One number, wherever an index points: how often it does makes no difference."""
    dim, dtype = e.dim(x, dim), e.type(x).dtype
    return e.add("where", hit(e, ids, dim, e.shape(x)), e.full(value, (), dtype), x)


@aten("gather.default")
def gather(e: Emit, x: str, dim: int, ids: str, **_: Any) -> str:
    """An index may be shorter along other dims: it is of the first lines there."""
    dim = e.dim(x, dim)
    held = [e.shape(x)[d] if d == dim else n for d, n in enumerate(e.shape(ids))]
    return e.add("take_along", _first(e, x, held), ids, dim=dim)


@aten("scatter_add.default")
def scatter_add(e: Emit, x: str, dim: int, ids: str, source: str) -> str:
    dim = e.dim(x, dim)
    moved = put(e, source, ids, dim, e.shape(x))
    return moved if e.is_zero(x) else e.add("add", x, moved)


@aten("index_put.default", "_unsafe_index_put.default")
def index_put(
    e: Emit, x: str, ids: Sequence[str | None], value: str, accumulate: bool = False
) -> str:
    """One number where a mask over the leading dims holds; else lines at indices."""
    mask = ids[0]
    if len(ids) == 1 and mask is not None and e.type(mask).dtype == "bool":
        return _put_under(e, x, mask, value, accumulate)
    rows = _entries_of_lines(e, x, ids)
    if rows is not None:
        wide = np.broadcast_shapes(*(e.shape(i) for i in ids if i is not None))
        value = e.expand(value, (*wide, *e.shape(x)[2:]))
        return rows.put(e, x, value, accumulate)
    shape = e.shape(x)
    lines, dim, at, order = _one_dim(e, x, ids)
    count = sum(i is not None for i in ids)
    if count == 1:
        return _put_lines(e, x, dim, at, value, accumulate)
    wide = [
        *(shape[d] for d in order[:dim]),
        *e.shape(at),
        *(shape[d] for d in order[dim + count :]),
    ]
    put = _put_lines(e, lines, dim, at, e.expand(value, wide), accumulate)
    moved = e.reshape(put, [shape[d] for d in order])
    return e.permute(moved, [order.index(d) for d in range(len(order))])


def _put_under(e: Emit, x: str, mask: str, value: str, accumulate: bool) -> str:
    if e.type(value).size != 1:
        raise NotImplementedError("writing several numbers under a mask; only one is written")
    value = e.reshape(value, ())
    extra = len(e.shape(x)) - len(e.shape(mask))
    mask = e.reshape(mask, (*e.shape(mask), *(1,) * extra))
    return e.add("where", mask, e.add("add", x, value) if accumulate else value, x)


def _put_lines(e: Emit, x: str, dim: int, ids: str, value: str, accumulate: bool) -> str:
    """`x` with lines of `value` added, or put, where `ids` says."""
    shape, rank = e.shape(x), len(e.shape(ids))
    value = e.expand(value, (*shape[:dim], *e.shape(ids), *shape[dim + 1 :]))
    lines = _constant_lines(e, ids, shape[dim])
    if lines is not None:
        part = e.reshape(value, (*shape[:dim], lines[1] - lines[0], *shape[dim + 1 :]))
        if accumulate:
            moved = e.pad(part, dim, lines[0], shape[dim] - lines[1])
            return moved if e.is_zero(x) else e.add("add", x, moved)
        return slice_scatter(e, x, part, dim, *lines)
    around = [d for d in range(len(e.shape(value))) if not dim <= d < dim + rank]
    first = e.permute(value, (*range(dim, dim + rank), *around))
    ids = from_start(e, ids, shape[dim])
    moved = e.add("index_add", first, ids, size=shape[dim])
    moved = e.permute(moved, (*range(1, dim + 1), 0, *range(dim + 1, len(shape))))
    if accumulate:
        return moved if e.is_zero(x) else e.add("add", x, moved)
    places = e.table(ids)
    if places is None or len(np.unique(places)) != places.size:
        raise NotImplementedError("writing at an index whose entries may meet")
    kept = np.isin(np.arange(shape[dim]), places, invert=True).astype(np.int64)
    here = e.add("gt", e.held(kept), e.full(0, (), "i64"))
    here = e.reshape(here, (-1, *(1 for _ in shape[dim + 1 :])))
    return e.add("where", here, x, moved)


@aten("index_add.default")
def index_add(e: Emit, x: str, dim: int, ids: str, source: str, *, alpha: Any = 1) -> str:
    return _put_lines(e, x, e.dim(x, dim), e.reshape(ids, (-1,)), e.scale(source, alpha), True)


@aten("scatter_reduce.two")
def scatter_reduce(
    e: Emit, x: str, dim: int, ids: str, source: str, reduce: str, *, include_self: bool = True
) -> str:
    """The sum, the mean, the largest or the smallest of what meets at a place."""
    dim = e.dim(x, dim)
    shape, dtype = e.shape(x), e.type(x).dtype
    if reduce in ("amax", "amin") and dtype in FLOATS:
        sign = 1 if reduce == "amax" else -1
        met = e.scale(_largest(e, e.scale(source, sign), ids, dim, shape), sign)
        if include_self:
            return e.add("maximum" if sign > 0 else "minimum", x, met)
        return e.add("where", hit(e, ids, dim, shape), met, x)
    if reduce not in ("sum", "mean"):
        raise NotImplementedError(f"a scatter that takes the {reduce} of what meets")
    total = put(e, source, ids, dim, shape)
    if include_self:
        total = e.add("add", x, total)
    if reduce == "sum":
        return total if include_self else e.add("where", hit(e, ids, dim, shape), total, x)
    if dtype not in FLOATS:
        raise NotImplementedError("a mean of integers")
    ones = e.full(1, e.shape(ids), dtype)
    count = put(e, ones, ids, dim, shape)
    if include_self:
        return e.add("div", total, e.shift(count, 1))
    least = e.add("maximum", count, e.full(1, (), dtype))
    return e.add("where", hit(e, ids, dim, shape), e.add("div", total, least), x)


def _largest(e: Emit, source: str, ids: str, dim: int, shape: tuple[int, ...]) -> str:
    """The largest of what an index sends to each place of `shape` along `dim`; minus infinity where
    it sends nothing."""
    held = e.shape(ids)
    source, wide = _first(e, source, held), (*held[: dim + 1], 1, *held[dim + 1 :])
    places = e.iota([shape[dim] if d == dim + 1 else 1 for d in range(len(wide))], dim + 1)
    sent = e.add("eq", e.reshape(ids, wide), places)
    nothing = e.full(-math.inf, (), e.type(source).dtype)
    met = e.add("where", sent, e.reshape(source, wide), nothing)
    met = e.add("amax", met, dims=(dim,), keepdim=False)
    for d, extent in enumerate(e.shape(met)):
        if extent < shape[d]:
            rest = [shape[d] - extent if at == d else n for at, n in enumerate(e.shape(met))]
            met = e.concat([met, e.expand(nothing, rest)], d)
    return met
