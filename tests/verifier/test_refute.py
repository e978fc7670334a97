"""Counterexamples are differences that rounding does not explain."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from tests.verifier.pieces import pair, typed
from verifier.domains.floats import Floats
from verifier.ir import Builder
from verifier.refute import index_bounds, refute, sample
from verifier.verdict import Counterexample, Proof
from verifier.verify import verify


def nothing(b: Builder, x: str, flipped: bool) -> str:
    """`log(exp(x)) - x`: 0 over the reals, rounding in float64."""
    pair = b.add("log", b.add("exp", x)), x
    return b.add("sub", *(pair[::-1] if flipped else pair))


def test_difference_that_is_all_rounding_is_no_counterexample() -> None:
    programs = pair(
        lambda b, x: nothing(b, x, False), lambda b, x: nothing(b, x, True), typed(4, 8)
    )
    assert refute(*programs) is None
    assert isinstance(verify(*programs), Proof)


def test_small_but_real_difference_is_a_counterexample() -> None:
    programs = pair(
        lambda b, x: x, lambda b, x: b.add("mul_scalar", x, value=Fraction(10001, 10000)), typed(4)
    )
    assert isinstance(verify(*programs), Counterexample)


def test_lookup_in_no_rows_has_an_index_to_try() -> None:
    one, many, contract = pair(
        lambda b, x, i: b.add("take", x, i),
        lambda b, x, i: b.add("take", x, i),
        typed(0, 2),
        typed(3, dtype="i64"),
    )
    assert index_bounds(one) == {"x1": 0}
    assert sample(one, Floats(), np.random.default_rng(0), {})["x1"].shape == (3,)
    assert isinstance(verify(one, many, contract), Proof)
