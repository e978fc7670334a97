"""Constant arrays are recognised exactly: every entry is compared."""

from __future__ import annotations

from fractions import Fraction
from math import nextafter

import numpy as np
import pytest

from shardproof.synthesis.frontends.torch.aten.table import Emit, fraction
from shardproof.synthesis.frontends.torch.constants import Band, Full, Opaque, Ramp, emit, recognise
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.refute.evaluate import evaluate


def ij(n, m):
    return np.arange(n)[:, None], np.arange(m)[None, :]


def written(constant):
    """The value of the ops that a constant is written as."""
    b = Builder("constant")
    e = Emit(b)
    name = emit(e, constant)
    b.output(name)
    program = b.build()
    given = {i.name: constant.structure.value for i in program.inputs}
    return np.broadcast_to(evaluate(program, given, Floats())[name], constant.shape)


ROW, COLUMN = ij(6, 6)
CASES = {
    "zeros": (np.zeros((3, 4), np.float32), "f32", Full),
    "scalar": (np.array(2.5, np.float32), "f32", Full),
    "positions": (np.broadcast_to(np.arange(3, 9)[None], (4, 6)), "i64", Ramp),
    "causal": (np.broadcast_to(COLUMN <= ROW, (2, 1, 6, 6)), "bool", Band),
    "strictly_above": (np.where(COLUMN > ROW, np.float32(-1e30), np.float32(0)), "f32", Band),
    "sliding": ((COLUMN <= ROW) & (COLUMN > ROW - 3), "bool", Band),
    "diagonal": (np.eye(6, dtype=np.float32), "f32", Band),
    "wide": (np.broadcast_to(ij(4, 9)[1] <= ij(4, 9)[0] + 5, (4, 9)), "bool", Band),
    "table": (np.random.default_rng(0).random((6, 4)).astype(np.float32), "f32", Opaque),
    "steps_of_two": (np.arange(0, 12, 2), "i64", Opaque),
    "three_values": (np.sign(COLUMN - ROW).astype(np.float32), "f32", Opaque),
}


@pytest.mark.parametrize("name", CASES)
def test_a_constant_is_written_as_what_it_is(name):
    value, dtype, kind = CASES[name]
    constant = recognise(np.asarray(value), dtype)
    assert isinstance(constant.structure, kind)
    assert np.array_equal(written(constant), value)


def test_one_wrong_entry_is_never_a_band():
    for at in np.ndindex(6, 6):
        mask = np.array(COLUMN <= ROW)
        mask[at] = not mask[at]
        assert np.array_equal(written(recognise(mask, "bool")), mask)


def test_a_mask_that_is_the_same_for_every_row_of_a_batch_has_batch_extent_one():
    mask = np.broadcast_to(COLUMN <= ROW, (8, 1, 6, 6))
    assert recognise(mask, "bool").narrow == (1, 1, 6, 6)


def test_equal_tables_are_one_input():
    table = np.random.default_rng(0).random((6, 4))
    first, second = recognise(table, "f64").structure, recognise(table.copy(), "f64").structure
    assert first.name == second.name
    assert recognise(table + 1, "f64").structure.name != first.name


def test_nan_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        recognise(np.array(np.nan), "f32")


@pytest.mark.parametrize(("value", "read"), [
    (1 / 24, Fraction(1, 24)), (-0.1, Fraction(-1, 10)), (1e-12, Fraction(1, 10**12)),
    (100352 / 100351, Fraction(100352, 100351)), (1 / (3 << 33), Fraction(1, 3 << 33)),
    (0.5**0.5, Fraction(0.5**0.5)), (1e-300, Fraction(1e-300)), (3, Fraction(3)),
])  # fmt: skip
def test_a_float_is_the_simplest_fraction_that_rounds_to_it(value: float, read: Fraction) -> None:
    assert fraction(value) == read


@pytest.mark.parametrize(("value", "read"), [
    (1 - 0.999, Fraction(1, 1000)), (float(np.float32(0.1)), Fraction(1, 10)),
    (40**-0.5, Fraction(40**-0.5)), (1e-300, Fraction(1e-300)), (2.0**-130, Fraction(2.0**-130)),
    (0.9990001, Fraction(0.9990001)),
])  # fmt: skip
def test_beside_a_float32_a_number_is_one(value: float, read: Fraction) -> None:
    assert fraction(value, "f32") == read
    assert fraction(value, "bf16") == read
    assert float(fraction(value, "f64")) == value


def test_numbers_that_a_float32_tells_apart_are_fractions_that_differ() -> None:
    draws = np.random.default_rng(0)
    round_ones = [int(n) / int(d) for n, d in draws.integers(1, 500, (2000, 2))]
    for value in (*draws.standard_normal(2000).tolist(), *round_ones):
        here = np.float32(value)
        after = float(np.nextafter(here, np.float32(np.inf)))
        assert np.float32(float(fraction(value, "f32"))) == here
        assert fraction(after, "f32") > fraction(value, "f32")


def test_floats_that_differ_are_fractions_that_differ() -> None:
    draws = np.random.default_rng(0)
    wide = (draws.standard_normal(2000) * 10.0 ** draws.integers(-9, 9, 2000)).tolist()
    round_ones = [int(n) / int(d) for n, d in draws.integers(1, 4000, (2000, 2))]
    for value in (*wide, *round_ones):
        assert float(fraction(value)) == value
        assert fraction(nextafter(value, 1e30)) > fraction(value)
