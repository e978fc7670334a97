"""Terms that cancel: left out where they are numbers, and nowhere else."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from shardproof.synthesis.frontends.torch.cancelled import without_cancelled
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.refute.evaluate import evaluate

TABLE = 5


def summed(kind: str) -> Program:
    """`x` with a term that is added and taken off."""
    b = Builder("summed")
    x = b.param("x", TensorType((3, 4), "f32"), "x")
    table = b.param("table", TensorType((TABLE, 4), "f32"), "table")
    ids = b.input("ids", TensorType((3,), "i64"), "input", "ids")
    match kind:
        case "lookup":
            moved = b.add("add_scalar", ids, value=Fraction(7))
            again = b.add("add_scalar", moved, value=Fraction(-7))
            first, last = b.add("take", table, again, dim=0), b.add("take", table, ids, dim=0)
        case "beyond":
            first = last = b.add("take", table, b.add("add_scalar", ids, value=Fraction(3)), dim=0)
        case "root":
            first = last = b.add("sqrt", x)
        case "infinite":
            wide = b.add(
                "expand", b.add("full", shape=(), value=Fraction(2**200), dtype="f32"), shape=(3, 4)
            )
            first = last = b.add("maximum", x, wide)
        case "other":
            first, last = b.add("tanh", x), b.add("sigmoid", x)
        case _:
            first = b.add("reshape", b.add("neg", b.add("reshape", x, shape=(12,))), shape=(3, 4))
            last = b.add("neg", b.add("reshape", b.add("reshape", x, shape=(12,)), shape=(3, 4)))
    b.output(b.add("sub", b.add("add", x, first), last), "output", "y")
    return b.build()


def ops(program: Program) -> list[str]:
    return [n.op for n in program.nodes]


@pytest.mark.parametrize("kind", ["lookup", "signs"])
def test_what_is_taken_off_again_is_left_out(kind):
    program = summed(kind)
    after = without_cancelled(program, {"ids": TABLE})
    assert not {"add", "sub"} & set(ops(after))
    values = {
        "x": np.arange(12.0).reshape(3, 4),
        "table": np.ones((TABLE, 4)),
        "ids": np.array([0, 4, 1]),
    }
    one, other = evaluate(program, values), evaluate(after, values)
    want, got = program.outputs[0].value, after.outputs[0].value
    np.testing.assert_array_equal(one[want], other[got])


@pytest.mark.parametrize("kind", ["beyond", "root", "infinite", "other"])
def test_what_may_be_no_number_stays(kind):
    program = summed(kind)
    assert without_cancelled(program, {"ids": TABLE}) is program


def test_a_lookup_of_no_known_range_stays():
    program = summed("lookup")
    assert "take" in ops(without_cancelled(program, {}))


def test_a_root_is_left_out_where_another_output_needs_it():
    b = Builder("roots")
    x = b.param("x", TensorType((3,), "f32"), "x")
    root = b.add("sqrt", x)
    b.output(b.add("sub", b.add("add", x, root), root), "output", "y")
    b.output(b.add("neg", root), "output", "z")
    after = without_cancelled(b.build(), {})
    assert ops(after) == ["sqrt", "neg"]


def test_a_number_times_0_is_0_and_what_is_rounded_of_it():
    b = Builder("zero")
    x = b.param("x", TensorType((3,), "f32"), "x")
    zero = b.add(
        "floor",
        b.add("add_scalar", b.add("mul_scalar", x, value=Fraction(0)), value=Fraction(1, 2)),
    )
    b.output(b.add("add", x, zero), "output", "y")
    after = without_cancelled(b.build(), {})
    assert ops(after) == []
    assert after.outputs[0].value == "x"
