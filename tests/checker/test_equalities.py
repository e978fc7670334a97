"""Equalities of terms that are tried on numbers: which numbers a term may have."""

from __future__ import annotations

from fractions import Fraction

import pytest

from verifier.smt.equalities import equalities
from verifier.terms.told import Call, Told


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_float_that_is_said_to_be_its_own_bool_is_refuted(order: tuple[int, int]) -> None:
    told = Told()
    x, y = told.var("x", (4,)), told.var("y", (4,))
    wrong = Call("cast", (x,), (("dtype", "bool"),), ("f32",), x)
    read = Call("where", (x, y, y), (), ("bool", "f32", "f32"), y)
    told.calls.update((call, None) for call in [(wrong, read)[i] for i in order])
    assert "cast" in equalities([told]).wrong


def test_a_bool_that_is_read_as_a_float_is_0_or_1() -> None:
    told = Told()
    x, y = told.var("x", (4,)), told.var("y", (4,))
    right = Call("cast", (x,), (("dtype", "f32"),), ("bool",), x)
    told.calls[right] = None
    told.combine([(Fraction(1), x), (Fraction(1), y)])
    assert not equalities([told]).wrong
