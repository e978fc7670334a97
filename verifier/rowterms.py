"""Terms of ops on whole rows and of random masks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from verifier.ops.random import row_major, strides_of

if TYPE_CHECKING:
    from verifier.terms import Ref, Terms


def cumsum(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    return t.linear("cumsum", args, (attrs["dim"], attrs["exclusive"]), t.shape(args[0]))


def topk_mask(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    return t.intern("topk_mask", args, (attrs["dim"], attrs["k"]), t.shape(args[0]))


def dropout_mask(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    """Entries follow their index in the whole: a dense mask is a reshape of the flat one."""
    shape = tuple(attrs["shape"])
    key = (attrs["p"], attrs["stream"], attrs["offset"])
    steps = [(n, s) for n, s in zip(shape, strides_of(shape, attrs["strides"]), strict=True)]
    long = [(n, s) for n, s in steps if n != 1]
    if tuple(s for _, s in long) == row_major([n for n, _ in long]):
        return t.reshape(t.intern("dropout_mask", args, key, (math.prod(shape),)), shape)
    strides = tuple(s if n != 1 else 0 for n, s in steps)
    return t.intern("dropout_mask", args, (*key, strides), shape)


BUILD = {"cumsum": cumsum, "topk_mask": topk_mask, "dropout_mask": dropout_mask}
