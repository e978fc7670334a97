"""Laws that put the pieces of one tensor together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from fractions import Fraction
from weakref import WeakKeyDictionary

from verifier.kernel.program.registry import traits
from verifier.provers.rewrite.blocks import (
    elementwise,
    joined,
    law,
    matmul,
    rebuilt,
    scaled,
    summed,
    total,
)
from verifier.terms import ONE, Ref, Term, Terms

_WHOLES: WeakKeyDictionary[Terms, dict[Hashable, Ref | None]] = WeakKeyDictionary()
"""By table what was said of parts: terms never change, and sums try the same parts again."""


def whole(t: Terms, parts: Sequence[Ref], dim: int) -> Ref | None:
    """The tensor that the parts are pieces of, if they make up one."""
    known, key = _WHOLES.setdefault(t, {}), (dim, *parts)
    if key not in known:
        known[key] = _whole(t, parts, dim)
    return known[key]


def _whole(t: Terms, parts: Sequence[Ref], dim: int) -> Ref | None:
    if any(p.coef != parts[0].coef for p in parts):
        return None
    if all(p == parts[0] for p in parts) and t.shape(parts[0])[dim] == 1:
        shape = list(t.shape(parts[0]))
        shape[dim] = len(parts)
        return t.expand(parts[0], tuple(shape))
    made = joined(t, parts, dim)
    if t[made.id].op != "concat":
        return made
    inner = _join_alike(t, t[made.id])
    return None if inner is None else scaled(inner, made.coef)


@law("joined-pieces", "[f(x') | f(x'')] = f(x) where x' and x'' are the pieces of x")
def _join_alike(t: Terms, term: Term) -> Ref | None:
    if term.op != "concat":
        return None
    dim: int = term.attrs[0]
    heads = [t[p.id] for p in term.args]
    first = heads[0]
    if any(h.op != first.op or len(h.args) != len(first.args) for h in heads):
        return None
    if first.op == "matmul":
        return _join_products(t, term, dim)
    if not elementwise(first) or (not _symmetric(first.op) and not _alike(heads)):
        return None
    if first.op != "lin" and any(p.coef != term.args[0].coef for p in term.args):
        return None
    left = [_operands(h, p.coef) for h, p in zip(heads, term.args, strict=True)]
    columns: list[Ref] = []
    for operand in left[0]:
        column = _column(t, operand, left[1:], len(term.shape), dim, _symmetric(first.op))
        if column is None:
            return None
        columns.append(column)
    coef = ONE if first.op == "lin" else term.args[0].coef
    if first.op == "prod":
        made = t.product([c for c, (_, k) in zip(columns, left[0], strict=True) for _ in range(k)])
    else:
        made = rebuilt(t, first, columns)
    return scaled(t.fit(made, term.shape), coef)


def _symmetric(op: str) -> bool:
    return op in ("lin", "prod") or traits(op).symmetric


def _alike(heads: Sequence[Term]) -> bool:
    return all(h.attrs == heads[0].attrs for h in heads)


def _operands(head: Term, coef: Fraction) -> list[tuple[Ref, int]]:
    """Operands with their powers; the factor of a sum is given to its summands."""
    powers: Sequence[int] = head.attrs if head.op == "prod" else [1] * len(head.args)
    scale = coef if head.op == "lin" else ONE
    return [(scaled(a, scale), k) for a, k in zip(head.args, powers, strict=True)]


def _column(
    t: Terms,
    first: tuple[Ref, int],
    others: list[list[tuple[Ref, int]]],
    rank: int,
    dim: int,
    any_order: bool,
) -> Ref | None:
    """The tensor whose pieces are `first` and one operand of each other part, which are used up."""
    made, power = first
    at = dim - (rank - len(t.shape(made)))
    fixed = at < 0 or t.shape(made)[at] == 1
    for operands in others:
        found = None
        for i, (operand, k) in enumerate(operands):
            if k == power:
                if fixed:
                    found = (i, made) if operand == made else None
                elif len(t.shape(operand)) == len(t.shape(made)):
                    more = whole(t, [made, operand], at)
                    found = None if more is None else (i, more)
            if found or not any_order:
                break
        if found is None:
            return None
        made = found[1]
        del operands[found[0]]
    return made


def _join_products(t: Terms, term: Term, dim: int) -> Ref | None:
    heads, coef = [t[p.id] for p in term.args], term.args[0].coef
    rank = len(term.shape)
    same, moved = (0, 1) if dim == rank - 1 else (1, 0)
    if dim < rank - 2 or any(h.args[same] != heads[0].args[same] for h in heads):
        return None
    made = whole(t, [h.args[moved] for h in heads], dim)
    if made is None or any(p.coef != coef for p in term.args):
        return None
    pair = (heads[0].args[0], made) if moved else (made, heads[0].args[1])
    return scaled(matmul(t, *pair), coef)


@law("joined-shares", "A' V + A'' W = A B where [A' | A''] = A and [V ; W] = B")
def _join_shares(t: Terms, term: Term) -> Ref | None:
    if term.op != "lin":
        return None
    for i, p in enumerate(term.args):
        for j, q in enumerate(term.args):
            if i == j or p.coef != q.coef or t.shape(p) != t.shape(q):
                continue
            made = _one_share(t, t[p.id], t[q.id])
            if made is not None:
                rest = [r for k, r in enumerate(term.args) if k not in (i, j)]
                return t.fit(total(t, [scaled(made, p.coef), *rest]), term.shape)
    return None


def _one_share(t: Terms, p: Term, q: Term) -> Ref | None:
    if p.op != q.op or p.attrs != q.attrs:
        return None
    if p.op == "sum":
        left, right = t.shape(p.args[0]), t.shape(q.args[0])
        for dim in p.attrs[0]:
            if all(a == b for d, (a, b) in enumerate(zip(left, right, strict=True)) if d != dim):
                made = whole(t, [p.args[0], q.args[0]], dim)
                if made is not None:
                    return summed(t, made, p.attrs[0])
    if p.op != "matmul":
        return None
    rank = len(p.shape)
    a = whole(t, [p.args[0], q.args[0]], rank - 1)
    b = whole(t, [p.args[1], q.args[1]], rank - 2) if a is not None else None
    return matmul(t, a, b) if a is not None and b is not None else None
