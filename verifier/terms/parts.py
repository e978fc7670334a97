"""Terms of parts of a tensor, and of what parts make up: slice, concat, pad, flip."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from shardproof.verifier.kernel.program.registry import ONE
from shardproof.verifier.terms.refs import Ref
from shardproof.verifier.terms.rows import mask_window

if TYPE_CHECKING:
    from shardproof.verifier.terms.table import Terms


def sliced(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    (x,) = args
    dim, start, stop, step = (attrs[k] for k in ("dim", "start", "stop", "step"))
    shape = list(t.shape(x))
    if (start, stop, step) == (0, shape[dim], 1):
        return x
    shape[dim] = len(range(start, stop, step))
    term = t[x.id]
    if term.op == "ones":
        return t.full(tuple(shape), x.coef)
    if term.op == "slice" and term.attrs[0] == dim:
        first, by = term.attrs[1], term.attrs[3]
        inner = {"dim": dim, "start": first + start * by, "step": step * by}
        inner["stop"] = first + (stop - 1) * by + 1
        return sliced(t, [Ref(x.coef * term.args[0].coef, term.args[0].id)], inner, dtypes)
    if term.op == "concat" and step == 1:
        return _slice_of_concat(t, x, dim, start, stop, dtypes)
    if term.op == "reshape" and step == 1 and len(shape) == 1:
        rows = _whole_rows(t, Ref(x.coef * term.args[0].coef, term.args[0].id), start, stop)
        if rows is not None:
            return t.reshape(rows, tuple(shape))
    part = mask_window(t, x, dim, range(start, stop, step))
    return part or t.linear("slice", args, (dim, start, stop, step), tuple(shape))


def _whole_rows(t: Terms, x: Ref, start: int, stop: int) -> Ref | None:
    """The rows of a concatenation along its first dim that a slice of it, flattened, is of."""
    term, shape = t[x.id], t.shape(x)
    row = math.prod(shape[1:])
    if term.op != "concat" or term.attrs[0] or not row or start % row or stop % row:
        return None
    return _slice_of_concat(t, x, 0, start // row, stop // row, ["f32"])


def _slice_of_concat(
    t: Terms, x: Ref, dim: int, start: int, stop: int, dtypes: Sequence[str]
) -> Ref:
    """The parts that a contiguous slice meets, each cut to what it meets."""
    term = t[x.id]
    along = term.attrs[0]
    parts: list[Ref] = []
    at = 0
    for part in term.args:
        lo, hi = start, stop
        if dim == along:
            extent = t.shape(part)[dim]
            lo, hi = max(start, at) - at, min(stop, at + extent) - at
            at += extent
        if lo >= hi:
            continue
        cut = sliced(t, [part], {"dim": dim, "start": lo, "stop": hi, "step": 1}, dtypes)
        parts.append(Ref(cut.coef * x.coef, cut.id))
    if not parts:
        shape = [*t.shape(x)]
        shape[dim] = 0
        return t.full(tuple(shape), Fraction(0))
    return concat(t, parts, {"dim": along}, dtypes)


def concat(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    dim = int(attrs["dim"])
    args = _flat(t, args, dim)
    if len(args) == 1:
        return args[0]
    first = t.shape(args[0])
    shape = (*first[:dim], sum(t.shape(a)[dim] for a in args), *first[dim + 1 :])
    pulled = next((a.coef for a in args if a.coef), None)
    if pulled is None:
        return t.full(shape, Fraction(0))
    shares = [ONE if a.coef == pulled else a.coef / pulled for a in args]
    parts = [
        Ref(share, a.id if a.coef else t.ones(t.shape(a)).id)
        for share, a in zip(shares, args, strict=True)
    ]
    return Ref(pulled, t.intern("concat", parts, (dim,), shape).id)


def _flat(t: Terms, args: Sequence[Ref], dim: int) -> list[Ref]:
    """The parts of a concatenation, nested ones opened, adjacent slices of one tensor joined."""
    opened: list[Ref] = []
    for arg in args:
        term = t[arg.id]
        if term.op == "concat" and term.attrs[0] == dim and arg.coef:
            opened += [Ref(arg.coef * p.coef, p.id) for p in term.args]
        elif t.shape(arg)[dim]:
            opened.append(arg)
    out: list[Ref] = []
    for arg in opened or list(args[:1]):
        joined = _adjacent(t, out[-1], arg, dim) if out else None
        if joined is None:
            out.append(arg)
        else:
            out[-1] = joined
    return out


def _adjacent(t: Terms, a: Ref, b: Ref, dim: int) -> Ref | None:
    """One slice for two that follow each other in one tensor."""
    left, right = t[a.id], t[b.id]
    if not (left.op == right.op == "slice" and a.coef == b.coef):
        return None
    if left.args != right.args or left.attrs[0] != dim or right.attrs[0] != dim:
        return None
    (_, start, stop, step), (_, begin, end, by) = left.attrs, right.attrs
    if not (step == by == 1 and stop == begin):
        return None
    x = Ref(a.coef * left.args[0].coef, left.args[0].id)
    return sliced(t, [x], {"dim": dim, "start": start, "stop": end, "step": 1}, ["f32"])


def pad(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    (x,) = args
    dim, lo, hi = (int(attrs[k]) for k in ("dim", "lo", "hi"))
    if lo == hi == 0:
        return x
    shape = t.shape(x)
    shape = (*shape[:dim], shape[dim] + lo + hi, *shape[dim + 1 :])
    return t.linear("pad", args, (dim, lo, hi), shape)
