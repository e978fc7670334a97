"""Laws of padding, of parts of reshaped tensors, and of marks that are alike all over a part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import prod

from verifier.provers.rewrite.blocks import joined, law, scaled
from verifier.provers.rewrite.views import slice_of_expand
from verifier.terms import ONE, Ref, Term, Terms
from verifier.terms.refs import Shape


@law("padding-is-joining", "padding joins zeros to a tensor")
def _padded(t: Terms, term: Term) -> Ref | None:
    if term.op != "pad":
        return None
    dim, lo, hi = term.attrs

    def zeros(count: int) -> list[Ref]:
        shape = (*term.shape[:dim], count, *term.shape[dim + 1 :])
        return [t.full(shape, Fraction(0))] if count else []

    return joined(t, [*zeros(lo), *term.args, *zeros(hi)], dim)


@law("reshape-of-joined", "whole blocks that are joined stay blocks in another shape")
def _reshaped_concat(t: Terms, term: Term) -> Ref | None:
    if term.op != "reshape" or t[term.args[0].id].op != "concat":
        return None
    inner = t[term.args[0].id]
    found = _across(inner.shape, term.shape, int(inner.attrs[0]))
    if found is None:
        return None
    dim, ratio = found
    along: int = inner.attrs[0]
    parts: list[Ref] = []
    for part in inner.args:
        extent = t.shape(part)[along] * ratio
        if extent.denominator != 1:
            return None
        shape = (*term.shape[:dim], int(extent), *term.shape[dim + 1 :])
        parts.append(t.reshape(part, shape))
    return joined(t, parts, dim)


@law("slice-of-reshape", "whole blocks of a reshaped tensor are blocks of the tensor")
def _slice_of_reshape(t: Terms, term: Term) -> Ref | None:
    if term.op != "slice" or t[term.args[0].id].op != "reshape":
        return None
    inner = t[term.args[0].id]
    dim, start, stop, step = term.attrs
    (x,) = inner.args
    found = _across(inner.shape, t.shape(x), dim)
    if found is None or step != 1:
        return None
    at, ratio = found
    ends = start * ratio, stop * ratio
    if any(end.denominator != 1 for end in ends):
        return None
    attrs = {"dim": at, "start": int(ends[0]), "stop": int(ends[1]), "step": 1}
    return t.reshape(t.apply("slice", [x], attrs, ["f32"]), term.shape)


@law("slice-of-permuted-view", "blocks of a permuted view are those of the view, permuted")
def _slice_of_permuted(t: Terms, term: Term) -> Ref | None:
    if term.op != "slice" or t[term.args[0].id].op != "permute":
        return None
    inner = t[term.args[0].id]
    (view,) = inner.args
    order: tuple[int, ...] = inner.attrs[0]
    dim, start, stop, step = term.attrs
    attrs = {"dim": order[int(dim)], "start": start, "stop": stop, "step": step}
    part = t.apply("slice", [view], attrs, ["f32"])
    rewrite = {"reshape": _slice_of_reshape, "expand": slice_of_expand}.get(t[view.id].op)
    made = rewrite(t, t[part.id]) if rewrite else None
    return None if made is None else t.permute(scaled(made, part.coef), order)


def _across(source: Shape, target: Shape, dim: int) -> tuple[int, Fraction] | None:
    """Where blocks along a dim are found in another shape, and how many entries there are one here.

    The dims fall into groups of equal products; a dim has blocks in the other shape where it leads
    its group.
    """
    for left, right in _groups(source, target):
        if dim not in left:
            continue
        wide, other = ([d for d in g if s[d] != 1] for g, s in ((left, source), (right, target)))
        if not wide or dim != wide[0]:
            return None
        inner, outer = (prod(s[d] for d in g[1:]) for g, s in ((wide, source), (other, target)))
        return other[0], Fraction(inner, outer)
    return None


def _groups(source: Shape, target: Shape) -> list[tuple[list[int], list[int]]]:
    """The finest groups of neighbouring dims, of one product each in both shapes."""
    out: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(source) or j < len(target):
        left, right = ([i], [j]) if i < len(source) and j < len(target) else ([], [])
        if not left:
            left, right = list(range(i, len(source))), list(range(j, len(target)))
        i, j = i + len(left), j + len(right)
        while left and right and (a := _count(source, left)) != (b := _count(target, right)):
            if a < b:
                left.append(i)
                i += 1
            else:
                right.append(j)
                j += 1
        out.append((left, right))
    return out


def _count(shape: Shape, dims: Sequence[int]) -> int:
    return prod(shape[d] for d in dims)


@law("slice-of-ramp", "a part of 0, 1, 2, ... is a ramp of its own, from where it starts")
def _slice_of_ramp(t: Terms, term: Term) -> Ref | None:
    if term.op != "slice" or t[term.args[0].id].op != "ramp":
        return None
    _, start, _, step = term.attrs
    ramp = t.intern("ramp", (), (), term.shape)
    return t.combine([(Fraction(step), ramp), (Fraction(start), t.ones(term.shape))])


@law("order-of-constants", "a comparison of ramps is 0 or 1, all over or in one part and another")
def _compared(t: Terms, term: Term) -> Ref | None:
    if term.op not in ORDERS:
        return None
    a, b = term.args
    gap = t.combine([(ONE, a), (-ONE, b)])
    ends = _ends(t, gap)
    if ends is None:
        return None
    holds, (low, high) = ORDERS[term.op], ends
    if holds(low) == holds(high) and (low == high or low > 0 or high < 0):
        return t.full(term.shape, Fraction(int(holds(low))))
    line = _line(t, gap)
    if line is None:
        return None
    dim, values = line
    dim += len(term.shape) - len(t.shape(gap))
    runs: list[list[int]] = []
    for value in map(int, map(holds, values)):
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    if len(runs) > MAX_RUNS:
        return None
    shapes = [(*term.shape[:dim], n, *term.shape[dim + 1 :]) for _, n in runs]
    parts = [t.full(s, Fraction(value)) for s, (value, _) in zip(shapes, runs, strict=True)]
    return joined(t, parts, dim)


ORDERS: dict[str, Callable[[Fraction], bool]] = {
    "lt": lambda gap: gap < 0,
    "le": lambda gap: gap <= 0,
    "eq": lambda gap: gap == 0,
    "ne": lambda gap: gap != 0,
}
MAX_RUNS = 8
MAX_LINE = 1 << 20


def _line(t: Terms, ref: Ref) -> tuple[int, list[Fraction]] | None:
    """The entries of a constant term that changes along one dim, steadily."""
    term = t[ref.id]
    entries = term.args if term.op == "lin" else (Ref(ONE, ref.id),)
    slope, offset, dim = Fraction(0), Fraction(0), None
    for entry in entries:
        inner = t[entry.id]
        ramp = t[inner.args[0].id] if inner.op == "reshape" else inner
        if inner.op == "ones":
            offset += entry.coef
        elif ramp.op == "ramp" and dim is None and ramp.shape[0] <= MAX_LINE:
            wide = [d for d, n in enumerate(inner.shape) if n != 1]
            if len(wide) != 1 or len(inner.shape) != len(term.shape):
                return None
            dim, slope = wide[0], entry.coef
        else:
            return None
    if dim is None:
        return None
    scale = ref.coef if term.op == "lin" else ONE
    slope = slope if term.op == "lin" else ref.coef
    return dim, [(slope * i + offset) * scale for i in range(term.shape[dim])]


def _ends(t: Terms, ref: Ref) -> tuple[Fraction, Fraction] | None:
    """Between which numbers all entries of a constant term lie; None for a term of inputs."""
    term = t[ref.id]
    if term.op == "ones":
        low, high = ONE, ONE
    elif term.op == "ramp":
        low, high = Fraction(0), Fraction(max(0, term.shape[0] - 1))
    elif term.op in ("lin", "reshape", "expand", "permute", "slice"):
        low, high = Fraction(0), Fraction(0)
        for arg in term.args:
            inner = _ends(t, arg)
            if inner is None:
                return None
            low, high = low + inner[0], high + inner[1]
    else:
        return None
    first, last = sorted((low * ref.coef, high * ref.coef))
    return first, last


@law("choice-by-a-constant", "a choice that is the same everywhere is one of the two")
def _chosen(t: Terms, term: Term) -> Ref | None:
    if term.op != "where" or t[term.args[0].id].op != "ones":
        return None
    cond, a, b = term.args
    return t.fit(a if cond.coef else b, term.shape)
