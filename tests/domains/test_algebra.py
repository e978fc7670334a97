"""Forms of real expressions: their identities hold, and equal forms have equal values."""

from __future__ import annotations

import math
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import shardproof.verifier.kernel  # noqa: F401  ops declare the forms of functions
from shardproof.verifier.domains.algebra import Algebra, Budget, ExceededError, Expr
from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.smt import solver as smt
from shardproof.verifier.smt.pieces import equations
from tests.asking import Lawful
from tests.domains.identities import IDENTITIES, Identity, Scalars


def sides(identity: Identity, domain: Domain, values: dict[str, Array]) -> tuple[Array, Array]:
    words = Scalars(domain)
    return identity.left(words, values), identity.right(words, values)


@pytest.mark.parametrize("identity", IDENTITIES, ids=str)
def test_an_identity_is_found_on_the_forms(identity: Identity) -> None:
    algebra = Algebra()
    values = {n: algebra.symbols(n, ()) for n in identity.variables}
    with algebra.table.assuming():
        for name in identity.positive:
            algebra.table.need_positive(values[name][()])
    left, right = sides(identity, algebra, values)
    assert algebra.table.equal(algebra.lift(left)[()], algebra.lift(right)[()])
    assert not algebra.table.unmet


@pytest.mark.parametrize("identity", IDENTITIES, ids=str)
def test_an_identity_holds_on_floats(identity: Identity) -> None:
    rng = np.random.default_rng(0)
    for trial in range(50):
        values = {n: np.asarray(rng.standard_normal()) for n in identity.variables}
        if trial == 0 and not identity.positive:
            values = {n: np.asarray(0.0) for n in identity.variables}
        values |= {n: np.abs(values[n]) + 1e-3 for n in identity.positive}
        left, right = sides(identity, Floats(), values)
        assert left == pytest.approx(right, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("identity", [i for i in IDENTITIES if i.decidable], ids=str)
def test_z3_proves_an_identity_it_can_state(identity: Identity) -> None:
    domain = Lawful()
    values = {n: domain.symbols(n, ()) for n in identity.variables}
    left, right = sides(identity, domain, values)
    premises = [*domain.facts, *(values[n][()] > 0 for n in identity.positive)]
    goals = equations(domain.lift(left), domain.lift(right))
    assert all(smt.prove(goal, premises) == smt.Valid() for goal in goals)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (
            "exp of a product",
            lambda s, x, y: (s("exp", s.mul(x, y)), s.mul(s("exp", x), s("exp", y))),
        ),
        ("log of a sum", lambda s, x, y: (s("log", s.add(s.mul(x, x), y)), s("log", x))),
        ("root of a square", lambda s, x, y: (s("sqrt", s.mul(x, x)), x)),
        (
            "negative scale of a maximum",
            lambda s, x, y: (s.max(s.neg(x), s.neg(y)), s.neg(s.max(x, y))),
        ),
        ("strict and weak order", lambda s, x, y: (s.truth("lt", x, y), s.truth("le", x, y))),
        (
            "relu of a sum",
            lambda s, x, y: (s("relu", s.add(x, y)), s.add(s("relu", x), s("relu", y))),
        ),
        ("slope of relu at 0", lambda s, x, y: (s("relu_grad", x), s.truth("ge", x, s.number(0)))),
        ("one operand of a maximum", lambda s, x, y: (s.max(x, y, s.number(0)), s.max(x, y))),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_is_no_identity_is_not_found(text: str, wrong: object) -> None:
    algebra = Algebra()
    x, y = algebra.symbols("x", ()), algebra.symbols("y", ())
    left, right = wrong(Scalars(algebra), x, y)  # type: ignore[operator]
    assert not algebra.table.equal(algebra.lift(left)[()], algebra.lift(right)[()]), text


def test_what_is_divided_by_must_be_divided_by_on_one_device() -> None:
    algebra = Algebra()
    table = algebra.table
    x, y = algebra.variable("x"), algebra.variable("y")
    square = table.add(table.mul(x, x), table.one)
    assert table.equal(table.mul(table.reciprocal(square), square), table.one)
    assert not table.opened
    loose = table.reciprocal(x)
    assert table.opened == 1
    assert table.mul(loose, x) is not table.one
    assert table.leaves(table.add(table.mul(loose, y), x)) == table.leaves(loose) != frozenset()
    with table.assuming():
        table.reciprocal(table.mul(x, y))
        table.unary("rsqrt", table.sub(x, y))
    table.reciprocal(y)
    table.unary("log", table.scale(table.sub(x, y), Fraction(1, 3)))
    assert table.opened == 1
    table.reciprocal(table.add(x, y))
    table.unary("log", y)
    table.unary("sqrt", table.sub(y, x))
    assert table.opened == 4


def test_a_choice_keeps_what_may_have_no_value_with_its_condition() -> None:
    algebra = Algebra()
    table = algebra.table
    x, y, q = (algebra.variable(n) for n in "xyq")
    above, _ = table.signs(x)
    loose = table.unary("log", q)
    one = table.choose(above, table.mul(y, table.add(loose, y)), table.zero)
    assert table.equal(one, table.mul(y, table.choose(above, table.add(loose, y), table.zero)))
    assert not table.equal(one, table.mul(above, table.mul(y, table.add(loose, y))))
    assert not table.leaves(loose) & table.leaves(one)
    inner = table.choose(table.signs(y)[0], loose, table.zero)
    both = table.both(above, table.signs(y)[0])
    assert table.choose(above, inner, table.zero) is table.choose(both, loose, table.zero)


def test_what_a_form_loses_is_told() -> None:
    algebra = Algebra()
    x, zero = algebra.symbols("x", (2,)), algebra.full((2,), Fraction(0))
    loose = algebra.unary("log", x)
    for op in (algebra.sub, lambda a, b: algebra.mul(a, zero)):
        algebra.watched, algebra.lost = True, ""
        op(loose, x)
        if op == algebra.sub:
            assert not algebra.lost
            op(loose, loose)
        assert "log" in algebra.lost


def test_a_budget_ends_the_work() -> None:
    algebra = Algebra(Budget(terms=500))
    x = algebra.symbols("x", (6, 6))
    with pytest.raises(ExceededError, match="500 terms"):
        algebra.matmul(algebra.matmul(x, x), x)


def test_a_long_sum_is_one_factor_until_it_must_be_spelled_out() -> None:
    algebra = Algebra()
    table = algebra.table
    x, y = (algebra.symbols(n, (12,)) for n in "xy")
    a, b = table.total((1, v) for v in x), table.total((1, v) for v in y)
    product = table.mul(a, b)
    assert len(product.terms) == 1
    parts = table.total((1, table.mul(u, v)) for u in x for v in y)
    assert table.equal(product, parts)
    assert not table.equal(product, table.add(parts, table.one))


def test_fractions_over_different_sums_are_compared_one_by_one() -> None:
    """All together have a denominator of more terms than one comparison may use."""
    algebra = Algebra()
    table = algebra.table
    rows = algebra.unary("exp", algebra.symbols("s", (8, 4)))
    v = algebra.symbols("v", (12,))
    short, long = table.zero, table.zero
    for row in rows:
        total = table.total((1, e) for e in row)
        over = table.inverted(total)
        parts = table.total((1, table.mul(e, x)) for e in row[:2] for x in v)
        product = table.named(table.expand(parts, total))
        short = table.add(short, table.mul(product, table.mul(over, over)))
        long = table.add(long, table.mul(parts, over))
    assert table.equal(short, long)
    for other in (over, v[0]):
        with suppress(ExceededError):
            assert not table.equal(short, table.add(long, other))


def test_parts_that_are_not_zero_may_be_together() -> None:
    algebra = Algebra()
    table = algebra.table
    x, y = (algebra.unary("exp", algebra.symbols(n, (12,))) for n in "xy")
    total, others = table.total((1, e) for e in x), table.total((1, e) for e in y)
    product = table.named(table.expand(total, others))
    assert table.equal(table.mul(product, table.inverted(total)), others)


# random expressions: a second, independent evaluation on floats

NAMES = ("x", "y", "z")
UNARY = ("exp", "log", "sqrt", "rsqrt", "abs", "relu", "sigmoid", "tanh", "silu", "softplus")
MORE = ("sin", "cos", "erf", "sign", "relu_grad", "pow:2", "pow:-1", "pow:3/2", "expm1", "log1p")
leaves = st.one_of(
    st.sampled_from(NAMES), st.sampled_from([Fraction(n, d) for n in (-2, 0, 1, 3) for d in (1, 2)])
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from((*UNARY, *MORE, "neg")), inner),
        st.tuples(
            st.sampled_from(("add", "mul", "sub", "div", "maximum", "minimum")), inner, inner
        ),
        st.tuples(
            st.sampled_from(("where:lt", "where:ge", "where:eq")), inner, inner, inner, inner
        ),
    ),
    max_leaves=8,
)


def run(tree: object, domain: Domain, values: dict[str, Array]) -> Array:
    if isinstance(tree, str):
        return values[tree]
    if isinstance(tree, Fraction):
        return domain.const(tree)
    assert isinstance(tree, tuple)
    name, *operands = tree
    done = [run(t, domain, values) for t in operands]
    if name.startswith("where:"):
        return domain.where(domain.compare(name[6:], done[0], done[1]), done[2], done[3])
    if len(done) == 1 and name != "neg":
        return domain.unary(name, done[0])
    return getattr(domain, name)(*done)


class Reading:
    """Values of forms at a point, by the meaning of atoms: reads a form, knows no rewriting."""

    def __init__(self, algebra: Algebra, values: dict[str, Array]) -> None:
        self.table, self.values = algebra.table, {n: float(v) for n, v in values.items()}

    def __call__(self, e: Expr) -> float:
        return math.fsum(float(c) * self.monomial(m) for m, c in e.terms.items())

    def monomial(self, m: int) -> float:
        factors, h = self.table.monomials[m]
        out = math.exp(self(self.table.exprs[h]))
        for atom, power in factors:
            out *= self.atom(atom) ** power
        return out

    def atom(self, atom: int) -> float:
        kind = self.table.atoms[atom]
        args = [self(self.table.exprs[i]) for i in kind.args]
        match kind.kind:
            case "var":
                return self.values[kind.name]
            case "const":
                return math.pi
            case "sum":
                return args[0]
            case "pos" | "neg":
                if not abs(args[0]) >= 1e-9:
                    raise ValueError("a sign that rounding decides, or that nothing has")
                return float(args[0] > 0 if kind.kind == "pos" else args[0] < 0)
            case "max":
                return max(args)
            case "root":
                return args[0] ** (1 / kind.degree) if args[0] >= 0 else math.nan
            case _:
                return float(Floats().unary(kind.name, np.asarray(args[0])))


@settings(max_examples=400, deadline=None, derandomize=True)
@example(("where:ge", "x", ("log", "y"), "x", "y"), 0)
@given(trees, st.integers(0, 2**32))
def test_a_form_has_the_value_of_its_expression(tree: object, seed: int) -> None:
    rng, algebra = np.random.default_rng(seed), Algebra(Budget(terms=50_000, seconds=2))
    values = {n: np.asarray(rng.standard_normal()) for n in NAMES}
    try:
        with algebra.table.assuming(), np.errstate(all="ignore"):
            form = algebra.lift(run(tree, algebra, {n: algebra.symbols(n, ()) for n in NAMES}))
    except ExceededError:
        return
    if algebra.table.unmet:
        return
    names = {f"{n}[]": values[n] for n in NAMES}
    with np.errstate(all="ignore"):
        want = float(run(tree, Floats(), values))
        try:
            have = Reading(algebra, names)(form[()])
        except (OverflowError, ZeroDivisionError, ValueError):
            return
    if math.isfinite(want) and math.isfinite(have) and abs(want) < 1e6:
        assert have == pytest.approx(want, rel=1e-5, abs=1e-5)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(trees, trees, st.integers(0, 2**32))
def test_equal_forms_have_equal_values(left: object, right: object, seed: int) -> None:
    rng, algebra = np.random.default_rng(seed), Algebra(Budget(terms=50_000, seconds=2))
    symbols = {n: algebra.symbols(n, ()) for n in NAMES}
    try:
        with algebra.table.assuming():
            forms = [algebra.lift(run(t, algebra, symbols))[()] for t in (left, right)]
        same = algebra.table.equal(*forms)
    except ExceededError:
        return
    if not same or algebra.table.unmet:
        return
    for _ in range(5):
        values = {n: np.asarray(rng.standard_normal()) for n in NAMES}
        with np.errstate(all="ignore"):
            a, b = (float(run(t, Floats(), values)) for t in (left, right))
        if math.isfinite(a) and math.isfinite(b) and abs(a) < 1e6:
            assert a == pytest.approx(b, rel=1e-5, abs=1e-5)


def test_what_a_sign_excludes_is_no_case_and_zero_is_one() -> None:
    algebra = Algebra()
    table = algebra.table
    x = algebra.variable("x")
    above, below = table.signs(x)
    with table.assuming():
        table.unary("sqrt", x)
    assert table.equal(table.mul(x, above), x)
    assert not table.equal(above, table.one)
    assert not table.equal(table.sub(above, below), table.one)
    assert table.absolute(x) is x
    assert table.absolute(table.zero) is table.zero


def test_of_an_unknown_function_only_congruence_is_known() -> None:
    algebra = Algebra()
    x, y = (algebra.symbols(n, ()) for n in "xy")
    left = algebra.unary("round_to:bf16", algebra.add(x, y))
    assert left[()] is algebra.unary("round_to:bf16", algebra.add(y, x))[()]
    assert not algebra.table.equal(left[()], algebra.add(x, y)[()])
