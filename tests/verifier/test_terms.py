"""The normal form at its edges: zeros, constants, extents of 1, casts that are not the identity."""

from __future__ import annotations

from fractions import Fraction

import pytest

from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.provers.sequential import as_terms
from shardproof.verifier.terms import Ref, Terms
from tests.verifier.pieces import program, typed


def term(build: object, *types: TensorType) -> tuple[Terms, Ref]:
    one = as_terms(program(build, *types))  # type: ignore[arg-type]
    return one.terms, one.values[one.program.outputs[0].value]


def test_choice_between_two_zeros_is_zero() -> None:
    def build(b: Builder, c: str, x: str) -> str:
        zero = b.add("mul_scalar", x, value=Fraction(0))
        return b.add("where", c, zero, b.add("full", shape=(), value=Fraction(0)))

    terms, ref = term(build, typed(2, dtype="bool"), typed(3, 2))
    assert ref.coef == 0
    assert terms.shape(ref) == (3, 2)


def test_choice_between_zeros_that_are_variables_times_0_does_not_fail() -> None:
    terms = Terms()
    cond, x, y = (terms.var(n, (2,)) for n in "cxy")
    zeros = [Ref(Fraction(0), x.id), Ref(Fraction(0), y.id)]
    made = terms.apply("where", [cond, *zeros], {}, ["bool", "f32", "f32"])
    assert made.coef == 0


def test_wrapping_cast_is_not_the_identity() -> None:
    terms, ref = term(lambda b, x: b.add("cast", x, dtype="u8"), typed(2, dtype="i64"))
    assert terms[ref.id].op == "cast"


@pytest.mark.parametrize("dtype", ["i64", "bool"])
def test_cast_of_a_float_is_not_the_identity(dtype: str) -> None:
    terms, ref = term(lambda b, x: b.add("cast", x, dtype=dtype), typed(2))
    assert terms[ref.id].op == "cast"


def test_reciprocal_does_not_cancel_what_could_be_zero() -> None:
    terms, ref = term(lambda b, x: b.add("div", x, x), typed(2))
    assert terms[ref.id].op == "prod"


def test_sum_over_an_extent_of_1_is_a_reshape() -> None:
    terms, ref = term(lambda b, x: b.add("sum", x, dims=(0,)), typed(1, 3))
    assert terms[ref.id].op == "reshape"


def test_sum_of_a_row_of_numbers_is_the_sum_of_the_numbers() -> None:
    terms, dtypes = Terms(), ["f32"] * 3
    parts = [terms.intern("var", [], (name,), (1, 2)) for name in "abc"]
    row = terms.apply("concat", parts, {"dim": 0}, dtypes)
    rows, columns = (
        terms.apply("sum", [row], {"dims": (dim,), "keepdim": False}, ["f32"]) for dim in (0, 1)
    )
    assert rows == terms.combine([(Fraction(1), terms.reshape(part, (2,))) for part in parts])
    assert terms[columns.id].op == "sum"
