"""Entries as polynomials: random expressions have the values of floats, and equal ones are equal
wherever the first has a value."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import shardproof.verifier.kernel  # noqa: F401  ops declare functions
from shardproof.verifier.domains.axioms import Gap, parts
from shardproof.verifier.domains.base import Array, UndefinedError
from shardproof.verifier.domains.floats import FUNCTIONS, Floats
from shardproof.verifier.domains.monomials import difference
from shardproof.verifier.domains.polynomials import Entry, Polynomials
from shardproof.verifier.provers.scalars.closing import close
from tests.checker.test_identities import value

NAMES = ("x", "y")
UNARY = ("exp", "log", "sqrt", "rsqrt", "abs", "relu", "sigmoid", "tanh", "softplus", "sin", "cos")
POWERS = ("pow:2", "pow:3", "pow:-1", "pow:-2", "pow:3/2", "erf", "expm1")
BINARY = ("add", "mul", "sub", "div", "maximum", "minimum")
PARTLY = ("log", "sqrt", "rsqrt", "div", "pow:-1", "pow:-2", "pow:3/2")
CHOICES = ("lt", "ge", "eq", "gt")
Tree = Any
leaves = st.one_of(st.sampled_from(NAMES), st.sampled_from([Fraction(n) for n in (-2, 0, 1, 3)]))


def larger(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    choice = st.sampled_from([f"where:{c}" for c in CHOICES])
    return st.one_of(
        st.tuples(st.sampled_from((*UNARY, *POWERS, "neg")), inner),
        st.tuples(st.sampled_from(BINARY), inner, inner),
        st.tuples(choice, inner, inner, inner, inner),
    )


trees = st.recursive(leaves, larger, max_leaves=7)
CORNERS = [float(v) for v in (-2, -1, 0, 1, 2)]


def run(tree: Tree, domain: Any, values: dict[str, Array]) -> Array:
    if isinstance(tree, str):
        return values[tree]
    if isinstance(tree, Fraction):
        return domain.const(tree)
    name, *operands = tree
    done = [run(t, domain, values) for t in operands]
    if name.startswith("where:"):
        return domain.where(domain.compare(name[6:], done[0], done[1]), done[2], done[3])
    if len(done) == 1 and name != "neg":
        return domain.unary(name, done[0])
    return getattr(domain, name)(*done)


def number(tree: Tree, at: dict[str, float]) -> float | None:
    """The value, None where there is none: a choice needs its condition and what it takes. No
    number where floats do not tell."""
    if isinstance(tree, str):
        return at[tree]
    if isinstance(tree, Fraction):
        return float(tree)
    name, *operands = tree
    if name.startswith("where:"):
        left, right = (number(t, at) for t in operands[:2])
        if left is None or right is None:
            return None
        if math.isnan(left - right) or (abs(left - right) < 1e-9 and left != right):
            return math.nan
        holds = {"lt": left < right, "ge": left >= right, "eq": left == right, "gt": left > right}
        return number(operands[2 if holds[name[6:]] else 3], at)
    done = [number(t, at) for t in operands]
    if None in done:
        return None
    given = {n: np.asarray(v) for n, v in zip(NAMES, done, strict=False)}
    with np.errstate(all="ignore"):
        made = float(run((name, *given), Floats(), given))
    if math.isfinite(made) or not all(map(np.isfinite, given.values())):
        return made
    return None if name in PARTLY else math.nan


def entry(tree: Tree, bank: Polynomials) -> Entry:
    values = {n: bank.symbols(n, ()) for n in NAMES}
    return bank.lift(np.asarray(run(tree, bank, values)))[()]


def points(seed: int) -> list[dict[str, float]]:
    rng = np.random.default_rng(seed)
    drawn = [*map(float, rng.standard_normal(3))]
    return [dict(zip(NAMES, at, strict=True)) for at in product([*CORNERS, *drawn], repeat=2)]


@settings(max_examples=300, deadline=None, derandomize=True)
@example(("div", "x", ("add", ("div", "y", ("exp", "x")), ("sqrt", "y"))), 0)
@example(("log", ("div", ("exp", "x"), ("add", ("exp", "y"), Fraction(1)))), 0)
@given(trees, st.integers(0, 2**32))
def test_a_polynomial_has_the_value_of_its_expression(tree: Tree, seed: int) -> None:
    bank = Polynomials()
    try:
        made = entry(tree, bank)
    except UndefinedError:
        return
    for at in points(seed)[::7]:
        want = number(tree, at)
        if want is None or not abs(want) < 1e6:
            continue
        with np.errstate(all="ignore"):
            try:
                have = value(bank, made.terms, {n: np.asarray(v) for n, v in at.items()})
            except (OverflowError, ZeroDivisionError, ValueError, TypeError):
                continue
        if isinstance(have, float) and math.isfinite(have):
            assert have == pytest.approx(want, rel=1e-5, abs=1e-5)


def proved(one: Tree, other: Tree) -> bool:
    """Whether the checker would take the second for the first, wherever that has a value."""
    bank = Polynomials()
    try:
        bank.least = True
        a = entry(one, bank)
        bank.least = False
        b = entry(other, bank)
        if not b.needs <= a.needs:
            return False
        for terms in parts(bank, difference(a.terms, b.terms)):
            gap = Gap(bank, terms, a.needs)
            gap.said()
            if close(gap) is None:
                return False
        return True
    except UndefinedError:
        return False


def _inside(tree: Tree, change: Callable[[Tree], Tree | None], at: int) -> Tree:
    """The tree with its node of a number changed, in the order in which they are met."""
    count = -1

    def walk(t: Tree) -> Tree:
        nonlocal count
        count += 1
        made = change(t) if count == at else None
        if made is not None:
            return made
        return (t[0], *map(walk, t[1:])) if isinstance(t, tuple) else t

    return walk(tree)


def _zero(t: Tree, f: str) -> Tree:
    """Nothing, where a function of it has a value."""
    return ("sub", (f, t), (f, t))


ONE = Fraction(1)
CHANGES: dict[str, Callable[[Tree], Tree | None]] = {
    "over itself": lambda t: ("mul", t, ("div", t, t)),
    "twice inverted": lambda t: ("div", ONE, ("div", ONE, t)),
    "a root squared": lambda t: ("mul", ("sqrt", t), ("sqrt", t)),
    "a square's root": lambda t: ("sqrt", ("mul", t, t)),
    "of a logarithm": lambda t: ("exp", ("log", t)),
    "a logarithm is needed": lambda t: ("add", t, _zero(t, "log")),
    "an inverse is needed": lambda t: ("add", t, _zero(t, "pow:-1")),
    "above 0 alone": lambda t: ("where:gt", t, Fraction(0), t, Fraction(0)),
    "at least 0 alone": lambda t: ("where:ge", t, Fraction(0), t, Fraction(0)),
    "not 0 alone": lambda t: ("where:eq", t, Fraction(0), Fraction(0), t),
    "guarded": lambda t: ("where:gt", t, Fraction(0), t, ("log", t)),
    "guarded the other way": lambda t: ("where:gt", t, Fraction(0), ("log", t), t),
    "turned": lambda t: ("neg", (t[0], ("neg", t[1])))
    if isinstance(t, tuple) and len(t) == 2 else None,
    "even": lambda t: (t[0], ("neg", t[1])) if isinstance(t, tuple) and len(t) == 2 else None,
    "a quotient's inverse": lambda t: ("div", t[2], t[1])
    if isinstance(t, tuple) and t[0] == "div" else None,
    "inverse of the square": lambda t: ("mul", t, ("mul", t, ("pow:-1", ("mul", t, t)))),
    "parts of a logarithm": lambda t: ("sub", ("log", t[1][1]), ("log", t[1][2]))
    if isinstance(t, tuple) and t[0] == "log" and isinstance(t[1], tuple) and t[1][0] == "div"
    else None,
    "the absolute value": lambda t: ("abs", t),
    "a choice of one side": lambda t: t[3]
    if isinstance(t, tuple) and t[0].startswith("where") else None,
}  # fmt: skip


@settings(max_examples=1200, deadline=None, derandomize=True)
@given(
    trees, st.sampled_from(sorted(CHANGES)), st.integers(0, 8), st.booleans(), st.integers(0, 2**32)
)
def test_what_is_taken_for_equal_is_wherever_the_first_has_a_value(
    tree: Tree, name: str, at: int, swap: bool, seed: int
) -> None:
    """Laws that hold somewhere, applied anywhere: under choices, inside functions."""
    one, other = tree, _inside(tree, CHANGES[name], at)
    if swap:
        one, other = other, one
    if one == other or not proved(one, other):
        return
    for point in points(seed):
        want = number(one, point)
        if want is None or not abs(want) < 1e6:
            continue
        have = number(other, point)
        assert have is not None, (one, other, point)
        assert math.isnan(have) or have == pytest.approx(want, rel=1e-5, abs=1e-5), (one, other)


def test_a_negative_power_of_ten_is_no_mask_unless_asked() -> None:
    for masks in (False, True):
        bank = Polynomials(masks)
        x = bank.symbols("x", ())
        low = bank.unary("exp", bank.add(x, bank.const(Fraction(-(10**30)))))
        assert bool(low[()].terms) != masks
        assert bank.masked == masks
        high = bank.unary("exp", bank.add(x, bank.const(Fraction(10**30))))
        assert high[()].terms


@pytest.mark.parametrize("name", sorted(n for n, f in FUNCTIONS.items() if f.parity))
def test_a_function_is_even_or_odd_as_it_claims(name: str) -> None:
    xs = np.concatenate([np.linspace(-5, 5, 101), [1e-9, 20.0]])
    of = FUNCTIONS[name]
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(of.floats(-xs), of.parity * of.floats(xs), atol=1e-12)
