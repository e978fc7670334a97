"""Odd programs get a verdict or an error of the language, never a traceback."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.types import Affine, Attr, TensorType
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof, Unknown
from tests.verifier.pieces import TP, Build, pair, program, typed, whole

FLOATS, INTS, BOOLS = typed(2), typed(2, dtype="i64"), typed(2, dtype="bool")
BIG = 10**30


@pytest.mark.parametrize(
    ("build", "types"),
    [
        (lambda b, x: b.add("amax", x, dims=(0,)), [typed(0, 2)]),
        (lambda b, x: b.add("mean", x, dims=(0,)), [typed(0, 2)]),
        (lambda b, x: b.add("sdpa", x, x, x, scale=Fraction(1)), [FLOATS]),
        (lambda b, x: b.add("mul_scalar", x, value=BIG), [INTS]),
        (lambda b, x: b.add("mul_scalar", x, value=Fraction(2)), [BOOLS]),
        (lambda b, x: b.add("full", shape=(2,), value=float("inf")), [FLOATS]),
        (lambda b, x: b.add("slice", x, dim=0, start=0, stop=Affine.of(1)), [FLOATS]),
        (lambda b, x: b.add("slice", x, dim=-1, start=0, stop=1), [FLOATS]),
        (lambda b, x: b.add("add", x, x), [TensorType((2,), "f8")]),
        (lambda b, i, x: b.add("concat", i, x, dim=0), [INTS, FLOATS]),
        (lambda b, x: b.add("index_add", x, b.add("cast", x, dtype="i64"), size=2), [BOOLS]),
        (lambda b, x, i: b.add("put_along", x, i, dim=0, size=2), [typed(), typed(dtype="i64")]),
    ],
)
def test_op_that_means_nothing_is_an_error(build: Build, types: list[TensorType]) -> None:
    with pytest.raises(IRError):
        program(build, *types)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("all_reduce", {"mesh_dim": ("tp", "tp")}),
        ("all_reduce", {"mesh_dim": "dp"}),
        ("on_coord", {"mesh_dim": "tp", "index": 7}),
    ],
)
def test_collective_over_no_group_is_an_error(op: str, attrs: dict[str, Attr]) -> None:
    with pytest.raises(IRError):
        program(lambda b, x: b.add(op, x, **attrs), FLOATS, mesh=TP)


@pytest.mark.parametrize("reduce", ["sum", "avg"])
def test_bools_are_not_added_up_over_ranks(reduce: str) -> None:
    """Over numbers `true + true` is true; its term over the reals would be 2."""
    with pytest.raises(IRError, match="cast them first"):
        program(lambda b, x: b.add("all_reduce", x, mesh_dim="tp", reduce=reduce), BOOLS, mesh=TP)


@pytest.mark.parametrize(
    ("op", "attrs", "types"),
    [
        ("mul_scalar", {"value": float("nan")}, [FLOATS]),
        ("sum", {"dims": [0]}, [FLOATS]),
        ("take", {"offset": Affine.of(0, {"zz": 1})}, [FLOATS, INTS]),
        ("take", {"offset": BIG}, [FLOATS, INTS]),
        ("iota", {"shape": (2,), "dim": 0, "offset": BIG}, []),
        ("permute", {"dims": (0.0,)}, [FLOATS]),
    ],
)
def test_attribute_of_the_wrong_kind_is_an_error(
    op: str, attrs: dict[str, object], types: list[TensorType]
) -> None:
    good = program(lambda b, *v: b.add("neg", v[0]), *(types or [FLOATS]))
    node = replace(good.nodes[0], op=op, inputs=tuple(f"x{i}" for i in range(len(types))))
    bad = replace(good, nodes=(replace(node, attrs=attrs),))  # type: ignore[arg-type]
    with pytest.raises(IRError):
        verify(Problem(bad, replace(bad, mesh=TP), whole(good)))


@pytest.mark.parametrize("kind", [TensorType((-1,)), TensorType((2,), "f8")])
def test_input_of_no_type_is_an_error(kind: TensorType) -> None:
    one = program(lambda b, x: x, kind)
    with pytest.raises(IRError):
        verify(Problem(one, replace(one, mesh=TP), whole(one)))


@pytest.mark.parametrize(
    ("build", "types"),
    [
        (lambda b, x: b.add("cast", x, dtype="i64"), [FLOATS]),
        (lambda b, x, i: b.add("take", x, b.add("relu", i)), [FLOATS, INTS]),
        (lambda b, x, i: b.add("take", x, b.add("index_add", i, i, size=2)), [FLOATS, INTS]),
        (lambda b, x: b.add("pow", x, exponent=10**7), [FLOATS]),
        (lambda b, x: b.add("sum", x, dims=(0,)), [typed(0, 2)]),
        (lambda b, x, i: b.add("take_along", x, i, dim=0), [typed(0), INTS]),
    ],
)
def test_program_is_proved_equal_to_itself(build: Build, types: list[TensorType]) -> None:
    assert isinstance(verify(Problem(*pair(build, build, *types))), Proof)


def test_integers_divide_to_floats() -> None:
    one = program(lambda b, x, y: b.add("div", x, y), INTS, INTS)
    assert one.types[one.outputs[0].value].dtype == "f32"


def test_maximum_of_bools_counts_as_integers() -> None:
    def twice(b: object, x: str) -> str:
        top = b.add("amax", x, dims=(1,))  # type: ignore[attr-defined]
        return b.add("add", top, top)  # type: ignore[attr-defined]

    programs = pair(
        twice,
        lambda b, x: b.add("mul_scalar", b.add("amax", x, dims=(1,)), value=2),
        typed(2, 2, dtype="bool"),
    )
    assert isinstance(verify(Problem(*programs)), Proof)


def test_constant_too_large_for_a_float_is_no_traceback() -> None:
    programs = pair(
        lambda b, x: b.add("mul_scalar", x, value=Fraction(10**400)),
        lambda b, x: b.add("mul_scalar", x, value=Fraction(3 * 10**400)),
        FLOATS,
    )
    assert not isinstance(verify(Problem(*programs)), Proof)


def test_one_coordinate_of_a_group_given_as_a_list_is_refuted_not_a_traceback() -> None:
    programs = pair(
        lambda b, x: x, lambda b, x: b.add("on_coord", x, mesh_dim=("tp",), index=0), FLOATS
    )
    assert isinstance(verify(Problem(*programs)), Counterexample)


def test_integers_beyond_64_bits_are_outside_the_proof() -> None:
    """A difference that an overflow makes is no fault of the verifier."""

    def one(b: Build, x: str, i: str) -> str:
        return b.add("add", x, b.add("cast", b.add("mul_scalar", i, value=2**62), dtype="f32"))

    def ranks(b: Build, x: str, i: str) -> str:
        return b.add("add", x, b.add("mul_scalar", b.add("cast", i, dtype="f32"), value=2**62))

    verdict = verify(Problem(*pair(one, ranks, typed(4), typed(4, dtype="i64"))))
    assert isinstance(verdict, Unknown)
    assert "more than 64 bits are outside the proof" in verdict.reason
    assert "fault of the verifier" not in verdict.reason


@pytest.mark.parametrize("masked", [True, False])
def test_the_scope_says_what_a_mask_assumes(masked: bool) -> None:
    def one(b: Build, x: str) -> str:
        return b.add("maximum", x, b.add("full", shape=(4,), value=-BIG)) if masked else x

    verdict = verify(Problem(*pair(one, lambda b, x: b.add("mul_scalar", x, value=1), typed(4))))
    assert isinstance(verdict, Proof)
    assert ("beside a mask is below 10^29" in verdict.scope[-1]) == masked
    assert ("for all inputs" in verdict.scope[-1]) != masked
    assert any("-10^29" in said for said in verdict.assumptions) == masked
