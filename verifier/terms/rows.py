"""Terms of ops on whole rows, of random masks and of rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shardproof.verifier.kernel.ops.create import row_major, strides_of
from shardproof.verifier.kernel.program.types import Affine
from shardproof.verifier.terms.refs import Ref

if TYPE_CHECKING:
    from shardproof.verifier.terms.table import Terms


def dropout_mask(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    """Entries follow their index in the whole: a dense mask is a reshape of the flat one."""
    shape, offset = tuple(attrs["shape"]), attrs["offset"]
    if isinstance(offset, Affine):
        assert not offset.terms, "the whole mask starts at one index"
        offset = offset.const
    key = (attrs["p"], attrs["stream"], offset)
    steps = list(zip(shape, strides_of(shape, attrs["strides"]), strict=True))
    long = [(n, s) for n, s in steps if n != 1]
    if tuple(s for _, s in long) == row_major([n for n, _ in long]):
        return t.reshape(t.intern("dropout_mask", args, key, (math.prod(shape),)), shape)
    strides = tuple(s if n != 1 else 0 for n, s in steps)
    return t.intern("dropout_mask", args, (*key, strides), shape)


def mask_window(t: Terms, x: Ref, dim: int, kept: range) -> Ref | None:
    """A part of a random mask is the mask of those entries. None where `x` is no such mask."""
    shape, term = t.shape(x), t[x.id]
    flat = t[term.args[0].id] if term.op == "reshape" else term
    if flat.op != "dropout_mask":
        return None
    p, stream, offset, *given = flat.attrs
    if given and flat is not term:
        return None
    strides = list(given[0] if given else row_major(shape))
    attrs = {
        "shape": (*shape[:dim], len(kept), *shape[dim + 1 :]),
        "p": p,
        "stream": stream,
        "offset": offset + kept.start * strides[dim],
        "strides": (*strides[:dim], strides[dim] * kept.step, *strides[dim + 1 :]),
    }
    made = dropout_mask(t, list(flat.args), attrs, ())
    return Ref(x.coef * made.coef, made.id)


def round_to(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    """The value does not depend on what becomes of its gradient."""
    return t.mapped("round_to", args, (attrs["format"],))
