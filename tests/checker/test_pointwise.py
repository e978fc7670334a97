"""Equalities of terms that Z3 shows, refutes, or knows too little about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from shardproof.verifier.smt.equalities import equalities
from shardproof.verifier.smt.pointwise import ask
from shardproof.verifier.smt.solver import obligations, read_smtlib
from shardproof.verifier.terms import Ref, building
from shardproof.verifier.terms.told import Call, Told

ONE = Fraction(1)
Of = Callable[[Told, Ref], Ref]
Of3 = Callable[[Told, Ref, Ref, Ref], Ref]
KINDS = {"x": "f32", "y": "f32", "z": "f32", "i": "i64", "b": "bool"}


def answer(told: Told, call: Call) -> str:
    kinds = {a.id: k for a, k in zip(call.args, call.dtypes, strict=False)}
    return ask(told, call, told.shape(call.made), kinds, set(range(len(told.nodes))))


def built(op: str, operands: str, attrs: dict[str, Any]) -> tuple[Told, Call]:
    """An op on inputs with factors, as it was told."""
    told, args, dtypes = Told(), list[Ref](), list[str]()
    for k, (name, shape) in enumerate(word.split(":") for word in operands.split()):
        sizes = tuple(int(n) for n in shape.split(",") if n)
        args.append(told.var(f"{name}{k}", sizes))
        dtypes.append(KINDS[name])
    told.apply(op, [Ref(Fraction(k + 2, 3), a.id) for k, a in enumerate(args)], attrs, dtypes)
    (call,) = told.calls
    return told, call


OPS: list[tuple[str, str, dict[str, Any]]] = [
    ("add", "x:4,6 y:6", {}),
    ("sub", "x:4,1 y:4,6", {}),
    ("mul", "x:4,6 y:4,1", {}),
    ("div", "x:4,6 y:6", {}),
    ("neg", "x:4,6", {}),
    ("mul_scalar", "x:4,6", {"value": Fraction(1, 7)}),
    ("add_scalar", "x:4,6", {"value": Fraction(1, 10**9)}),
    ("pow", "x:4,6", {"exponent": Fraction(3)}),
    ("pow", "x:4,6", {"exponent": Fraction(-2)}),
    ("reciprocal", "x:4,6", {}),
    ("where", "b:4,6 x:4,6 y:6", {}),
    ("gt", "x:4,6 y:4,1", {}),
    ("ge", "x:4,6 y:4,1", {}),
    ("maximum", "x:4,6 y:6", {}),
    ("exp", "x:4,6", {}),
    ("cast", "b:4,6", {"dtype": "f32"}),
    ("cast", "x:4,6", {"dtype": "i64"}),
    ("sum", "x:2,1,6", {"dims": (1, 2), "keepdim": True}),
    ("amax", "x:2,1,6", {"dims": (0, 2), "keepdim": False}),
    ("mm", "x:4,6 y:6,4", {}),
    ("bmm", "x:2,4,6 y:2,6,3", {}),
    ("reshape", "x:2,12", {"shape": (4, 3, 2)}),
    ("permute", "x:2,1,6", {"dims": (2, 1, 0)}),
    ("expand", "x:4,1", {"shape": (2, 4, 6)}),
    ("slice", "x:4,12", {"dim": 1, "start": 3, "stop": 9, "step": 2}),
    ("pad", "x:4,6", {"dim": 0, "lo": 1, "hi": 2}),
    ("concat", "x:4,6 y:4,3", {"dim": 1}),
    ("flip", "x:4,6", {"dim": 1}),
    ("take", "x:4,6 i:3", {"dim": 1, "offset": 1}),
    ("take_along", "x:4,6 i:4,3", {"dim": 1, "offset": 0}),
    ("index_add", "x:3,6 i:3", {"size": 4, "offset": -1}),
    ("iota", "", {"shape": (4, 6), "dim": 1, "offset": 2, "dtype": "i64"}),
    ("full", "", {"shape": (4, 6), "value": Fraction(3, 2), "dtype": "f32"}),
    ("mm", "x:4096,8192 y:8192,512", {}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "operands", "attrs"), OPS, ids=lambda v: str(v)[:24])
def test_what_a_constructor_gives_is_shown_and_nothing_else(
    op: str, operands: str, attrs: dict[str, Any]
) -> None:
    told, call = built(op, operands, attrs)
    assert answer(told, call) == "shown"
    off = call.made.coef * Fraction(10**9 + 1, 10**9) or ONE
    wrong = [replace(call, made=Ref(off, call.made.id))]
    wrong += [replace(call, made=told.mapped("cos", [call.made], ()))]
    for other in wrong:
        assert answer(told, other) != "shown"


def test_a_constructor_is_refuted_where_it_is_asked_about_inputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It loses a factor that is near to 1, of a term that Z3 knows little about."""
    told = Told()
    x = told.mapped("tanh", [told.var("x", (4,))], ())
    monkeypatch.setitem(building.BUILD, "mul_scalar", lambda t, a, k, d: a[0])
    told.calls.clear()
    told.apply("mul_scalar", [x], {"value": 1 + Fraction(1, 10**12)}, ("f32",))
    wrong = equalities([told]).wrong
    assert wrong.startswith("Z3 refutes an equality: mul_scalar of ['tanh[4]']"), wrong


def summed(t: Told, x: Ref, *dims: int) -> Ref:
    return t.reduce("sum", x, dims, False)


def twice(t: Told, x: Ref) -> Ref:
    return t.apply("concat", [x, x], {"dim": 0}, ("f32", "f32"))


def tall(t: Told) -> Ref:
    return t.var("tall", (2, 90))


def block(t: Told, start: int, stop: int) -> Ref:
    attrs = {"dim": 1, "start": start, "stop": stop, "step": 1}
    return t.apply("slice", [tall(t)], attrs, ("f32",))


def both(t: Told, *at: tuple[int, int]) -> Ref:
    return t.combine([(ONE, summed(t, block(t, *each), 1)) for each in at])


def most(t: Told, *at: tuple[int, int]) -> Ref:
    return t.mapped("maximum", [t.reduce("amax", block(t, *each), (1,), False) for each in at], ())


def doubled(t: Told, x: Ref) -> Ref:
    return t.combine([(Fraction(2), t.mapped("exp", [summed(t, x, 2)], ()))])


LAWS: list[tuple[str, bool, Of, Of]] = [
    ("a sum of a sum", True, lambda t, x: summed(t, summed(t, x, 2), 0),
     lambda t, x: summed(t, x, 0, 2)),
    ("a sum of digits", True, lambda t, x: summed(t, t.reshape(x, (2, 12)), 1),
     lambda t, x: summed(t, x, 1, 2)),
    ("a sum of other dims", False, lambda t, x: summed(t, x, 0, 1),
     lambda t, x: twice(t, summed(t, x, 1, 2))),
    ("a maximum is no sum", False, lambda t, x: t.reduce("amax", x, (1, 2), False),
     lambda t, x: summed(t, x, 1, 2)),
    ("a product of powers", True, lambda t, x: t.product([x, x, t.product([x])]),
     lambda t, x: t.product([t.product([x, x]), x])),
    ("a sum of squares of sums", False,
     lambda t, x: summed(t, t.product([summed(t, x, 2)] * 2), 1),
     lambda t, x: t.combine([(Fraction(3), summed(t, t.product([summed(t, x, 1)] * 2), 1))])),
    ("a sum of functions of sums", True,
     lambda t, x: summed(t, t.mapped("exp", [summed(t, x, 2)], ()), 1),
     lambda t, x: t.combine([(Fraction(1, 2), summed(t, doubled(t, x), 1))])),
    ("a sum of blocks", True, lambda t, x: summed(t, tall(t), 1),
     lambda t, x: both(t, (0, 40), (40, 90))),
    ("a sum of blocks that overlap", False, lambda t, x: summed(t, tall(t), 1),
     lambda t, x: both(t, (0, 40), (39, 89))),
    ("a maximum of blocks", True, lambda t, x: t.reduce("amax", tall(t), (1,), False),
     lambda t, x: most(t, (0, 40), (40, 90))),
    ("a shift of exp", False,
     lambda t, x: t.mapped("exp", [t.combine([(ONE, x), (ONE, t.ones(()))])], ()),
     lambda t, x: t.mapped("exp", [x], ())),
]  # fmt: skip


@pytest.mark.parametrize(("name", "equal", "one", "other"), LAWS, ids=lambda v: str(v)[:20])
def test_terms_that_are_taken_for_equal(name: str, equal: bool, one: Of, other: Of) -> None:
    told = Told()
    x = told.var("x", (2, 3, 4))
    first, second = one(told, x), other(told, x)
    call = Call("", (first,), (), (), second)
    said = ask(told, call, told.shape(first), {}, set(range(len(told.nodes))))
    assert (said == "shown") == equal, name


def test_a_function_that_has_no_value_is_no_premise_of_itself() -> None:
    """`where(x > 0, log x, 0)` has a value everywhere: it is not `log x`."""
    told = Told()
    x = told.var("x", (4,))
    zero, log = told.full((4,), Fraction(0)), told.mapped("log", [x], ())
    guard = told.apply("gt", [x, zero], {}, ("f32", "f32"))
    told.calls.clear()
    guarded = told.apply("where", [guard, log, zero], {}, ("bool", "f32", "f32"))
    told.calls = {Call("", (guarded,), (), (), log): False}
    (call,) = told.calls
    assert answer(told, call) == "open"
    assert answer(told, replace(call, args=(log,), made=log)) == "shown"


def test_a_contradiction_shows_nothing() -> None:
    """The logarithm of -1 has no value: what is said of it is not shown."""
    told = Told()
    log = told.mapped("log", [told.full((4,), Fraction(-1))], ())
    call = Call("exp", (log,), (), ("f32",), told.full((4,), Fraction(5)))
    assert answer(told, call) == "open"


def test_terms_that_a_form_does_not_show_are_arbitrary() -> None:
    told = Told()
    x = told.var("x", (4,))
    double = told.mapped("relu", [x], ())
    call = Call("combine", (double,), (("weights", (ONE,)),), (), told.mapped("relu", [double], ()))
    every = set(range(len(told.nodes)))
    assert ask(told, call, (4,), {}, every) == "shown"
    assert ask(told, call, (4,), {}, every - {double.id}) != "shown"


def test_obligations_of_equal_terms_are_written() -> None:
    told, call = built("div", "x:4,6 y:6", {})
    with obligations() as found:
        assert answer(told, call) == "shown"
        assert answer(told, replace(call, made=call.args[0])) == "open"
    assert found
    assert {read_smtlib(one.text) for one in found.values()} == {"unsat"}


def product(t: Told, a: Ref, b: Ref) -> Ref:
    return t.apply("mm", [a, b], {}, ["f32", "f32"])


def plus(t: Told, *parts: Ref, weights: tuple[int, ...] = (1, 1)) -> Ref:
    return t.combine([(Fraction(w), r) for w, r in zip(weights, parts, strict=True)])


def times(t: Told, a: Ref, b: Ref) -> Ref:
    return t.apply("mul", [a, b], {}, ["f32", "f32"])


def half(t: Told, x: Ref, dim: int, at: int) -> Ref:
    size = t.shape(x)[dim] // 2
    attrs = {"dim": dim, "start": at * size, "stop": (at + 1) * size, "step": 1}
    return t.apply("slice", [x], attrs, ["f32"])


def turned(t: Told, x: Ref) -> Ref:
    return t.permute(x, (1, 0))


SPREAD: dict[str, tuple[Of3, Of3, Of3]] = {
    "a product of a sum": (
        lambda t, x, y, w: product(t, plus(t, x, y), w),
        lambda t, x, y, w: plus(t, product(t, x, w), product(t, y, w)),
        lambda t, x, y, w: plus(t, product(t, x, w), product(t, y, w), weights=(1, 2)),
    ),
    "a factor before a sum": (
        lambda t, x, y, w: t.reduce("sum", times(t, x, t.reduce("sum", y, (1,), True)), (1,), True),
        lambda t, x, y, w: times(
            t, t.reduce("sum", x, (1,), True), t.reduce("sum", y, (1,), True)
        ),
        lambda t, x, y, w: t.reduce("sum", times(t, x, y), (1,), True),
    ),
    "a sum over what is the same": (
        lambda t, x, y, w: t.reduce(
            "sum", plus(t, x, t.reduce("sum", y, (1,), True)), (1,), True
        ),
        lambda t, x, y, w: plus(
            t, t.reduce("sum", x, (1,), True), t.reduce("sum", y, (1,), True), weights=(1, 512)
        ),
        lambda t, x, y, w: plus(t, t.reduce("sum", x, (1,), True), t.reduce("sum", y, (1,), True)),
    ),
    "products in another order": (
        lambda t, x, y, w: product(t, product(t, x, w), turned(t, y)),
        lambda t, x, y, w: product(t, x, product(t, w, turned(t, y))),
        lambda t, x, y, w: product(t, x, product(t, turned(t, w), turned(t, y))),
    ),
    "a square of a sum": (
        lambda t, x, y, w: t.reduce("sum", times(t, plus(t, x, y), plus(t, x, y)), (1,), True),
        lambda t, x, y, w: plus(
            t,
            t.reduce("sum", times(t, x, x), (1,), True),
            t.reduce("sum", times(t, x, y), (1,), True),
            t.reduce("sum", times(t, y, y), (1,), True),
            weights=(1, 2, 1),
        ),
        lambda t, x, y, w: plus(
            t,
            t.reduce("sum", times(t, x, x), (1,), True),
            t.reduce("sum", times(t, y, y), (1,), True),
        ),
    ),
    "the square of a sum over indices": (
        lambda t, x, y, w: times(
            t, t.reduce("sum", x, (1,), True), t.reduce("sum", x, (1,), True)
        ),
        lambda t, x, y, w: t.reduce(
            "sum", times(t, x, t.reduce("sum", x, (1,), True)), (1,), True
        ),
        lambda t, x, y, w: t.reduce("sum", times(t, x, x), (1,), True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPREAD)
def test_sums_of_sums_are_shown_as_sums_of_products_and_others_are_not(name: str) -> None:
    given, right, wrong = SPREAD[name]
    for other, shown in ((right, True), (wrong, False)):
        told = Told()
        x, y = (told.var(n, (256, 512)) for n in "xy")
        w = told.var("w", (512, 512))
        sides = [of(told, x, y, w) for of in (given, other)]
        call = Call("", (sides[0],), (), (), sides[1])
        kinds = {x.id: "f32", y.id: "f32", w.id: "f32"}
        said = ask(told, call, told.shape(call.made), kinds, set(range(len(told.nodes))))
        assert (said == "shown") == shown
