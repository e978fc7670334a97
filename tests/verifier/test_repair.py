"""Repairs of one edit: offered only where the edited program is related to the whole."""

from fractions import Fraction

import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.synthesis.repair.edits import Edit, apply
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.relate.rules import Rules, initial, satisfied
from shardproof.verifier.provers.relate.walk import relate
from shardproof.verifier.provers.sequential import as_terms
from shardproof.verifier.verdict import Counterexample, Proof

TP = ("tp", 2)


def whole() -> Program:
    b = Builder("whole")
    x = b.input("x", TensorType((4, 8)))
    hidden = b.add("relu", b.add("mm", x, b.param("w1", TensorType((8, 16)))))
    b.output(b.add("mm", hidden, b.param("w2", TensorType((16, 8)))), path="y")
    return b.build()


def split(*after: tuple[str, dict[str, object]]) -> Program:
    """Column and row layers, then the given ops."""
    b = Builder("split", Mesh.of(tp=2))
    x = b.input("x", TensorType((4, 8)))
    hidden = b.add("relu", b.add("mm", x, b.param("w1", TensorType((8, 8)))))
    y = b.add("mm", hidden, b.param("w2", TensorType((8, 8))))
    for op, attrs in after:
        (y,) = b.add_node(op, [y], attrs)  # pyright: ignore[reportArgumentType]
    b.output(y, path="y")
    return b.build()


CONTRACT = Contract(
    {
        "x": from_placements((4, 8), [(*TP, "R")]),
        "w1": from_placements((8, 16), [(*TP, "S(1)")]),
        "w2": from_placements((16, 8), [(*TP, "S(0)")]),
    },
    {"output:y": from_placements((4, 8), [(*TP, "R")])},
)
REDUCE: tuple[str, dict[str, object]] = ("all_reduce", {"mesh_dim": "tp"})
HALF: tuple[str, dict[str, object]] = ("mul_scalar", {"value": Fraction(1, 2)})


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (split(), "all_reduce {mesh_dim=tp, reduce=sum} after %3"),
        (split(REDUCE, HALF), "drop the mul_scalar that makes %5"),
        (split(REDUCE, REDUCE), "drop the all_reduce that makes %5"),
    ],
    ids=["missing reduce", "wrong scale", "reduced twice"],
)
def test_single_fault_is_offered_a_proved_edit(wrong: Program, expected: str) -> None:
    verdict = verify(Problem(whole(), wrong, CONTRACT), fixes=True)
    assert isinstance(verdict, Counterexample)
    assert expected in verdict.fixes


def test_edited_program_is_proved() -> None:
    edit = Edit("after", "3", "all_reduce", (("mesh_dim", "tp"), ("reduce", "sum")))
    assert isinstance(verify(Problem(whole(), apply(split(), edit), CONTRACT)), Proof)


def test_edit_that_does_not_mend_is_not_offered() -> None:
    verdict = verify(Problem(whole(), split(), CONTRACT), fixes=True)
    assert isinstance(verdict, Counterexample)
    one = as_terms(whole())
    edit = Edit("after", "3", "all_reduce", (("mesh_dim", "tp"), ("reduce", "avg")))
    assert str(edit) not in verdict.fixes
    edited = apply(split(), edit)
    related = relate(one, edited, initial(CONTRACT, one), CONTRACT, Rules(edited.mesh))
    assert satisfied(one, edited, related, CONTRACT)


def test_no_repairs_are_searched_unless_asked_for() -> None:
    verdict = verify(Problem(whole(), split(), CONTRACT))
    assert isinstance(verdict, Counterexample)
    assert verdict.fixes == ()
