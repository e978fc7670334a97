"""Which term an op is on whole operands. An op that is not named here is a term of itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from shardproof.verifier.kernel.ops.map import broadcast
from shardproof.verifier.kernel.program.registry import ONE
from shardproof.verifier.kernel.program.types import FLOATS
from shardproof.verifier.terms import parts, rows
from shardproof.verifier.terms.refs import Build, Ref, Shape

if TYPE_CHECKING:
    from shardproof.verifier.terms.table import Terms

MAX_POWER = 64
"""Integer powers up to this are written out as products."""


def matmul(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    """`a b`, or the transpose of `b^T a^T` where that pair was made earlier."""
    a, b = args
    shape = (*t.shape(a)[:-1], t.shape(b)[-1])
    coef = a.coef * b.coef
    if coef == 0 and not (t.loose(a.id) or t.loose(b.id)):
        return t.full(shape, Fraction(0))
    a, b = Ref(ONE, a.id), Ref(ONE, b.id)
    if coef == 0:
        return t.combine([(coef, matmul(t, [a, b], attrs, dtypes))])
    rank = len(shape)
    swap = (*range(rank - 2), rank - 1, rank - 2)
    left, right = t.permute(b, swap), t.permute(a, swap)
    if (left.id, right.id) < (a.id, b.id) and left.coef == right.coef == 1:
        turned = (*shape[:-2], shape[-1], shape[-2])
        made = t.permute(t.intern("matmul", [left, right], (), turned), swap)
    else:
        made = t.intern("matmul", [a, b], (), shape)
    return Ref(coef * made.coef, made.id)


def where(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    shape = broadcast(*(t.shape(a) for a in args))
    cond, a, b = (t.strip(x) for x in args)
    pulled = a.coef or b.coef
    if a == b or not pulled:
        alike = a if pulled else t.full((), Fraction(0))
        return t.fit(t.combine([(ONE, alike), (Fraction(0), cond)]), shape)
    a, b = Ref(a.coef / pulled, a.id), Ref(b.coef / pulled, b.id)
    a, b = (t.full((), Fraction(0)) if x.coef == 0 else x for x in (a, b))
    inner = broadcast(*(t.shape(x) for x in (cond, a, b)))
    made = t.intern("where", [cond, a, b], (), inner)
    return t.fit(Ref(pulled, made.id), shape)


def flipped(name: str) -> Build:
    def build(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
        return t.mapped(name, [args[1], args[0]], ())

    return build


def power(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    exponent = Fraction(attrs["exponent"])
    if exponent.denominator == 1 and 0 < exponent <= MAX_POWER:
        return t.product([args[0]] * int(exponent))
    if exponent.denominator == 1 and -MAX_POWER <= exponent < 0:
        return t.reciprocal(t.product([args[0]] * int(-exponent)))
    return t.mapped("pow", args, (exponent,))


def cast(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    to = attrs["dtype"]
    if to == "u8" and dtypes[0] not in ("u8", "bool"):
        return t.mapped("cast", args, ("u8",))
    if to == dtypes[0] or to in FLOATS or (to != "bool" and dtypes[0] not in FLOATS):
        return args[0]
    return t.mapped("cast", args, ("bool" if to == "bool" else "int",))


def exp(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    """`exp(a - log(s))` is `exp(a) / s` for a sum `s` of exponentials, which is above 0."""
    (arg,) = args
    shape, ref = t.shape(arg), t.strip(arg)
    rest, factors = list[tuple[Fraction, Ref]](), list[Ref]()
    for part in t.entries(ref, "lin") or (Ref(ONE, ref.id),):
        coef, term = ref.coef * part.coef, t[part.id]
        log = t[term.args[0].id] if term.op == "reshape" else term
        if log.op == "log" and abs(coef) == 1 and _sums_exp(t, log.args[0]):
            total = t.reshape(log.args[0], term.shape)
            factors.append(total if coef == 1 else t.reciprocal(total))
        else:
            rest.append((ref.coef, part))
    if not factors:
        return t.mapped("exp", args, ())
    factors += [exp(t, [t.combine(rest)], attrs, dtypes)] if rest else []
    return t.fit(t.product(factors), shape)


def _sums_exp(t: Terms, ref: Ref) -> bool:
    total = t[ref.id]
    total = t[total.args[0].id] if total.op == "reshape" else total
    entries = t[total.args[0].id] if total.op == "sum" else total
    entries = t[entries.args[0].id] if entries.op == "reshape" else entries
    return (
        total.op == "sum" and entries.op == "exp" and ref.coef > 0 and math.prod(entries.shape) > 0
    )


def index_add(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    g, idx = args
    shape = (attrs["size"], *t.shape(g)[len(t.shape(idx)) :])
    return t.linear("index_add", args, (attrs["offset"],), shape)


def take_along(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    (x, idx), dim = args, attrs["dim"]
    first, row = _rows(t.shape(x), dim), _rows(t.shape(idx), dim)
    at = dim if first == t.shape(x) else 1
    given = [t.reshape(x, first), t.reshape(idx, row)]
    return t.reshape(t.linear("take_along", given, (at, attrs["offset"]), row), t.shape(idx))


def put_along(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    (g, idx), dim = args, attrs["dim"]
    shape, row = t.shape(g), _rows(t.shape(g), dim)
    at = dim if row == shape else 1
    given = [t.reshape(g, row), t.reshape(idx, row)]
    made = (*row[:at], attrs["size"], *row[at + 1 :])
    out = t.linear("put_along", given, (at, attrs["offset"]), made)
    return t.reshape(out, (*shape[:dim], attrs["size"], *shape[dim + 1 :]))


def _rows(shape: Shape, dim: int) -> Shape:
    """A shape with the dims before one merged: along it, each line is looked up in alone."""
    return (math.prod(shape[:dim]), *shape[dim:]) if dim > 1 else shape


def iota(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    shape, dim, offset = tuple(attrs["shape"]), attrs["dim"], attrs["offset"]
    line = t.intern("ramp", (), (), (shape[dim],))
    kept = tuple(n if i == dim else 1 for i, n in enumerate(shape))
    ramp = t.expand(t.reshape(line, kept), shape)
    return t.combine([(ONE, ramp), (Fraction(offset), t.ones(shape))]) if offset else ramp


BUILD: dict[str, Build] = {
    "neg": lambda t, a, k, d: Ref(-a[0].coef, a[0].id),
    "mul_scalar": lambda t, a, k, d: t.combine([(Fraction(k["value"]), a[0])]),
    "add_scalar": lambda t, a, k, d: t.combine(
        [(ONE, a[0]), (Fraction(k["value"]), t.ones(t.shape(a[0])))]
    ),
    "add": lambda t, a, k, d: t.combine([(ONE, a[0]), (ONE, a[1])]),
    "sub": lambda t, a, k, d: t.combine([(ONE, a[0]), (-ONE, a[1])]),
    "mul": lambda t, a, k, d: t.product(a),
    "div": lambda t, a, k, d: t.product([a[0], t.reciprocal(a[1])]),
    "reciprocal": lambda t, a, k, d: t.reciprocal(a[0]),
    "pow": power,
    "cast": cast,
    "exp": exp,
    "where": where,
    "gt": flipped("lt"),
    "ge": flipped("le"),
    "mm": matmul,
    "bmm": matmul,
    "reshape": lambda t, a, k, d: t.reshape(a[0], tuple(k["shape"])),
    "permute": lambda t, a, k, d: t.permute(a[0], tuple(k["dims"])),
    "expand": lambda t, a, k, d: t.expand(a[0], tuple(k["shape"])),
    "slice": parts.sliced,
    "concat": parts.concat,
    "pad": parts.pad,
    "index_add": index_add,
    "take_along": take_along,
    "put_along": put_along,
    "full": lambda t, a, k, d: t.full(tuple(k["shape"]), Fraction(k["value"])),
    "iota": iota,
    "dropout_mask": rows.dropout_mask,
    "round_to": rows.round_to,
}
