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
