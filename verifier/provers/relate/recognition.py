"""Which value of the one-device program a term is known to equal, or to be a slice of."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.registry import ONE, Site
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.provers.canonical.keys import MAX_TABLE
from shardproof.verifier.provers.canonical.rearranged import view
from shardproof.verifier.provers.sequential import Sequential
from shardproof.verifier.terms import Ref, times

MAX_VALUES = 4_000
"""Programs of more values are not searched for one that a term equals."""


def known_as(one: Sequential, ref: Ref) -> Ref:
    """The value of the program that a term is known to equal, or the term itself.

    A term that may have no value where the outputs of one device have theirs equals none.
    """
    if ref.id in one.known or not ref.coef or len(one.values) > MAX_VALUES:
        return ref
    if one.terms.loose(ref.id):
        return ref
    place = view(one.terms, ref.id)
    if one.named is None:
        one.named, one.viewed = {}, {}
        for known in one.values.values():
            if one.terms.loose(known.id):
                continue
            one.viewed.setdefault((one.terms.shape(known), view(one.terms, known.id)), known.id)
            factor, key = one.keys.key(known)
            if factor:
                one.named.setdefault(key, Ref(known.coef / factor, known.id))
        one.keys.left = MAX_TABLE  # as much for what is compared with these
    same = one.viewed.get((one.terms.shape(ref), place))
    if same is not None:
        return Ref(ref.coef, same)
    if place[0] != ref.id and place[0] in one.keys.costly:
        return ref
    factor, key = one.keys.key(ref)
    found = one.named.get(key)
    if not factor:
        return one.terms.full(one.terms.shape(ref), Fraction(0))
    return Ref(factor * found.coef, found.id) if found is not None else ref


def slice_of_known(
    one: Sequential,
    op: str,
    args: Sequence[Ref],
    attrs: Mapping[str, Any],
    dtypes: Sequence[str],
    ref: Ref,
) -> Ref:
    """What an op makes of slices, as a slice of what it makes of the wholes, where the one-device
    program computes that; else `ref`, which the op makes.

    So a micro-batch is known by the batch. Slices are one of several equal ones along their dim.
    """
    terms = one.terms
    if ref.id in one.known or terms[ref.id].op == "slice":
        return ref
    for whole, start, stop in dict.fromkeys(_window(one, arg) for arg in args):
        size = stop - start
        if size < 1 or size == whole or whole % size or start % size:
            continue
        for dim, extent in enumerate(terms.shape(ref)):
            shape = list(terms.shape(ref))
            shape[dim] = extent * whole // size
            wide = [
                _widened(one, arg, (whole, start, stop), dim, extent, shape[dim]) for arg in args
            ]
            more = {**attrs, "shape": tuple(shape)} if "shape" in attrs else attrs
            if _shape(one, op, wide, more, dtypes) != tuple(shape):
                continue
            made = terms.apply(op, wide, more, dtypes)
            if made.id not in one.known:
                continue
            first = start // size * extent
            cut = {"dim": dim, "start": first, "stop": first + extent, "step": 1}
            found = terms.apply("slice", [made], cut, ["f32"])
            if one.equal_over_known(found, ref):
                return found
        wide = [_widened(one, arg, (whole, start, stop), 0, -1, 0) for arg in args]
        if ref.coef and _shape(one, op, wide, attrs, dtypes) == terms.shape(ref):
            made = terms.apply(op, wide, attrs, dtypes)
            if made.id in one.known:
                one.addends[ref.id] = Ref(made.coef / ref.coef, made.id)
    return _added(one, ref)


def _added(one: Sequential, ref: Ref) -> Ref:
    """A sum of what an op makes of slices, as what it makes of the wholes."""
    term = one.terms[ref.id]
    parts = {one.addends.get(a.id) for a in term.args} if term.op == "lin" else {None}
    (made, *more) = parts
    if made is None or more or any(a.coef != 1 for a in term.args):
        return ref
    if one.equal_over_known(made, Ref(ONE, ref.id)):
        return Ref(ref.coef * made.coef, made.id)
    one.addends[ref.id] = made
    return ref


Window = tuple[int, int, int]
"""The extent of a dim, and the first and last place of a slice of it, as the slice has them."""


def _window(one: Sequential, ref: Ref) -> Window:
    """What a term is a slice of; an empty window where it is none."""
    term = one.terms[ref.id]
    if term.op != "slice":
        return 0, 0, 0
    dim: int = term.attrs[0]
    start: int = term.attrs[1]
    stop: int = term.attrs[2]
    return (one.terms.shape(term.args[0])[dim], start, stop) if term.attrs[3] == 1 else (0, 0, 0)


def _widened(one: Sequential, ref: Ref, window: Window, dim: int, extent: int, whole: int) -> Ref:
    """The whole of a slice, and of a constant that has the extent of one in that dim."""
    term = one.terms[ref.id]
    if _window(one, ref) == window:
        (inner,) = term.args
        return Ref(times(ref.coef, inner.coef), inner.id)
    if term.op == "ones" and term.shape[dim : dim + 1] == (extent,):
        shape = (*term.shape[:dim], whole, *term.shape[dim + 1 :])
        return one.terms.full(shape, ref.coef)
    return ref


def _shape(
    one: Sequential,
    op: str,
    args: Sequence[Ref],
    attrs: Mapping[str, Any],
    dtypes: Sequence[str],
) -> tuple[int, ...] | None:
    """The shape of what an op makes; None where it cannot be applied."""
    known = lookup(op)
    types = tuple(TensorType(one.terms.shape(a), t) for a, t in zip(args, dtypes, strict=True))
    try:
        (made,) = known.types(Site(op, types, known.with_defaults(attrs), Mesh(())))
    except IRError:
        return None
    return made.shape
