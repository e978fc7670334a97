"""Terms of matrix products and of elementwise ops that have a normal form of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from shardproof.verifier.kernel.ops.map import broadcast
from shardproof.verifier.kernel.program.registry import ONE
from shardproof.verifier.kernel.program.types import FLOATS
from shardproof.verifier.terms.refs import Build, Ref

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
    if a == b:
        return t.fit(a, shape)
    pulled = a.coef or b.coef
    if not pulled:
        return t.full(shape, Fraction(0))
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
