"""Laws of products: sums, orders, transposes, joined operands, scales."""

from __future__ import annotations

from verifier.provers.rewrite.blocks import (
    cut,
    entries,
    is_constant,
    joined,
    law,
    matmul,
    scaled,
    total,
)
from verifier.terms import Ref, Term, Terms


@law("product-over-sum-left", "(A + B) W = A W + B W")
def _over_left(t: Terms, term: Term) -> Ref | None:
    if term.op != "matmul":
        return None
    a, b = term.args
    parts = entries(t, a)
    return total(t, [matmul(t, p, b) for p in parts]) if len(parts) > 1 else None


@law("product-over-sum-right", "A (V + W) = A V + A W")
def _over_right(t: Terms, term: Term) -> Ref | None:
    if term.op != "matmul":
        return None
    a, b = term.args
    parts = entries(t, b)
    return total(t, [matmul(t, a, p) for p in parts]) if len(parts) > 1 else None


@law("product-is-associative", "A (B C) = (A B) C")
def _associative(t: Terms, term: Term) -> Ref | None:
    if term.op != "matmul":
        return None
    a, right = term.args
    inner = t[right.id]
    if inner.op != "matmul":
        return None
    b, c = inner.args
    return scaled(matmul(t, matmul(t, a, b), c), right.coef)


@law("transpose-of-product", "(A B)^T = B^T A^T")
def _transposed(t: Terms, term: Term) -> Ref | None:
    if term.op != "permute" or t[term.args[0].id].op != "matmul":
        return None
    dims: tuple[int, ...] = term.attrs[0]
    rank = len(dims)
    batch, last = dims[:-2], dims[-2:]
    if set(last) != {rank - 2, rank - 1}:
        return None
    a, b = t[term.args[0].id].args
    straight = (*batch, rank - 2, rank - 1)
    if last == (rank - 2, rank - 1):
        return matmul(t, t.permute(a, straight), t.permute(b, straight))
    turned = (*batch, rank - 1, rank - 2)
    return matmul(t, t.permute(b, turned), t.permute(a, turned))


@law("product-of-joined-columns", "[A | B] [V ; W] = A V + B W")
def _joined_inner(t: Terms, term: Term) -> Ref | None:
    if term.op != "matmul":
        return None
    a, b = term.args
    rank = len(term.shape)
    for x, along in ((a, rank - 1), (b, rank - 2)):
        inner = t[x.id]
        if inner.op != "concat" or inner.attrs[0] != along:
            continue
        other = b if x is a else a
        across = rank - 2 if x is a else rank - 1
        out, at = list[Ref](), 0
        for part in inner.args:
            stop = at + t.shape(part)[along]
            piece = cut(t, other, across, at, stop)
            out.append(matmul(t, part, piece) if x is a else matmul(t, piece, part))
            at = stop
        return scaled(total(t, out), x.coef)
    return None


@law("product-of-joined-rows", "[A ; B] W = [A W ; B W], A [V | W] = [A V | A W]")
def _joined_outer(t: Terms, term: Term) -> Ref | None:
    if term.op != "matmul":
        return None
    a, b = term.args
    rank = len(term.shape)
    left, right = t[a.id], t[b.id]
    if left.op == "concat" and left.attrs[0] == rank - 2:
        return joined(t, [scaled(matmul(t, p, b), a.coef) for p in left.args], rank - 2)
    if right.op == "concat" and right.attrs[0] == rank - 1:
        return joined(t, [scaled(matmul(t, a, p), b.coef) for p in right.args], rank - 1)
    return None


@law("slice-of-product", "rows of A B are rows of A, times B; columns the same way")
def _slice_of_product(t: Terms, term: Term) -> Ref | None:
    if term.op != "slice" or t[term.args[0].id].op != "matmul":
        return None
    dim, start, stop, step = term.attrs
    a, b = t[term.args[0].id].args
    rank = len(term.shape)
    attrs = {"dim": dim, "start": start, "stop": stop, "step": step}
    if dim != rank - 1:
        a = t.apply("slice", [a], attrs, ["f32"])
    if dim != rank - 2:
        b = t.apply("slice", [b], attrs, ["f32"])
    return matmul(t, a, b)


@law("scale-out-of-product", "(s A) B = s (A B) for a scale of rows, A (B c) = (A B) c of columns")
def _scale_out(t: Terms, term: Term) -> Ref | None:
    if term.op != "matmul":
        return None
    rank = len(term.shape)
    for at, (x, fixed) in enumerate(zip(term.args, (rank - 1, rank - 2), strict=True)):
        inner = t[x.id]
        if inner.op != "prod":
            continue
        out, kept = list[Ref](), list[Ref]()
        for factor, power in zip(inner.args, inner.attrs, strict=True):
            (out if is_constant(t, factor, fixed, rank) else kept).extend([factor] * power)
        if not out:
            continue
        rest = t.fit(t.product(kept), inner.shape) if kept else t.ones(inner.shape)
        pair = (rest, term.args[1]) if at == 0 else (term.args[0], rest)
        return scaled(t.product([matmul(t, *pair), *out]), x.coef)
    return None
