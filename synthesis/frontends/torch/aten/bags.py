"""Bags of rows of a table: their sum, mean or largest entries."""

from shardproof.synthesis.frontends.torch.aten.indexing import from_start
from shardproof.synthesis.frontends.torch.aten.table import Emit, aten

SUM, MEAN, MAX = range(3)


def _length(e: Emit, ids: str, offsets: str, closed: bool) -> int | None:
    """How many rows every bag has, where that is one number."""
    starts = e.table(offsets)
    if starts is None:
        return None
    count = len(starts) - closed
    total = e.type(ids).size
    length = total // count if count and total % count == 0 else 0
    even = length and all(starts[:count] == range(0, total, length))
    return length if even and (not closed or starts[-1] == total) else None


def _bag_of(e: Emit, ids: str, offsets: str, closed: bool) -> str:
    """Which bag each row is in: how many bags begin at it or before it, less one."""
    total, starts = e.type(ids).size, e.reshape(offsets, (1, -1))
    if closed:
        starts = e.slice(starts, 1, 0, e.shape(starts)[1] - 1)
    begun = e.add("le", starts, e.iota((total, 1), 0, dtype=e.type(offsets).dtype))
    return e.shift(e.sum(e.cast(begun, "i64"), (1,)), -1)


def _counted(e: Emit, ids: str, padding: int, dtype: str) -> str | None:
    """1 for each row that is no padding, else 0."""
    if padding < 0:
        return None
    return e.cast(e.add("ne", ids, e.full(padding, (), e.type(ids).dtype)), dtype)


def _column(e: Emit, x: str) -> str:
    return e.reshape(x, (*e.shape(x), 1))


@aten("_embedding_bag.default", "_embedding_bag_forward_only.default")
def embedding_bag(
    e: Emit,
    weight: str,
    ids: str,
    offsets: str,
    scale_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    factors: str | None = None,
    closed: bool = False,
    padding: int = -1,
) -> tuple[str, None, str | None, str | None]:
    """The bags, the size of each where the mean needs it, and for the largest entries the row of
    the table that each comes from. Which bag a row is in is worked out where it is needed.

    Bags of one length are dims of their own, so that they can be split."""
    if scale_by_freq:
        raise NotImplementedError("embedding_bag with scale_grad_by_freq")
    dtype = e.type(weight).dtype
    bags = e.shape(offsets)[0] - closed
    length = _length(e, ids, offsets, closed)
    bag = _bag_of(e, ids, offsets, closed) if length is None else ""
    rows = e.add("take", weight, from_start(e, ids, e.shape(weight)[0]), dim=0)
    counted = _counted(e, ids, padding, dtype)
    if mode == MAX:
        return _largest(e, rows, ids, bags, length, counted)
    if factors is not None:
        rows = e.add("mul", rows, _column(e, factors))
    if counted is not None:
        rows = e.add("mul", rows, _column(e, counted))
    total = _summed(e, rows, bag, bags, length)
    ones = counted or e.full(1, e.shape(ids), dtype)
    size = (
        e.full(length, (bags,), dtype)
        if length and not counted
        else _summed(e, ones, bag, bags, length)
    )
    if mode == MEAN:
        total = _over(e, total, size)
    return total, None, e.cast(size, "i64") if mode == MEAN else None, None


def _summed(e: Emit, rows: str, bag: str, bags: int, length: int | None) -> str:
    if length is None:
        return e.add("index_add", rows, bag, size=bags)
    return e.sum(e.reshape(rows, (bags, length, *e.shape(rows)[1:])), (1,))


def _over(e: Emit, total: str, size: str) -> str:
    """By the size of a bag; an empty one is 0."""
    number = e.constant(size)
    if number:
        return e.scale(total, 1 / number)
    dtype = e.type(total).dtype
    count = e.add("maximum", e.cast(size, dtype), e.full(1, (), dtype))
    return e.add("div", total, _column(e, count))


def _largest(
    e: Emit, rows: str, ids: str, bags: int, length: int | None, counted: str | None
) -> tuple[str, None, None, str]:
    if length is None or counted is not None:
        raise NotImplementedError("the largest entries of bags of different lengths")
    lines = e.reshape(rows, (bags, length, -1))
    choice = e.add("topk_index", lines, k=1, dim=1)
    found = e.reshape(e.add("take_along", lines, choice, dim=1), (bags, -1))
    wide = e.expand(e.reshape(ids, (bags, length, 1)), e.shape(lines))
    row = e.reshape(e.add("take_along", wide, choice, dim=1), (bags, -1))
    return found, None, None, row


@aten("_embedding_bag_backward.default")
def embedding_bag_backward(
    e: Emit,
    g: str,
    ids: str,
    offsets: str,
    bag: None,
    size: str,
    rows: str | None,
    table: int,
    scale_by_freq: bool,
    mode: int,
    sparse: bool,
    factors: str | None,
    padding: int = -1,
) -> str:
    if sparse:
        raise NotImplementedError("a sparse gradient of embedding_bag; leave out sparse=True")
    if mode == MAX:
        assert rows is not None
        return e.add("put_along", g, rows, dim=0, size=table)
    if mode == MEAN:
        g = _over(e, g, size)
    lines = _lines_of(e, g, ids, offsets)
    if factors is not None:
        lines = e.add("mul", lines, _column(e, factors))
    counted = _counted(e, ids, padding, e.type(g).dtype)
    if counted is not None:
        lines = e.add("mul", lines, _column(e, counted))
    return e.add("index_add", lines, from_start(e, ids, table), size=table)


def _lines_of(e: Emit, g: str, ids: str, offsets: str) -> str:
    """Of each row, what belongs to its bag."""
    closed = e.shape(offsets)[0] != e.shape(g)[0]
    length = _length(e, ids, offsets, closed)
    if length is None:
        return e.add("take", g, _bag_of(e, ids, offsets, closed), dim=0)
    bags, width = e.shape(g)
    wide = e.expand(e.reshape(g, (bags, 1, width)), (bags, length, width))
    return e.reshape(wide, (-1, width))


@aten("_embedding_bag_per_sample_weights_backward.default")
def factors_backward(
    e: Emit,
    g: str,
    weight: str,
    ids: str,
    offsets: str,
    bag: None,
    mode: int,
    padding: int = -1,
) -> str:
    rows = e.add("take", weight, from_start(e, ids, e.shape(weight)[0]), dim=0)
    out = e.sum(e.add("mul", rows, _lines_of(e, g, ids, offsets)), (1,))
    counted = _counted(e, ids, padding, e.type(g).dtype)
    return out if counted is None else e.add("mul", out, counted)
