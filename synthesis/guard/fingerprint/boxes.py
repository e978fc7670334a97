"""Coverage of places that are products of indices per dim: what a rank claims of a parameter.

A claim may be large (a parameter has billions of elements) and still be known by one list of
indices a dim. Its fingerprint is the product over dims of sums of odd words, which is the sum over
all its elements of the product of their words:

    C = prod over dims d of sum over i in claim[d] of h(d, i) = sum over elements of prod h(d, i_d)

modulo 2^64. It reads no data, is known before running, and those of disjoint claims add up to that
of all of them, as `coverage` does, at the cost of the extents instead of their product.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardproof.synthesis.guard.fingerprint.mix import GOLDEN, MASK, fmix_into, key as make_key

Indices = npt.NDArray[np.int64]


def box_coverage(claim: Sequence[Indices], key: int = 0) -> int:
    """The fingerprint of the elements whose index in every dim is in that dim's list.

    Sees: elements claimed by nobody, or by two, and claims of other elements (missed: about 2^-60,
    the mixer taken for a random function). Does not see: anything about the data.
    """
    value = 1
    for dim, indices in enumerate(claim):
        salt = np.uint64(make_key(key, "box", dim))
        words: npt.NDArray[Any] = indices.astype(np.uint64) * np.uint64(GOLDEN) + salt
        fmix_into(words, np.empty_like(words))
        value = value * int(np.sum(words | np.uint64(1), dtype=np.uint64)) & MASK
    return value


def whole_coverage(shape: Sequence[int], key: int = 0) -> int:
    """That of all elements of a tensor."""
    return box_coverage([np.arange(n) for n in shape], key)
