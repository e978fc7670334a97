"""Terms of reading and writing at indices, and of the indices themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from shardproof.verifier.kernel.program.registry import ONE
from shardproof.verifier.terms.refs import Ref

if TYPE_CHECKING:
    from shardproof.verifier.terms.table import Terms


def index_add(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    g, idx = args
    shape = (attrs["size"], *t.shape(g)[len(t.shape(idx)) :])
    return t.linear("index_add", args, (attrs["offset"],), shape)


def put_along(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    dim, shape = attrs["dim"], t.shape(args[0])
    out = (*shape[:dim], attrs["size"], *shape[dim + 1 :])
    return t.linear("put_along", args, (dim, attrs["offset"]), out)


def iota(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    shape, dim, offset = tuple(attrs["shape"]), attrs["dim"], attrs["offset"]
    line = t.intern("ramp", (), (), (shape[dim],))
    kept = tuple(n if i == dim else 1 for i, n in enumerate(shape))
    ramp = t.expand(t.reshape(line, kept), shape)
    return t.combine([(ONE, ramp), (Fraction(offset), t.ones(shape))]) if offset else ramp
