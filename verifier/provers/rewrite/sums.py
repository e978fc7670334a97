"""Laws of elementwise products and reductions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verifier.provers.rewrite.blocks import entries, is_constant, joined, law, scaled, summed, total
from verifier.terms import ONE, Ref, Term, Terms


@law("factor-over-sum", "(a + b) c = a c + b c")
def _factor(t: Terms, term: Term) -> Ref | None:
    if term.op != "prod":
        return None
    for i, (factor, power) in enumerate(zip(term.args, term.attrs, strict=True)):
        parts = entries(t, factor)
        if len(parts) < 2 or power < 1:
            continue
        rest = [
            Ref(ONE, f.id) for j, f in enumerate(term.args) for _ in range(term.attrs[j] - (j == i))
        ]
        out = [t.fit(t.product([p, *rest]), term.shape) for p in parts]
        return total(t, out)
    return None


@law("reduction-of-sum", "the sum over a dim of a + b is that of a plus that of b")
def _sum_of_sum(t: Terms, term: Term) -> Ref | None:
    if term.op != "sum":
        return None
    parts = entries(t, term.args[0])
    if len(parts) < 2:
        return None
    return total(t, [summed(t, p, term.attrs[0]) for p in parts])


@law("reduction-of-broadcast", "a sum over a dim of extent n that x does not have is n x")
def _sum_of_expand(t: Terms, term: Term) -> Ref | None:
    if term.op != "sum" or t[term.args[0].id].op != "expand":
        return None
    (inner,) = t[term.args[0].id].args
    wide, narrow = t.shape(term.args[0]), t.shape(inner)
    lead = len(wide) - len(narrow)
    if lead:
        inner, narrow = t.reshape(inner, (1,) * lead + narrow), (1,) * lead + narrow
    dims: tuple[int, ...] = term.attrs[0]
    free = [d for d in dims if narrow[d] == 1]
    if not free:
        return None
    count = Fraction(1)
    for d in free:
        count *= wide[d]
    kept = tuple(1 if d in free else n for d, n in enumerate(wide))
    out = t.fit(inner, kept)
    return scaled(t.reduce("sum", out, dims, False), count)


@law(
    "scale-out-of-reduction", "the sum over a dim of s x is s times that of x, s constant along it"
)
def _scale_out_of_sum(t: Terms, term: Term) -> Ref | None:
    if term.op != "sum" or t[term.args[0].id].op != "prod":
        return None
    dims: tuple[int, ...] = term.attrs[0]
    inner = t[term.args[0].id]
    rank = len(inner.shape)
    out, kept = list[Ref](), list[Ref]()
    for factor, power in zip(inner.args, inner.attrs, strict=True):
        constant = all(is_constant(t, factor, d, rank) for d in dims)
        (out if constant else kept).extend([factor] * power)
    if not out:
        return None
    outer = t.product(out)
    missing = rank - len(t.shape(outer))
    outer = t.reshape(outer, (1,) * missing + t.shape(outer))
    outer = t.reshape(outer, tuple(n for d, n in enumerate(t.shape(outer)) if d not in dims))
    rest = t.fit(t.product(kept), inner.shape) if kept else t.ones(inner.shape)
    return t.fit(t.product([outer, summed(t, rest, dims)]), term.shape)


@law("reduction-of-joined", "the sum over a dim of [a | b] is that of a plus that of b")
def _sum_of_concat(t: Terms, term: Term) -> Ref | None:
    if term.op != "sum" or t[term.args[0].id].op != "concat":
        return None
    inner, dims = t[term.args[0].id], term.attrs[0]
    along: int = inner.attrs[0]
    parts = [summed(t, p, dims) for p in inner.args]
    if along in dims:
        return total(t, parts)
    return joined(t, parts, along - sum(d < along for d in dims))


@law("slice-of-reduction", "slices and sums of other dims commute")
def _slice_of_sum(t: Terms, term: Term) -> Ref | None:
    if term.op != "slice" or t[term.args[0].id].op not in ("sum", "amax"):
        return None
    inner = t[term.args[0].id]
    dim, start, stop, step = term.attrs
    dims: tuple[int, ...] = inner.attrs[0]
    kept = [d for d in range(len(t.shape(inner.args[0]))) if d not in dims]
    attrs: dict[str, Any] = {"dim": kept[dim], "start": start, "stop": stop, "step": step}
    x = t.apply("slice", [inner.args[0]], attrs, ["f32"])
    return t.reduce(inner.op, x, dims, False)


@law("exponential-of-logarithm", "exp(a - log b) = exp(a) / b, where the logarithm is defined")
def _exp_of_log(t: Terms, term: Term) -> Ref | None:
    if term.op != "exp":
        return None
    rest, out = list[Ref](), list[Ref]()
    for part in entries(t, term.args[0]):
        inner = t[t.strip(part).id]
        if inner.op == "log" and abs(t.strip(part).coef) == 1 and not t.loose(t.strip(part).id):
            (x,) = inner.args
            out.append(x if part.coef > 0 else t.reciprocal(x))
        else:
            rest.append(part)
    if not out:
        return None
    kept = [t.mapped("exp", [t.fit(total(t, rest), term.shape)], term.attrs)] if rest else []
    return t.fit(t.product([*kept, *out]), term.shape)
