"""Reshapes of leading dims: every output is kept, and a near miss is left alone."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from shardproof.synthesis.frontends.torch.leading_dims import leading_dims
from shardproof.synthesis.frontends.torch.masked_gather import read_windows
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.refute.evaluate import evaluate


def summed(
    old: tuple[int, ...], new: tuple[int, ...], dims: tuple[int, ...], keepdim: bool
) -> Program:
    b = Builder("summed")
    x = b.input("x", TensorType(old, "f32"))
    rows = b.add("reshape", x, shape=new)
    b.output(b.add("sum", rows, dims=dims, keepdim=keepdim), "output", "z")
    return b.build()


def ops(program: Program) -> list[str]:
    return [n.op for n in program.nodes]


def same(before: Program, after: Program, **fixed: np.ndarray) -> None:
    g = np.random.default_rng(0)
    values = {
        i.name: fixed[i.name] if i.name in fixed else g.standard_normal(i.type.shape)
        for i in before.inputs
    }
    first, second = evaluate(before, values), evaluate(after, values)
    for a, b in zip(before.outputs, after.outputs, strict=True):
        assert np.allclose(first[a.value], second[b.value])
        assert before.types[a.value] == after.types[b.value]


def repeated(weight: tuple[int, ...], wide: tuple[int, ...]) -> Program:
    b = Builder("repeated")
    x = b.input("x", TensorType((2, 5, 3), "f32"))
    w = b.input("w", TensorType(weight, "f32"))
    b.output(b.add("bmm", x, b.add("expand", w, shape=wide)), "output", "z")
    return b.build()


@pytest.mark.parametrize("weight", [(3, 4), (1, 3, 4)])
def test_one_weight_for_all_batches_is_multiplied_by_rows(weight):
    program = repeated(weight, (2, 3, 4))
    after = leading_dims(program)
    assert "mm" in ops(after)
    assert "bmm" not in ops(after)
    same(program, after)


def test_a_row_that_is_repeated_too_is_left_alone():
    program = repeated((1, 1, 4), (2, 3, 4))
    assert ops(leading_dims(program)) == ops(program)


SHAPES = [(6, 4), (2, 3, 4), (3, 2, 4), (6, 1, 4), (1, 6, 4), (24,), (4, 6), (2, 12), (3, 2, 2, 2)]


def drawn(seed: int) -> Program:
    """Biases, reshapes and sums over leading dims of what came before, some used several times."""
    g = np.random.default_rng(seed)
    b = Builder("drawn")
    held = [b.input("x", TensorType(SHAPES[g.integers(len(SHAPES))], "f32"))]
    for at in range(g.integers(3, 9)):
        x = held[g.integers(max(0, len(held) - 3), len(held))]
        shape = b.types[x].shape
        kind = g.integers(3)
        if kind == 0:
            last = (1,) * int(g.integers(len(shape))) + shape[-1:]
            y = b.input(f"y{at}", TensorType(last if g.integers(4) else shape, "f32"))
            held.append(b.add("add", *((x, y) if g.integers(2) else (y, x))))
        elif kind == 1 and math.prod(shape) == 24:
            held.append(b.add("reshape", x, shape=SHAPES[g.integers(len(SHAPES))]))
        elif len(shape) > 1 and g.integers(2):
            dims = tuple(range(g.integers(1, len(shape))))
            held.append(b.add("sum", x, dims=dims, keepdim=bool(g.integers(2))))
    for at, value in enumerate(held[1:]):
        if at == len(held) - 2 or not g.integers(4):
            b.output(value, "output", f"z{at}")
    return b.build()


def test_random_programs_compute_what_they_did():
    changed = 0
    for seed in range(600):
        program = drawn(seed)
        after = leading_dims(program)
        changed += ops(after) != ops(program)
        same(program, after)
    assert changed > 100, changed


@pytest.mark.parametrize("keepdim", [True, False])
@pytest.mark.parametrize(
    ("old", "new"), [((2, 3, 4), (6, 4)), ((2, 3, 4, 5), (6, 4, 5)), ((2, 3, 4), (24,))]
)
def test_merged_rows_are_summed_before(old, new, keepdim):
    program = summed(old, new, (0,), keepdim)
    after = leading_dims(program)
    assert ops(after)[0] == "sum"
    same(program, after)


@pytest.mark.parametrize(
    ("old", "new", "dims"),
    [((2, 3, 4), (6, 4), (1,)), ((2, 3, 4), (2, 12), (0,)), ((6, 4), (2, 3, 4), (0,))],
)
def test_other_sums_are_left_alone(old, new, dims):
    program = summed(old, new, dims, False)
    assert ops(leading_dims(program)) == ops(program)


def rows(first: int, last: int, shift: int, size: int) -> Program:
    """The gradient of a masked lookup of `size` rows."""
    b = Builder("rows")
    g = b.input("g", TensorType((3, 5, 2), "f32"))
    ids = b.input("ids", TensorType((3, 5), "i64"))

    def number(value: int, dtype: str = "i64") -> str:
        return b.add("full", shape=(), value=Fraction(value), dtype=dtype)

    other = b.add("logical_or", b.add("lt", ids, number(first)), b.add("ge", ids, number(last)))
    local = b.add("where", other, number(0), b.add("add_scalar", ids, value=Fraction(-shift)))
    wide = b.add("reshape", other, shape=(3, 5, 1))
    kept = b.add("where", wide, number(0, "f32"), g)
    b.output(b.add("index_add", kept, local, size=size), "output", "z")
    return b.build()


def test_rows_added_through_a_window():
    program = rows(6, 12, 6, 6)
    after = read_windows(program)
    assert ops(after) == ["index_add"]
    assert after.nodes[0].attrs["offset"] == 6
    same(program, after, ids=np.arange(15).reshape(3, 5))


@pytest.mark.parametrize("wrong", [(5, 12, 6, 6), (6, 13, 6, 6), (6, 12, 5, 6), (6, 11, 6, 6)])
def test_a_window_that_does_not_match_is_left_alone(wrong):
    after = read_windows(rows(*wrong))
    assert "where" in ops(after)
