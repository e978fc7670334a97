"""Comparisons that a declared range decides: every output is kept for all integers of the range."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from shardproof.synthesis.frontends.torch.range_fold import in_declared_range
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.refute.evaluate import evaluate

BELOW = 4


def masked(op: str, limit: int) -> Program:
    """A mean over what a comparison marks, and a choice by it."""
    b = Builder("masked")
    ids = b.input("ids", TensorType((2, 4), "i64"))
    x = b.input("x", TensorType((2, 4), "f32"))
    mask = b.add(op, ids, b.add("full", shape=(), value=Fraction(limit), dtype="i64"))
    zero = b.add("full", shape=(), value=Fraction(0), dtype="f32")
    b.output(b.add("where", mask, x, zero), "output", "chosen")
    rest = b.add("logical_not", mask)
    b.output(b.add("where", rest, x, zero), "output", "left")
    count = b.add("sum", b.add("cast", mask, dtype="f32"), dims=(0, 1), keepdim=False)
    more = b.add("add_scalar", count, value=Fraction(1))
    b.output(b.add("div", b.add("sum", x, dims=(0, 1), keepdim=False), more), "output", "mean")
    return b.build()


@pytest.mark.parametrize("limit", range(-2, BELOW + 3))
@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_for_all_integers_of_the_range(op, limit):
    program = masked(op, limit)
    after = in_declared_range(program, {"ids": BELOW})
    values = np.arange(8).reshape(2, 4) % BELOW
    truth = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal}
    truth |= {"gt": np.greater, "ge": np.greater_equal}
    marks = truth[op](np.arange(BELOW), limit)
    decided = bool(marks.all() or not marks.any())
    assert (op not in {n.op for n in after.nodes}) == decided
    x = np.random.default_rng(0).standard_normal((2, 4))
    for shift in range(BELOW):
        given = {"ids": (values + shift) % BELOW, "x": x}
        first, second = evaluate(program, given), evaluate(after, given)
        for a, b in zip(program.outputs, after.outputs, strict=True):
            assert np.allclose(first[a.value], second[b.value])


def test_without_a_range_nothing_is_decided():
    program = masked("ne", -100)
    assert [n.op for n in in_declared_range(program, {"ids": 0}).nodes] == [
        n.op for n in program.nodes
    ]


def rest(by: int) -> Program:
    """What integers leave over, and how often a number is in them, as `remainder` is written."""
    b = Builder("rest")
    ids = b.input("ids", TensorType((2, 4), "i64"))
    share = b.add("mul_scalar", b.add("cast", ids, dtype="f64"), value=Fraction(1, by))
    whole = b.add("cast", b.add("floor", share), dtype="i64")
    b.output(b.add("sub", ids, b.add("mul_scalar", whole, value=Fraction(by))), "output", "rest")
    b.output(whole, "output", "whole")
    b.output(b.add("floor", b.add("mul_scalar", _bit(b, ids), value=Fraction(1, 2))), "output", "b")
    return b.build()


def _bit(b: Builder, ids: str) -> str:
    return b.add("cast", b.add("cast", ids, dtype="bool"), dtype="f64")


@pytest.mark.parametrize("by", [-5, -1, 1, 2, 3, 4, 5, 9])
def test_quotients_for_all_integers_of_the_range(by):
    program = rest(by)
    after = in_declared_range(program, {"ids": BELOW})
    assert (after.outputs[0].value == "ids") == (by >= BELOW)
    for shift in range(BELOW):
        ids = (np.arange(8).reshape(2, 4) + shift) % BELOW
        first, second = evaluate(program, {"ids": ids}), evaluate(after, {"ids": ids})
        for a, b in zip(program.outputs, after.outputs, strict=True):
            assert np.array_equal(first[a.value], second[b.value])


def shifted(padding: int, rows: int) -> Program:
    """A mean over labels that move by a token: the last of each row is a number."""
    b = Builder("shifted")
    labels = b.input("labels", TensorType((rows, 4), "i64"))
    x = b.input("x", TensorType((rows * 4,), "f32"))
    last = b.add("full", shape=(rows, 1), value=Fraction(padding), dtype="i64")
    joined = b.add("concat", labels, last, dim=1)
    moved = b.add("slice", joined, dim=1, start=1, stop=5, step=1)
    flat = b.add("reshape", moved, shape=(rows * 4,))
    mask = b.add("ne", flat, b.add("full", shape=(), value=Fraction(-100), dtype="i64"))
    count = b.add("sum", b.add("cast", mask, dtype="f32"), dims=(0,), keepdim=False)
    zero = b.add("full", shape=(), value=Fraction(0), dtype="f32")
    total = b.add("sum", b.add("where", mask, x, zero), dims=(0,), keepdim=False)
    b.output(b.add("div", total, count), "output", "mean")
    return b.build()


@pytest.mark.parametrize(("padding", "counted"), [(-100, 6), (0, 8)])
def test_labels_that_move_by_a_token_are_counted(padding, counted):
    program = shifted(padding, 2)
    after = in_declared_range(program, {"labels": BELOW})
    assert [n.attrs["value"] for n in after.nodes if n.op == "mul_scalar"] == [Fraction(1, counted)]
    x = np.random.default_rng(0).standard_normal(8)
    given = {"labels": np.arange(8).reshape(2, 4) % BELOW, "x": x}
    first, second = evaluate(program, given), evaluate(after, given)
    assert np.allclose(first[program.outputs[0].value], second[after.outputs[0].value])
    assert "div" in {n.op for n in in_declared_range(program, {"labels": 0}).nodes}
