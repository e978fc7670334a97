"""A contract speaks of inputs and outputs that both programs have, and of nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.contract import Contract, ContractError
from shardproof.verifier.kernel.layout import Atom, Layout
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from tests.verifier.pieces import TP, pair, program, typed, whole

LAID = Layout.replicate((2,))


def test_inner_value_of_the_one_device_program_is_no_input() -> None:
    """Else the distributed program is handed what it must compute."""
    b = Builder("one")
    (h,) = b.add_node("exp", [b.input("x", typed(2))], outputs=["h"])
    b.output(h, path="y")
    many = Builder("many", TP)
    many.output(many.input("h", typed(2)), path="y")
    contract = Contract({"x": LAID, "h": LAID}, {"output:y": LAID})
    with pytest.raises(ContractError, match="no input %h"):
        verify(Problem(b.build(), many.build(), contract))


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        (LAID.with_partial([("tp", "bogus")]), "folds other than"),
        (LAID.with_partial([("tp", "sum"), ("tp", "max")]), "folds other than"),
        (LAID.with_partial([("dp", "sum")]), "does not fit the mesh"),
        (Layout(((Atom(1, "tp"), Atom(2)),)), "atoms of size 1"),
        (Layout(((Atom(2), Atom(1)),)), "atoms of size 1"),
        (Layout(((Atom(-2, "tp"), Atom(-1)),)), "negative size"),
        (Layout(((Atom(3),),)), "has shape"),
    ],
)
def test_layout_that_means_nothing_is_an_error(layout: Layout, why: str) -> None:
    one, many, contract = pair(lambda b, x: x, lambda b, x: x, typed(2))
    with pytest.raises(ContractError, match=why):
        verify(Problem(one, many, replace(contract, outputs={"output:y": layout})))


def test_program_that_returns_nothing_proves_nothing() -> None:
    b = Builder("one")
    b.input("x0", typed(2))
    many = program(lambda b, x: x, typed(2), mesh=TP)
    with pytest.raises(ContractError, match="returns nothing"):
        verify(Problem(b.build(), many, Contract({"x0": LAID}, {})))


def test_missing_and_repeated_outputs_are_errors() -> None:
    one = program(lambda b, x: x, typed(2))
    b = Builder("many", TP)
    b.input("x0", typed(2))
    with pytest.raises(ContractError, match="0 times"):
        verify(Problem(one, b.build(), whole(one)))
    b.output("x0", path="y")
    b.output("x0", path="y")
    with pytest.raises(ContractError, match="2 times"):
        verify(Problem(one, b.build(), whole(one)))


def test_input_of_its_own_is_an_error() -> None:
    one = program(lambda b, x: x, typed(2))
    b = Builder("many", TP)
    b.output(b.input("z", typed(2)), path="y")
    with pytest.raises(ContractError, match="of its own"):
        verify(Problem(one, b.build(), whole(one)))


def test_output_of_another_kind_of_number_is_an_error() -> None:
    one, many, contract = pair(
        lambda b, x: b.add("cast", x, dtype="f32"), lambda b, x: x, typed(2, dtype="i64")
    )
    with pytest.raises(ContractError, match="is f32"):
        verify(Problem(one, many, contract))


@pytest.mark.parametrize("mesh", [Mesh.of(tp=1), TP])
def test_one_device_program_on_a_mesh_is_an_error(mesh: Mesh) -> None:
    one = program(lambda b, x: x, typed(2), mesh=mesh)
    with pytest.raises(ContractError, match="no mesh"):
        verify(Problem(one, one, whole(one)))
