"""Laws of slices, permutations, reshapes and concatenations of elementwise terms."""

from __future__ import annotations

from verifier.provers.rewrite.blocks import aligned, along_dim, elementwise, joined, law, rebuilt
from verifier.terms import Ref, Term, Terms


@law("slice-of-elementwise", "a slice of f(x, y) is f of the slices")
def _slice_of_map(t: Terms, term: Term) -> Ref | None:
    if term.op != "slice" or not elementwise(t[term.args[0].id]):
        return None
    inner = t[term.args[0].id]
    args = [along_dim(t, x, len(inner.shape), *term.attrs) for x in inner.args]
    return t.fit(rebuilt(t, inner, args), term.shape)


@law("slice-of-broadcast", "a slice of a broadcast is a broadcast of the slice")
def slice_of_expand(t: Terms, term: Term) -> Ref | None:
    if term.op != "slice" or t[term.args[0].id].op != "expand":
        return None
    wide = t[term.args[0].id]
    return t.expand(along_dim(t, wide.args[0], len(wide.shape), *term.attrs), term.shape)


@law("permutation-of-elementwise", "a permutation of f(x, y) is f of the permutations")
def _permuted_map(t: Terms, term: Term) -> Ref | None:
    if term.op != "permute" or not elementwise(t[term.args[0].id]):
        return None
    inner = t[term.args[0].id]
    args = [t.permute(a, term.attrs[0]) for a in aligned(t, inner)]
    return t.fit(rebuilt(t, inner, args), term.shape)


@law("permutation-of-slice", "permutations move inside slices")
def _permuted_slice(t: Terms, term: Term) -> Ref | None:
    if term.op != "permute" or t[term.args[0].id].op != "slice":
        return None
    inner = t[term.args[0].id]
    dim, start, stop, step = inner.attrs
    x = t.permute(inner.args[0], term.attrs[0])
    order: tuple[int, ...] = term.attrs[0]
    at = order.index(dim)
    return t.apply("slice", [x], {"dim": at, "start": start, "stop": stop, "step": step}, ["f32"])


@law("permutation-of-joined", "permutations move inside concatenations")
def _permuted_concat(t: Terms, term: Term) -> Ref | None:
    if term.op != "permute" or t[term.args[0].id].op != "concat":
        return None
    inner = t[term.args[0].id]
    parts = [t.permute(p, term.attrs[0]) for p in inner.args]
    order: tuple[int, ...] = term.attrs[0]
    return joined(t, parts, order.index(inner.attrs[0]))


@law("reshape-of-elementwise", "a reshape of f(x, y) is f of the reshapes, x and y of one shape")
def _reshaped_map(t: Terms, term: Term) -> Ref | None:
    if term.op != "reshape" or not elementwise(t[term.args[0].id]):
        return None
    inner = t[term.args[0].id]
    args = [
        a if t.shape(a) == () else t.reshape(t.fit(a, inner.shape), term.shape) for a in inner.args
    ]
    return t.fit(rebuilt(t, inner, args), term.shape)


@law("elementwise-of-joined", "f([a | b], y) = [f(a, y') | f(b, y'')], y cut the same way")
def _map_of_concat(t: Terms, term: Term) -> Ref | None:
    if not elementwise(term):
        return None
    rank = len(term.shape)
    split = next((a for a in term.args if t[a.id].op == "concat" and a.coef), None)
    if split is None:
        return None
    inner = t[split.id]
    own: int = inner.attrs[0]
    along = own + rank - len(inner.shape)
    out, at = list[Ref](), 0
    for part in inner.args:
        stop = at + t.shape(part)[own]
        pieces = [along_dim(t, a, rank, along, at, stop, 1) for a in term.args]
        shape = tuple(stop - at if d == along else n for d, n in enumerate(term.shape))
        out.append(t.fit(rebuilt(t, term, pieces), shape))
        at = stop
    return joined(t, out, along)
