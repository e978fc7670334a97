"""Laws of rearranged vectors, and of lookups in parts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from verifier.domains.base import Array
from verifier.provers.rewrite.blocks import cut, joined, law
from verifier.terms import ONE, Ref, Term, Terms

MAX_ENTRIES, MAX_RUNS = 1 << 16, 16


@law("vector-in-runs", "a rearranged vector is the runs of the vector that stand in it, joined")
def _in_runs(t: Terms, term: Term) -> Ref | None:
    long = [n for n in term.shape if n != 1]
    if term.op != "reshape" or len(long) != 1 or long[0] > MAX_ENTRIES:
        return None
    found = _places(t, term)
    if found is None:
        return None
    var, places = found[0], found[1].reshape(-1)
    starts = [0, *(int(i) + 1 for i in np.flatnonzero(np.diff(places) != 1)), len(places)]
    if len(starts) > MAX_RUNS + 1:
        return None
    ends = [(int(places[a]), int(places[b - 1]) + 1) for a, b in pairwise(starts)]
    parts = [cut(t, var, 0, first, last) for first, last in ends]
    return t.reshape(joined(t, parts, 0), term.shape)


def _places(t: Terms, term: Term) -> tuple[Ref, Array] | None:
    """The vector that a term rearranges, and which entry of it stands where."""
    if term.op == "var":
        whole = t.intern("var", (), term.attrs, term.shape)
        return (whole, np.arange(term.shape[0])) if len(term.shape) == 1 else None
    if term.op not in ("reshape", "permute", "slice", "concat", "flip"):
        return None
    held = [_places(t, t[a.id]) if a.coef == 1 else None for a in term.args]
    inner = [h for h in held if h is not None]
    if len(inner) != len(held) or any(h[0] != inner[0][0] for h in inner):
        return None
    first = inner[0][1]
    match term.op:
        case "reshape":
            made = first.reshape(term.shape)
        case "permute":
            made = first.transpose(term.attrs[0])
        case "flip":
            made = np.flip(first, term.attrs[0])
        case "slice":
            dim, start, stop, step = term.attrs
            made = first.take(range(start, stop, step), axis=dim)
        case _:
            made = np.concatenate([h[1] for h in inner], axis=term.attrs[0])
    return inner[0][0], made


@law("lookup-of-joined", "lines that are looked up at joined indices are looked up part by part")
def _lookup_of_concat(t: Terms, term: Term) -> Ref | None:
    if term.op != "take_along" or t[term.args[1].id].op != "concat" or term.args[1].coef != 1:
        return None
    x, index = term.args
    dim, offset = term.attrs
    along: int = t[index.id].attrs[0]
    if along == dim:
        return None
    parts: list[Ref] = []
    at = 0
    for part in t[index.id].args:
        stop = at + t.shape(part)[along]
        lines = cut(t, Ref(ONE, x.id), along, at, stop)
        attrs = {"dim": dim, "offset": offset}
        parts.append(t.apply("take_along", [lines, part], attrs, ["f32", "i64"]))
        at = stop
    made = joined(t, parts, along)
    return Ref(made.coef * x.coef, made.id)


@law("slice-of-lookup", "lines of a lookup are lookups in those lines")
def _slice_of_lookup(t: Terms, term: Term) -> Ref | None:
    if term.op != "slice" or t[term.args[0].id].op != "take_along":
        return None
    inner = t[term.args[0].id]
    dim, start, stop, step = term.attrs
    if dim == inner.attrs[0]:
        return None
    attrs = {"dim": dim, "start": start, "stop": stop, "step": step}
    parts = [t.apply("slice", [a], attrs, ["f32"]) for a in inner.args]
    named = {"dim": inner.attrs[0], "offset": inner.attrs[1]}
    return t.apply("take_along", parts, named, ["f32", "i64"])
