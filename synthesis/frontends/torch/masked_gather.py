"""Reads masked lookups of one rank as lookups through a window of rows.

PyTorch's vocabulary-parallel layers look an index up among their own rows, at a place clipped or
masked into them, and then mask the result to zero outside of them. With `J = ids - offset` wherever
offset <= ids < offset + size, and `size` the extent looked into:

    where(inside, take(x, J), 0)             = take(x, ids, offset)
    inside * take(x, J)                      = take(x, ids, offset), where x has a value throughout
    where(inside, take_along(x, J), 0)       = take_along(x, ids, offset)
    put_along(where(inside, g, 0), J, size)  = put_along(g, ids, size, offset)
    put_along(inside * g, J, size)           = put_along(g, ids, size, offset), where g has values
    put_along(cast(inside), J, size)         = put_along(1, ids, size, offset), also of less these
    cast(J == iota(size)) * cast(inside)     = put_along(1, ids, size, offset)
    index_add(where(inside, g, 0), J, size)  = index_add(g, ids, size, offset)
    index_add(inside * g, J, size)           = index_add(g, ids, size, offset), where g has values,
                                               else + 0 times the sum of its rows

Slices of masks and of indices are those of their operands. An index below 0 counts from the end,
which inside of a window none does. A cross entropy of split rows takes from one entry of each row,
at a place I, what a mask says:

    where(put_along(1, I) > 0, put_along(take_along(x, I) - c, I), x) = x - put_along(c, I), also +
    where(put_along(1, I) > 0, put_along(g, I), 0)                    = put_along(g, I)
    1 - cast(mask)                                                    = where(mask, 0, 1)
    cast(mask) - 1                                                    = where(mask, 0, -1)

Each holds for all values; a pattern that does not match exactly is left as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import permutations

from shardproof.synthesis.frontends.torch.cancelled import TALKING
from shardproof.verifier.analysis.rewrite import Pattern, Rewriting, rewrite
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program

FAR = 2**62
_ENTRIES = ("where", "lt", "ge", "logical_or", "logical_and", "logical_not", "add_scalar")
"""Ops of masks and indices, entry by entry."""


@dataclass(frozen=True)
class Window:
    """Where low <= ids < high: there a mask holds, or an index is ids - offset."""

    ids: str
    low: int = -FAR
    high: int = FAR
    offset: int = 0

    def within(self, other: Window | None) -> Window | None:
        """The part of it that lies in another; None where that is one of other ids."""
        if other is None or other.ids != self.ids:
            return None
        return replace(self, low=max(self.low, other.low), high=min(self.high, other.high))


def read_windows(program: Program) -> Program:
    """The program with its masked lookups written with `offset`."""
    program = rewrite(program, {"slice": _Slices().pushed})
    program = rewrite(program, {"where": _changed_entries, "add_scalar": _complement})
    patterns: dict[str, Pattern] = {"put_along": _masked_put, "index_add": _masked_add}
    patterns |= {
        "where": _masked_lookup,
        "mul": lambda r, n: _masked_lookup(r, n) or _one_hot(r, n),
    }
    return rewrite(program, patterns)


class _Slices:
    """Slices of masks and of integers, each made once."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], str] = {}

    def pushed(self, r: Rewriting, node: Node) -> str | None:
        """The op on slices of which it is a slice."""
        if r.type(node.outputs[0]).is_float or node.where:
            return None
        return self._sliced(r, node.inputs[0], node)

    def _sliced(self, r: Rewriting, name: str, node: Node) -> str:
        key = name, repr(sorted(node.attrs.items()))
        if key not in self._made:
            self._made[key] = self._of(r, name, node)
        return self._made[key]

    def _of(self, r: Rewriting, name: str, node: Node) -> str:
        made, shape = r.made(name, *_ENTRIES), r.type(name).shape
        if made is not None:
            types = [r.type(v) for v in made.inputs]
            if all((t.shape == shape or t.size == 1) and not t.is_float for t in types):
                whole = {v for v, t in zip(made.inputs, types, strict=True) if t.shape == shape}
                parts = [self._sliced(r, v, node) if v in whole else v for v in made.inputs]
                return r.add(made.op, *parts, **made.attrs)
        return r.add("slice", name, **node.attrs)


def _complement(r: Rewriting, node: Node) -> str | None:
    """1 - cast(mask), or that less 1."""
    less, added = r.made(node.inputs[0], "neg"), node.attrs["value"]
    cast = r.made(less.inputs[0] if less is not None else node.inputs[0], "cast")
    kind = r.type(node.outputs[0])
    if cast is None or r.type(cast.inputs[0]).dtype != "bool":
        return None
    sign = 1 if less is not None else -1
    if added != sign:
        return None
    zero, one = (r.add("full", shape=(), value=Fraction(v), dtype=kind.dtype) for v in (0, sign))
    return r.add("where", cast.inputs[0], zero, r.add("expand", one, shape=kind.shape))


def _changed_entries(r: Rewriting, node: Node) -> str | None:
    """A matrix of which one entry of each row changes by something, or is all that is not 0."""
    hit, put, x = node.inputs
    above, into = r.made(hit, "gt"), r.made(put, "put_along")
    hits = r.made(above.inputs[0], "put_along") if above is not None else None
    if above is None or into is None or hits is None or r.number(above.inputs[1]) != 0:
        return None
    lines, dim = r.type(into.inputs[1]).shape, into.number("dim")
    one_a_line = (
        hits.inputs[1] == into.inputs[1]
        and r.number(hits.inputs[0]) == 1
        and hits.number("dim") == dim
        and not any(n.attrs.get("offset", 0) for n in (hits, into))
        and hits.attrs["size"] == into.attrs["size"]
        and lines[dim] == 1
        and r.type(node.outputs[0]).shape == r.type(put).shape == r.type(hit).shape
    )
    if not one_a_line:
        return None
    if r.number(x) == 0:
        return put
    change = r.made(r.through(into.inputs[0], "reshape"), "sub", "add")
    if change is None or r.type(x).shape != r.type(put).shape:
        return None
    orders = [change.inputs, change.inputs[::-1]] if change.op == "add" else [change.inputs]
    for before, by in orders:
        found = r.made(r.through(before, "reshape"), "take_along")
        if (
            found is None
            or found.inputs != (x, into.inputs[1])
            or found.attrs.get("offset", 0)
            or found.number("dim") != dim
        ):
            continue
        if r.type(by).shape != r.type(change.outputs[0]).shape:
            by = r.add("expand", by, shape=r.type(change.outputs[0]).shape)
        by = r.reshape(by, lines)
        return r.add(change.op, x, r.add("put_along", by, into.inputs[1], **into.attrs))
    return None


def _integer(value: Fraction | None) -> int | None:
    return int(value) if value is not None and value.denominator == 1 else None


def _shifted(r: Rewriting, name: str) -> tuple[str, int]:
    """`ids, offset` of a value that is ids - offset."""
    offset, name = 0, r.through(name, "reshape")
    while (node := r.made(name, "add_scalar")) and not r.type(name).is_float:
        step = _integer(Fraction(str(node.attrs["value"])))
        if step is None:
            break
        name, offset = r.through(node.inputs[0], "reshape"), offset - step
    return name, offset


def _window(r: Rewriting, name: str, holds: bool = True) -> Window | None:
    """The window in which a mask of integers holds, or outside of which; one side may be open."""
    name = r.through(name, "reshape")
    node = r.node(name)
    if node is None:
        return None
    if node.op == "logical_not":
        return _window(r, node.inputs[0], not holds)
    if node.op == ("logical_and" if holds else "logical_or"):
        a, b = (_window(r, v, holds) for v in node.inputs)
        return a.within(b) if a is not None else None
    limit = _integer(r.number(node.inputs[1])) if node.op in ("ge", "lt") else None
    if limit is None or r.type(node.inputs[0]).shape != r.type(name).shape:
        return None
    ids, offset = _shifted(r, node.inputs[0])
    limit += offset
    return Window(ids, low=limit) if (node.op == "ge") == holds else Window(ids, high=limit)


def _kept(r: Rewriting, node: Node) -> tuple[str, Window, str] | None:
    """`mask, window, value` of what is a value in the window and 0 elsewhere, and has a value
    there."""
    found = _read(r, node)
    # what has no value has none times 0 either
    return None if found is None or (node.op == "mul" and not _total(r, found[2])) else found


def _read(r: Rewriting, node: Node) -> tuple[str, Window, str] | None:
    """The same, of what may have no value elsewhere where it is a product."""
    if node.op == "mul":
        return next(filter(None, (_factor(r, *pair) for pair in permutations(node.inputs))), None)
    if node.op == "cast":
        mask, kind = node.inputs[0], r.type(node.outputs[0])
        window = _window(r, mask) if r.type(mask).dtype == "bool" else None
        if window is None:
            return None
        return mask, window, r.add("full", shape=(), value=Fraction(1), dtype=kind.dtype)
    mask, a, b = node.inputs
    bare = r.through(mask, "reshape")
    if r.number(b) == 0:
        window, value = _window(r, bare), a
    elif r.number(a) == 0:
        window, value = _window(r, bare, False), b
    else:
        return None
    return None if window is None else (mask, window, value)


def _factor(r: Rewriting, value: str, factor: str) -> tuple[str, Window, str] | None:
    mask = r.through(factor, "expand", "cast")
    window = _window(r, mask) if r.type(mask).dtype == "bool" else None
    return None if window is None else (mask, window, value)


def _total(r: Rewriting, name: str) -> bool:
    """Whether a value is defined whatever the inputs are, by ops of this rank alone."""
    seen, left = set[str](), [name]
    while left:
        node = r.node(left.pop())
        if node is None or node.outputs[0] in seen:
            continue
        op = lookup(node.op)
        if op.traits.needs or op.kind in TALKING or node.body is not None:
            return False
        seen |= set(node.outputs)
        left += node.inputs
    return True


def _place(r: Rewriting, name: str) -> Window:
    """What an index is inside of some window."""
    name = r.through(name, "reshape")
    node = r.node(name)
    if node is not None and node.op in ("maximum", "minimum"):
        limit = _integer(r.number(node.inputs[1]))
        if limit is not None:
            inner = _place(r, node.inputs[0])
            limit += inner.offset
            if node.op == "maximum":
                return replace(inner, low=max(inner.low, limit))
            return replace(inner, high=min(inner.high, limit + 1))
    if node is not None and node.op == "where":
        mask, masked, others = node.inputs
        below = r.made(mask, "lt")
        if below is not None and below.inputs[0] == others and r.number(below.inputs[1]) == 0:
            inner = _place(r, others)
            return replace(inner, low=max(inner.low, inner.offset))
        for holds, number, inside in ((False, masked, others), (True, others, masked)):
            inner = _place(r, inside).within(_window(r, mask, holds))
            if inner is not None and r.number(number) is not None:
                return inner
    ids, offset = _shifted(r, name)
    return Window(ids, offset=offset)


def is_among(r: Rewriting, index: str, size: int) -> bool:
    """Whether an index is one of so many rows for all values: it is shifted inside of a window of
    them, and a number elsewhere."""
    node = r.made(r.through(index, "reshape"), "where")
    if node is None:
        return False
    mask, *sides = node.inputs
    for holds, (number, others) in zip((False, True), (sides, sides[::-1]), strict=True):
        elsewhere, window = _integer(r.number(number)), _window(r, mask, holds)
        ids, offset = _shifted(r, others)
        if elsewhere is None or window is None or not 0 <= elsewhere < size:
            continue
        alike = {r.type(v).size for v in (mask, ids, index)}
        inside = offset <= window.low and window.high <= offset + size
        if window.ids == ids and len(alike) == 1 and inside:
            return True
    return False


def _agrees(r: Rewriting, window: Window, index: str, size: int) -> Window | None:
    """The place that `index` is throughout `window`, if the window is all of its `size` rows."""
    place = _place(r, index)
    fits = (
        window.ids == place.ids
        and r.type(place.ids).size == r.type(index).size
        and (window.low, window.high) == (place.offset, place.offset + size)
        and place.low <= window.low
        and window.high <= place.high
    )
    return place if fits else None


def _masked_lookup(r: Rewriting, node: Node) -> str | None:
    kept = _kept(r, node)
    if kept is None:
        return None
    mask, window, value = kept
    lookup = r.node(r.through(value, "reshape"))
    if lookup is None or lookup.op not in ("take", "take_along") or lookup.attrs.get("offset", 0):
        return None
    x, index = lookup.inputs
    dim = lookup.number("dim")
    bare = r.through(index, "reshape")
    place = _agrees(r, window, bare, r.type(x).shape[dim])
    if place is None:
        return None
    shape, lines = r.type(node.outputs[0]).shape, r.type(index).shape
    if lookup.op == "take":
        rest = (1,) * (len(shape) - len(lines))
        masked = value == lookup.outputs[0] and r.type(mask).shape == (*lines, *rest)
        fits = masked and dim == 0 and shape == r.type(value).shape
    else:
        fits = shape == r.type(value).shape == r.type(mask).shape
    if not fits:
        return None
    ids = r.reshape(place.ids, lines)
    found = r.add(lookup.op, x, ids, dim=dim, offset=place.offset)
    return r.reshape(found, shape)


def _masked_put(r: Rewriting, node: Node) -> str | None:
    g, index = node.inputs
    bare = r.through(g, "reshape")
    less = r.made(bare, "neg")
    source = r.node(bare if less is None else r.through(less.inputs[0], "reshape"))
    if source is None or source.op not in ("where", "cast", "mul") or node.attrs.get("offset", 0):
        return None
    kept = _kept(r, source)
    if kept is None:
        return None
    mask, window, value = kept
    size, dim = node.attrs["size"], node.attrs["dim"]
    assert isinstance(size, int)
    place = _agrees(r, window, r.through(index, "reshape"), size)
    shape = r.type(source.outputs[0]).shape
    if place is None or r.type(mask).shape != shape:
        return None
    if r.type(value).shape != shape:
        value = r.add("expand", value, shape=shape)
    lines = r.type(g).shape
    ids = r.reshape(place.ids, lines)
    values = r.reshape(value if less is None else r.add("neg", value), lines)
    return r.add("put_along", values, ids, dim=dim, size=size, offset=place.offset)


def _one_hot(r: Rewriting, node: Node) -> str | None:
    """One-hot rows of what lies in a window, and rows of zeros elsewhere."""
    kind = r.type(node.outputs[0])
    for hot, inside in permutations(node.inputs):
        hit, mask = r.made(r.through(hot, "cast"), "eq"), r.through(inside, "cast")
        if hit is None or r.type(mask).dtype != "bool":
            continue
        index, count = hit.inputs
        rows, line = r.type(index).shape, r.made(count, "iota")
        dim, size = len(rows) - 1, kind.shape[-1]
        window = _window(r, mask)
        if (
            line is None
            or window is None
            or rows != (*kind.shape[:-1], 1)
            or r.type(mask).shape != rows
            or r.type(count).shape != (size,)
            or line.attrs.get("offset", 0)
        ):
            continue
        place = _agrees(r, window, r.through(index, "reshape"), size)
        if place is None:
            continue
        one = r.add("full", shape=(), value=Fraction(1), dtype=kind.dtype)
        values, ids = r.add("expand", one, shape=rows), r.reshape(place.ids, rows)
        return r.add("put_along", values, ids, dim=dim, size=size, offset=place.offset)
    return None


def _masked_add(r: Rewriting, node: Node) -> str | None:
    g, index = node.inputs
    source = r.made(g, "where", "mul")
    if source is None or node.attrs.get("offset", 0):
        return None
    kept = _read(r, source)
    if kept is None:
        return None
    mask, window, value = kept
    size = node.number("size")
    place = _agrees(r, window, r.through(index, "reshape"), size)
    lines, shape = r.type(index).shape, r.type(g).shape
    rest = (1,) * (len(shape) - len(lines))
    if place is None or r.type(mask).shape != (*lines, *rest):
        return None
    if r.type(value).shape != shape:
        value = r.add("expand", value, shape=shape)
    ids = r.reshape(place.ids, lines)
    added = r.add("index_add", value, ids, size=size, offset=place.offset)
    if source.op != "mul" or _total(r, value):
        return added
    rows = r.add("sum", value, dims=tuple(range(len(lines))), keepdim=False)
    return r.add("add", added, r.add("mul_scalar", rows, value=Fraction(0)))
