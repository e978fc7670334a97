"""Losses. Labels that name no class (the ignored index) count for nothing."""

from typing import Any

from shardproof.synthesis.frontends.torch.aten.table import Emit, aten

MEAN, SUM = 1, 2


def _valid(e: Emit, labels: str, ignore: int) -> str:
    return e.add("ne", labels, e.full(ignore, (), e.type(labels).dtype))


def _classes(e: Emit, labels: str, ignore: int, classes: int) -> str:
    """`labels`, those that are ignored as the first class, where they may name none."""
    if e.beside(labels) != ignore and ignore < classes:
        return labels
    return e.add("where", _valid(e, labels, ignore), labels, e.full(0, (), e.type(labels).dtype))


def _masked(e: Emit, values: str, labels: str, classes: int, ignore: int) -> str:
    """`values` with zeros at ignored labels. A negative index reads 0 anyway."""
    if ignore < 0 and e.beside(labels) != ignore:
        return values
    return e.add("where", _valid(e, labels, ignore), values, e.full(0, (), e.type(values).dtype))


def _count(e: Emit, labels: str, ignore: int, dtype: str) -> str:
    """How many labels are valid. Where no negative label is there, no negative one is ignored:
    this is said of a table of labels on every rank alike, whichever part of it a rank has."""
    least = e.least(labels)
    if ignore < 0 and least is not None and least >= 0:
        return e.full(e.type(labels).size, (), dtype)
    return e.sum(e.cast(_valid(e, labels, ignore), dtype), (0,))


def _over(e: Emit, total: str, count: str) -> str:
    number = e.constant(count)
    return e.scale(total, 1 / number) if number else e.add("div", total, count)


def _weighed(e: Emit, lines: str, labels: str, weight: str | None, ignore: int) -> str:
    """Lines times the weights of their classes."""
    if weight is None:
        return lines
    return e.add("mul", lines, _weights(e, labels, weight, ignore))


def _weights(e: Emit, labels: str, weight: str, ignore: int) -> str:
    (classes,) = e.shape(weight)
    taken = e.add("take", weight, _classes(e, labels, ignore, classes), dim=0)
    return _masked(e, taken, labels, classes, ignore)


@aten("nll_loss_forward.default")
def nll_loss_forward(
    e: Emit, x: str, labels: str, weight: str | None, reduction: int, ignore: int
) -> tuple[str, str]:
    """x: log-probabilities [n, classes], labels: [n]. The count of valid labels is a sum, as that
    of the weights of their classes is."""
    if len(e.shape(x)) != 2:
        raise NotImplementedError("nll_loss without a batch dim")
    n, classes = e.shape(x)
    index = e.reshape(_classes(e, labels, ignore, classes), (n, 1))
    picked = e.add("take_along", x, index, dim=1)
    picked = _masked(e, e.reshape(picked, (n,)), labels, classes, ignore)
    picked = _weighed(e, picked, labels, weight, ignore)
    if weight is None:
        count = _count(e, labels, ignore, e.type(x).dtype)
    else:
        count = e.sum(_weights(e, labels, weight, ignore), (0,))
    if reduction not in (MEAN, SUM):
        return e.add("neg", picked), count
    loss = e.add("neg", e.sum(picked, (0,)))
    return (_over(e, loss, count) if reduction == MEAN else loss), count


@aten("nll_loss_backward.default")
def nll_loss_backward(
    e: Emit,
    g: str,
    x: str,
    labels: str,
    weight: str | None,
    reduction: int,
    ignore: int,
    count: str,
) -> str:
    n, classes = e.shape(x)
    if reduction == MEAN:
        g = _over(e, g, count)
    g = e.add("neg", g)
    lines = g if e.shape(g) == (n,) else e.expand(e.reshape(g, (1,)), (n,))
    lines = _masked(e, _weighed(e, lines, labels, weight, ignore), labels, classes, ignore)
    index = e.reshape(_classes(e, labels, ignore, classes), (n, 1))
    return e.add("put_along", e.reshape(lines, (n, 1)), index, dim=1, size=classes)


def _rows_of_classes(e: Emit, x: str) -> tuple[str, tuple[int, ...]]:
    """[n, classes, ...] as [rows, classes], and the shape with the classes last."""
    moved = e.permute(x, (0, *range(2, len(e.shape(x))), 1))
    return e.reshape(moved, (-1, e.shape(moved)[-1])), e.shape(moved)


@aten("nll_loss2d_forward.default")
def nll_loss2d_forward(e: Emit, x: str, labels: str, *given: Any) -> tuple[str, str]:
    """x: log-probabilities [n, classes, h, w], labels: [n, h, w]."""
    rows, _ = _rows_of_classes(e, x)
    loss, count = nll_loss_forward(e, rows, e.reshape(labels, (-1,)), *given)
    return (e.reshape(loss, e.result[0].shape)), count


@aten("nll_loss2d_backward.default")
def nll_loss2d_backward(e: Emit, g: str, x: str, labels: str, *given: Any) -> str:
    rows, moved = _rows_of_classes(e, x)
    lines = g if e.type(g).size == 1 else e.reshape(g, (-1,))
    back = nll_loss_backward(e, lines, rows, e.reshape(labels, (-1,)), *given)
    back = e.reshape(back, moved)
    last = len(moved) - 1
    return e.permute(back, (0, last, *range(1, last)))
