"""Entries of terms, op by op: what stands at a place, by what stands at places of the operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from shardproof.verifier.kernel.program.registry import traits
from shardproof.verifier.provers.canonical.form import (
    ONE,
    ZERO,
    Body,
    Factor,
    Index,
    Poly,
    ranged,
    rewritten,
)
from shardproof.verifier.provers.canonical.functions import apart, apply, mask_of
from shardproof.verifier.provers.canonical.lookups import (
    index_add,
    integers,
    put_along,
    take,
    take_along,
)
from shardproof.verifier.provers.canonical.tidy import fused, neighbours
from shardproof.verifier.terms import Ref, Term
from shardproof.verifier.terms.defined import rest_of_parts

if TYPE_CHECKING:
    from shardproof.verifier.provers.canonical.keys import Opened, Places

MAX_DEPTH = 100
"""How far down a term is looked for what could be negative in it."""
Rule = Callable[["Opened", Term, "Places"], Poly]


def _shifted(at: Places, dim: int, by: int) -> Places:
    return (*at[:dim], Index(at[dim].offset + by, at[dim].steps), *at[dim + 1 :])


def _var(o: Opened, term: Term, at: Places) -> Poly:
    return o.sums.of(Factor(("var", *term.attrs), at))


def _lin(o: Opened, term: Term, at: Places) -> Poly:
    rank = len(term.shape)
    return o.sums.add(o.entry(a, o.under(a, at, rank)) for a in term.args)


def _prod(o: Opened, term: Term, at: Places) -> Poly:
    out, rank = ONE, len(term.shape)
    for a, power in zip(term.args, term.attrs, strict=True):
        inner = o.terms[a.id]
        if inner.op == "sqrt" and power > 1 and _positive(o, inner.args[0]):
            (under,) = inner.args
            entry = o.entry(under, o.under(under, o.under(a, at, rank), len(inner.shape)))
            for _ in range(power // 2):
                out = o.sums.multiply(out, entry)
            power %= 2
        entry = o.entry(a, o.under(a, at, rank))
        for _ in range(power):
            out = o.sums.multiply(out, entry)
    return out


def _positive(o: Opened, ref: Ref, depth: int = 0) -> bool:
    """Whether no entry is seen to be below 0: only then is the square of its root the entry."""
    found = o.positive.get(ref.id)
    if found is None:
        term, deep = o.terms[ref.id], depth + 1
        known = traits(term.op)
        if term.op == "prod":
            pairs = list(zip(term.args, term.attrs, strict=True))
        else:
            pairs = [(a, 1) for a in term.args]
        found = (
            term.op == "ones"
            or known.sign is not None
            or (term.op == "addend" and term.attrs[-1])
            or rest_of_parts(o.terms.nodes, term)
            or (
                (known.keeps is not None or term.op in ("lin", "prod"))
                and depth < MAX_DEPTH
                and all(power % 2 == 0 or _positive(o, a, deep) for a, power in pairs)
            )
        )
        o.positive[ref.id] = found
    return found and ref.coef >= 0


def _expand(o: Opened, term: Term, at: Places) -> Poly:
    (x,) = term.args
    return o.entry(x, o.under(x, at, len(term.shape)))


def _reshape(o: Opened, term: Term, at: Places) -> Poly:
    (x,) = term.args
    return o.entry(x, o.regrouped(at, term.shape, o.terms.shape(x)))


def _permute(o: Opened, term: Term, at: Places) -> Poly:
    (dims,) = term.attrs
    source = [Index()] * len(dims)
    for place, d in zip(at, dims, strict=True):
        source[d] = place
    return o.entry(term.args[0], tuple(source))


def _along(o: Opened, ref: Ref, at: Places, dims: Sequence[int]) -> tuple[Places, tuple[int, ...]]:
    """The place with new variables along dims that are gone, and these variables."""
    shape = o.terms.shape(ref)
    new = {d: o.space.place(shape[d]) for d in dims}
    rest = iter(at)
    source = tuple(new[d] if d in new else next(rest) for d in range(len(shape)))
    return source, tuple(v for d in dims for v, _ in new[d].steps)


def _sum(o: Opened, term: Term, at: Places) -> Poly:
    source, names = _along(o, term.args[0], at, term.attrs[0])
    return o.sums.summed(o.entry(term.args[0], source), names)


def _amax(o: Opened, term: Term, at: Places) -> Poly:
    source, names = _along(o, term.args[0], at, term.attrs[0])
    entry = o.entry(term.args[0], source)
    asked = mask_of(o.sums, entry)
    if asked is None:
        return _largest(o, entry, names)
    value, strict = asked
    if strict:
        return apply(o.sums, ("lt",), [ZERO, _largest(o, value, names)])
    least = _largest(o, o.sums.scale(value, Fraction(-1)), names)
    return apply(o.sums, ("le",), [o.sums.scale(least, Fraction(-1)), ZERO])


def _largest(o: Opened, poly: Poly, names: tuple[int, ...]) -> Poly:
    """The maximum over variables; what does not depend on them is added to it."""
    moving, fixed = apart(o.sums, poly, names)
    if not moving:
        return fixed
    top = o.sums.of(Factor(("amax",), (), (_body(o, moving, names),)))
    return o.sums.add([top, fixed]) if fixed else top


def _body(o: Opened, poly: Poly, names: tuple[int, ...]) -> Body:
    """An argument that has variables of its own, neighbouring digits as one."""
    own = o.space.digits(names)
    limited = {v for _, m in poly for v in ranged(m)}
    pairs = neighbours(o.space, [m for _, m in poly], set(own) - limited)
    if not pairs:
        return Body(poly, own)
    first, second = pairs[0]
    one = o.space.fresh(o.space.extents[first] * o.space.extents[second])
    made = rewritten(poly, lambda p: fused(o.space, p, first, second, one))
    rest = tuple(one if v == first else v for v in own if v != second)
    return _body(o, made, rest)


def _cumsum(o: Opened, term: Term, at: Places) -> Poly:
    """The sum of the entries up to a place, or before it."""
    dim, exclusive = int(term.attrs[0]), bool(term.attrs[1])
    line = o.space.place(term.shape[dim])
    entry = o.entry(term.args[0], (*at[:dim], line, *at[dim + 1 :]))
    here = o.sums.of(Factor(("ramp",), (at[dim],))) if at[dim].steps else ZERO
    rest = o.sums.constant(Fraction(0 if at[dim].steps else at[dim].offset))
    there = o.sums.of(Factor(("ramp",), (line,))) if line.steps else ZERO
    kept = apply(o.sums, ("lt" if exclusive else "le",), [there, o.sums.add([here, rest])])
    return o.sums.summed(o.sums.multiply(entry, kept, True), [v for v, _ in line.steps])


def _matmul(o: Opened, term: Term, at: Places) -> Poly:
    a, b = term.args
    between = o.space.place(o.terms.shape(a)[-1])
    left = o.entry(a, (*at[:-1], between))
    right = o.entry(b, (*at[:-2], between, at[-1]))
    return o.sums.summed(o.sums.multiply(left, right), [v for v, _ in between.steps])


def _slice(o: Opened, term: Term, at: Places) -> Poly:
    dim, start, _, step = integers(term)
    place = Index(at[dim].offset * step + start, tuple((v, n * step) for v, n in at[dim].steps))
    return o.entry(term.args[0], (*at[:dim], place, *at[dim + 1 :]))


def _within(o: Opened, ref: Ref, at: Places, dim: int, start: int) -> Poly:
    """The entry of a part that stands at `start`, right where a place is in the part.

    It is worked out for an index of the extent of the part, of which no reshape carries.
    """
    extent = o.terms.shape(ref)[dim]
    if extent == 1:
        return o.entry(ref, (*at[:dim], Index(), *at[dim + 1 :]))
    place = at[dim]
    if len(place.steps) != 1 or place.steps[0][1] != 1 or place.steps[0][0] in o.space.parts:
        return o.entry(ref, _shifted(at, dim, -start))
    fresh = o.space.place(extent)
    ((mine, _),) = fresh.steps
    inner = o.entry(ref, (*at[:dim], fresh, *at[dim + 1 :]))
    split = mine in o.space.parts
    limited = any(mine in (*ranged(m), *m.bound) for _, m in inner)
    if split or limited or place.steps[0][0] in o.space.parts:
        return o.entry(ref, _shifted(at, dim, -start))

    def back(p: Index) -> Index:
        steps = dict(p.steps)
        by = steps.pop(mine, 0)
        if not by:
            return p
        v = place.steps[0][0]
        steps[v] = steps.get(v, 0) + by
        kept = tuple((w, n) for w, n in steps.items() if n)
        return Index(p.offset + by * (place.offset - start), kept)

    return o.sums.collected(rewritten(inner, back))


def _pad(o: Opened, term: Term, at: Places) -> Poly:
    dim, low, high = integers(term)
    inner = _within(o, term.args[0], at, dim, low)
    extent = term.shape[dim]
    return o.window(inner, at[dim], low, extent - high, extent)


def _concat(o: Opened, term: Term, at: Places) -> Poly:
    (dim,) = integers(term)
    parts: list[Poly] = []
    start = 0
    for a in term.args:
        end = start + o.terms.shape(a)[dim]
        inner = _within(o, a, at, dim, start)
        parts.append(o.window(inner, at[dim], start, end, term.shape[dim]))
        start = end
    return o.sums.add(parts)


def _ramp(o: Opened, term: Term, at: Places) -> Poly:
    (place,) = at
    out = o.sums.constant(Fraction(place.offset))
    if place.steps:
        out = o.sums.add([out, o.sums.of(Factor(("ramp",), (Index(0, place.steps),)))])
    return out


def _where(o: Opened, term: Term, at: Places) -> Poly:
    rank = len(term.shape)
    cond, a, b = (o.entry(x, o.under(x, at, rank)) for x in term.args)
    cond = o.truth(term.args[0], cond)
    other = o.sums.add([ONE, o.sums.scale(cond, Fraction(-1))])
    return o.sums.add([o.sums.multiply(a, cond, True), o.sums.multiply(b, other, True)])


RULES: dict[str, Rule] = {
    "var": _var,
    "ones": lambda o, term, at: ONE,
    "lin": _lin,
    "prod": _prod,
    "expand": _expand,
    "reshape": _reshape,
    "permute": _permute,
    "sum": _sum,
    "amax": _amax,
    "cumsum": _cumsum,
    "matmul": _matmul,
    "slice": _slice,
    "pad": _pad,
    "concat": _concat,
    "take": take,
    "take_along": take_along,
    "index_add": index_add,
    "put_along": put_along,
    "ramp": _ramp,
    "where": _where,
}
