"""Embeddings, gathers and scatters."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from synthesis.frontends.torch.aten.table import Emit, aten
from synthesis.frontends.torch.aten.views import slice_scatter
from verifier.kernel.program.registry import traits


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


@aten("index.Tensor")
def index(e: Emit, x: str, ids: Sequence[str | None]) -> str:
    """One index tensor, on one dim; or of every row the entry that a second one says."""
    given = [(d, i) for d, i in enumerate(ids) if i is not None]
    columns = _entry_of_each_row(e, x, ids)
    if columns is not None:
        return e.reshape(e.add("take_along", x, columns, dim=1), (e.shape(x)[0],))
    if len(given) != 1 or e.type(given[0][1]).dtype == "bool":
        raise NotImplementedError("indexing with a mask or with several tensors at once")
    dim, rows = given[0]
    lines = _constant_lines(e, rows, e.shape(x)[dim])
    if lines is not None:
        part = e.slice(x, dim, *lines)
        shape = e.shape(x)
        return e.reshape(part, (*shape[:dim], *e.shape(rows), *shape[dim + 1 :]))
    return e.add("take", x, from_start(e, rows, e.shape(x)[dim]), dim=dim)


def _entry_of_each_row(e: Emit, x: str, ids: Sequence[str | None]) -> str | None:
    """The columns, a row each, where `x[rows, columns]` of a matrix reads or writes one entry of
    each of its rows in order."""
    if len(e.shape(x)) != 2 or len(ids) != 2 or ids[0] is None or ids[1] is None:
        return None
    rows, columns = ids[0], ids[1]
    count, size = e.shape(x)
    if e.ramp(rows) != 0 or e.shape(rows) != (count,) or e.shape(columns) != (count,):
        return None
    if e.type(columns).dtype == "bool":
        return None
    return e.reshape(from_start(e, columns, size), (count, 1))


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


@aten("topk.default")
def topk(
    e: Emit, x: str, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[str, str]:
    """Values and indices. Which of several equal entries is taken, PyTorch leaves open."""
    dim = e.dim(x, dim)
    e.notes.add(
        "Among equal entries topk takes the one of lower index first, on every device; "
        "PyTorch leaves open which it takes, and without `sorted` in which order."
    )
    ids = e.add("topk_index", x if largest else e.add("neg", x), k=k, dim=dim)
    return e.add("take_along", x, ids, dim=dim), ids


@aten("max.dim", "min.dim")
def max_dim(e: Emit, x: str, dim: int, keepdim: bool = False) -> tuple[str, str]:
    """Values, and where the first of them stand."""
    dim, shape = e.dim(x, dim), e.result[0].shape
    ids = e.add("topk_index", x if e.op == "max" else e.add("neg", x), k=1, dim=dim)
    if e.op == "max" and e.type(x).is_float:
        return e.add("amax", x, dims=(dim,), keepdim=keepdim), e.reshape(ids, shape)
    return e.reshape(e.add("take_along", x, ids, dim=dim), shape), e.reshape(ids, shape)


@aten("argmax.default", "argmin.default")
def argmax(e: Emit, x: str, dim: int | None = None, keepdim: bool = False) -> str:
    """Where the first of the largest entries stands; without a dim, in the flat tensor."""
    if dim is None:
        x, dim = e.reshape(x, (-1,)), 0
    dim = e.dim(x, dim)
    ids = e.add("topk_index", x if e.op == "argmax" else e.add("neg", x), k=1, dim=dim)
    return e.reshape(ids, e.result[0].shape)


@aten("scatter.src")
def scatter(e: Emit, x: str, dim: int, ids: str, source: str) -> str:
    """Into zeros, at places of which no two are one: those of a topk, or one on each line."""
    made, dim = e.made(ids), e.dim(x, dim)
    found = made is not None and made.op == "topk_index" and made.attrs["dim"] == dim
    if not e.is_zero(x) or not (found or e.shape(ids)[dim] == 1):
        raise NotImplementedError("values scattered where two may meet, or not into zeros")
    if e.shape(source) != e.shape(ids):
        raise NotImplementedError("a scatter of a part of the values")
    return e.add("put_along", source, ids, dim=dim, size=e.shape(x)[dim])


@aten("scatter.value")
def scatter_value(e: Emit, x: str, dim: int, ids: str, value: Any) -> str:
    """One number, wherever an index points: how often it does makes no difference."""
    dim, dtype = e.dim(x, dim), e.type(x).dtype
    counts = e.full(1, e.shape(ids), "i64")
    hits = e.add("put_along", counts, ids, dim=dim, size=e.shape(x)[dim])
    hit = e.add("gt", hits, e.full(0, (), "i64"))
    return e.add("where", hit, e.full(value, (), dtype), x)


@aten("gather.default")
def gather(e: Emit, x: str, dim: int, ids: str, **_: Any) -> str:
    return e.add("take_along", x, ids, dim=e.dim(x, dim))


@aten("scatter_add.default")
def scatter_add(e: Emit, x: str, dim: int, ids: str, source: str) -> str:
    dim = e.dim(x, dim)
    moved = e.add("put_along", source, ids, dim=dim, size=e.shape(x)[dim])
    return moved if e.is_zero(x) else e.add("add", x, moved)


@aten("index_put.default")
def index_put(
    e: Emit, x: str, ids: Sequence[str | None], value: str, accumulate: bool = False
) -> str:
    """One number where a mask over the leading dims holds; lines at an index along one dim; or an
    entry of every row."""
    columns = _entry_of_each_row(e, x, ids)
    if columns is not None:
        return _put_in_rows(e, x, columns, value, accumulate)
    given = [(d, i) for d, i in enumerate(ids) if i is not None]
    if len(given) == 1 and e.type(given[0][1]).dtype != "bool":
        return _put_lines(e, x, *given[0], value, accumulate)
    mask = ids[0]
    if len(ids) != 1 or mask is None or e.type(mask).dtype != "bool" or e.type(value).size != 1:
        raise NotImplementedError(
            "writing under a mask or at several indices; only one number under a mask is written"
        )
    value = e.reshape(value, ())
    extra = len(e.shape(x)) - len(e.shape(mask))
    mask = e.reshape(mask, (*e.shape(mask), *(1,) * extra))
    return e.add("where", mask, e.add("add", x, value) if accumulate else value, x)


def _put_in_rows(e: Emit, x: str, columns: str, value: str, accumulate: bool) -> str:
    """`x` with a number added to, or put in, one entry of every row: no two places are one."""
    count, size = e.shape(x)
    value = e.reshape(e.expand(value, (count,)), (count, 1))
    moved = e.add("put_along", value, columns, dim=1, size=size)
    if accumulate:
        return moved if e.is_zero(x) else e.add("add", x, moved)
    ones = e.add("put_along", e.full(1, (count, 1), "i64"), columns, dim=1, size=size)
    return e.add("where", e.add("gt", ones, e.full(0, (), "i64")), moved, x)


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
    if not accumulate:
        raise NotImplementedError("writing at an index that is not constant")
    around = [d for d in range(len(e.shape(value))) if not dim <= d < dim + rank]
    first = e.permute(value, (*range(dim, dim + rank), *around))
    ids = from_start(e, ids, shape[dim])
    moved = e.add("index_add", first, ids, size=shape[dim])
    moved = e.permute(moved, (*range(1, dim + 1), 0, *range(dim + 1, len(shape))))
    return moved if e.is_zero(x) else e.add("add", x, moved)
