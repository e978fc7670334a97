"""Equalities of terms that are tried on numbers: which numbers a term may have."""

from __future__ import annotations

from fractions import Fraction

import pytest

from verifier.smt.equalities import equalities
from verifier.terms import Ref
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


@pytest.mark.parametrize(("told_as", "wrong"), [(Fraction(1, 2), False), (Fraction(1), True)])
def test_half_of_a_count_is_tried_where_it_is_whole(told_as: Fraction, wrong: bool) -> None:
    """Balanced ranks count half of all each, and the draws are not balanced."""
    told = Told()
    count = told.var("count", ())
    half = Ref(Fraction(1, 2), count.id)
    made = Ref(told_as, count.id)
    told.calls[Call("cast", (half,), (("dtype", "f32"),), ("i64",), made)] = None
    assert bool(equalities([told]).wrong) == wrong


def test_a_count_that_is_never_whole_is_not_tried() -> None:
    told = Told()
    count = told.var("count", ())
    part = Ref(Fraction(1, 1009), count.id)
    odd = told.combine([(Fraction(1), part), (Fraction(1, 3), told.ones(()))])
    told.calls[Call("cast", (odd,), (("dtype", "f32"),), ("i64",), count)] = None
    tried = equalities([told])
    assert not tried.wrong
    assert tried.large
