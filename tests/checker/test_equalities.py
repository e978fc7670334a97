"""Equalities of terms that are tried on numbers: which numbers a term may have."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shardproof.verifier.domains.base import Array
from shardproof.verifier.smt.equalities import equalities
from shardproof.verifier.smt.values import Entries, Place, Whole
from shardproof.verifier.terms import Ref
from shardproof.verifier.terms.defined import MAX_OPEN
from shardproof.verifier.terms.told import Call, Told


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_float_that_is_said_to_be_its_own_bool_is_refuted(order: tuple[int, int]) -> None:
    told = Told()
    x, y = told.var("x", (4,)), told.var("y", (4,))
    wrong = Call("cast", (x,), (("dtype", "bool"),), ("f32",), x)
    read = Call("where", (x, y, y), (), ("bool", "f32", "f32"), y)
    told.calls.update((call, False) for call in [(wrong, read)[i] for i in order])
    assert "cast" in equalities([told]).wrong


def test_a_bool_that_is_read_as_a_float_is_0_or_1() -> None:
    told = Told()
    x, y = told.var("x", (4,)), told.var("y", (4,))
    right = Call("cast", (x,), (("dtype", "f32"),), ("bool",), x)
    told.calls[right] = False
    told.combine([(Fraction(1), x), (Fraction(1), y)])
    assert not equalities([told]).wrong


@pytest.mark.parametrize(("told_as", "wrong"), [(Fraction(1, 2), False), (Fraction(1), True)])
def test_half_of_a_count_is_tried_where_it_is_whole(told_as: Fraction, wrong: bool) -> None:
    """Balanced ranks count half of all each, and the draws are not balanced."""
    told = Told()
    count = told.var("count", ())
    half = Ref(Fraction(1, 2), count.id)
    made = Ref(told_as, count.id)
    told.calls[Call("cast", (half,), (("dtype", "f32"),), ("i64",), made)] = False
    assert bool(equalities([told]).wrong) == wrong


@pytest.mark.parametrize("right", [True, False])
def test_a_count_that_is_never_whole_is_left_to_z3(right: bool) -> None:
    told = Told()
    count = told.var("count", ())
    part = Ref(Fraction(1, 1009), count.id)
    odd = told.combine([(Fraction(1), part), (Fraction(1, 3), told.ones(()))])
    told.calls.clear()
    made = odd if right else count
    told.calls[Call("cast", (odd,), (("dtype", "f32"),), ("i64",), made)] = False
    tried = equalities([told])
    assert bool(tried.wrong) != right
    assert tried.counts == ({"shown": 1} if right else {"numbers": 1})


@pytest.mark.parametrize("left_out", [False, True])
def test_a_factor_without_a_value_is_kept_below_a_term_of_many(left_out: bool) -> None:
    """More functions than are named: the factor itself must be below what is made of it."""
    told = Told()
    told.need(())
    many = [told.reciprocal(told.var(f"x{i}", (4,))) for i in range(MAX_OPEN + 1)]
    long = told.combine([(Fraction(1), r) for r in many])
    factor = told.reciprocal(told.var("y", (4,)))
    made = long if left_out else told.product([factor, long])
    told.calls.clear()
    told.calls[Call("mul", (factor, long), (), ("f32", "f32"), made)] = True
    assert ("which may have no value" in equalities([told]).wrong) == left_out


class Dealt(Entries):
    """Entries of the numbers that whole terms have."""

    whole: Whole

    def _drawn(self, id: int, place: Place) -> Array:
        return self.whole._drawn(id, self.terms[id])[tuple(place)]  # pyright: ignore[reportPrivateUsage]


KINDS = {"x": "f32", "y": "f32", "i": "i64", "b": "bool"}
APPLIED: list[tuple[str, str, dict[str, Any]]] = [
    ("mm", "x:4,6 y:6,4", {}),
    ("bmm", "x:2,4,6 y:2,6,3", {}),
    ("add", "x:4,6 y:6", {}),
    ("div", "x:4,1 y:4,6", {}),
    ("pow", "x:4,6", {"exponent": Fraction(-2)}),
    ("where", "b:4,6 x:4,6 y:6", {}),
    ("lt", "x:4,6 y:4,1", {}),
    ("cast", "x:4,6", {"dtype": "i64"}),
    ("sum", "x:2,4,6", {"dims": (0, 2), "keepdim": False}),
    ("sum", "x:2,4,6", {"dims": (0, 1), "keepdim": True}),
    ("amax", "x:2,4,6", {"dims": (1,), "keepdim": True}),
    ("reshape", "x:2,4,6", {"shape": (8, 3, 2)}),
    ("permute", "x:2,4,6", {"dims": (1, 2, 0)}),
    ("expand", "x:4,1", {"shape": (2, 4, 6)}),
    ("slice", "x:4,12", {"dim": 1, "start": 3, "stop": 9, "step": 2}),
    ("pad", "x:4,6", {"dim": 0, "lo": 1, "hi": 2}),
    ("concat", "x:4,6 y:4,3 x:4,6", {"dim": 1}),
    ("flip", "x:4,6", {"dim": 1}),
    ("cumsum", "x:4,6", {"dim": 1, "exclusive": True}),
    ("topk_mask", "x:4,6", {"dim": 0, "k": 2}),
    ("take", "x:4,6 i:3,2", {"dim": 1, "offset": 1}),
    ("take_along", "x:4,6 i:4,3", {"dim": 1, "offset": 0}),
    ("index_add", "x:3,2,6 i:3,2", {"size": 4, "offset": -1}),
    ("put_along", "x:4,3 i:4,3", {"dim": 1, "size": 6, "offset": 0}),
    ("iota", "", {"shape": (4, 6), "dim": 1, "offset": 2, "dtype": "i64"}),
    ("full", "", {"shape": (4, 6), "value": Fraction(3, 2), "dtype": "f32"}),
]


@pytest.mark.parametrize(("op", "operands", "attrs"), APPLIED, ids=lambda v: str(v)[:20])
def test_single_entries_are_those_of_the_whole(
    op: str, operands: str, attrs: dict[str, Any]
) -> None:
    """Of an op on terms, and of the term that it is."""
    told = Told()
    split = [word.split(":") for word in operands.split()]
    args = [told.var(f"{n}{k}", tuple(map(int, s.split(",")))) for k, (n, s) in enumerate(split)]
    dtypes = [KINDS[name] for name, _ in split]
    made = told.apply(op, args, attrs, dtypes)
    kinds = {a.id: d for a, d in zip(args, dtypes, strict=True)}
    whole = Whole(told, kinds, set(), 3)
    entries = Dealt(told, kinds, set(), 3, told.shape(made), 24)
    entries.whole = whole
    at = tuple(entries.place)
    assert np.allclose(entries.given(made), whole.given(made)[at])
    asked = whole.applied(op, args, dtypes, attrs)
    assert np.allclose(entries.applied(op, args, dtypes, attrs), asked[at])


@pytest.mark.parametrize(("deep", "large"), [(5, False), (400, True)])
def test_equal_terms_that_are_large_and_deep_are_counted(deep: int, large: bool) -> None:
    told = Told()
    x = told.var("x", (1024, 1024))
    for _ in range(deep):
        x = told.mapped("tanh", [x], ())
    other = told.mapped("relu", [x], ())
    told.same(x, other)
    tried = equalities([told])
    assert bool(tried.wrong) != large
    assert bool(tried.counts.get("large")) == large


@pytest.mark.parametrize("shape", [(0,), (4,), (40, 40)])
def test_entries_of_small_tensors_are_those_that_are_drawn_one_by_one(
    shape: tuple[int, ...],
) -> None:
    told = Told()
    x = told.var("x", shape)
    numbers = Entries(told, {}, set(), 6, (5,), 4)
    place = np.array([[-1, 0, 3, 5]] * len(shape))
    alone = [float(numbers.of(x, place[:, i : i + 1])[0]) for i in range(4)]
    assert numbers.of(x, place).tolist() == alone
    assert len(set(alone)) == 4
