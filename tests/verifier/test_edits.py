"""Every edit of the vocabulary: what it makes of a program, and what it refuses, located."""

from __future__ import annotations

import pytest

from verifier.contract_text import read_contract
from verifier.edits import EDITS, Change, apply_change
from verifier.ir.errors import IRError
from verifier.ir.text import parse_text, to_text
from verifier.verdict import Counterexample, Proof
from verifier.verify import verify

ONE = """
program mlp
  input %x: f32[4, 8]
  param %w: f32[8, 6] "w"
  %h = mm %x, %w
  %y = sub %h, %h
  %z = add %h, %y
  return %z
"""
RANKS = """
program mlp mesh(tp=2, dp=2)
  input %x: f32[4, 4]
  param %w: f32[4, 6] "w"
  %p = mm %x, %w
  %h = all_reduce %p {mesh_dim=tp, reduce=sum}
  %y = sub %h, %h
  %z = add %h, %y
  return %z
"""
CONTRACT = "input x tp=S(1)\ninput w tp=S(0)\n"

CASES = {
    "insert": (
        Change("insert", "z", op="all_gather", attrs=(("mesh_dim", "tp"), ("dim", 0))),
        "%edit.0 = all_gather %z {mesh_dim=tp, dim=0} : f32[8, 6]\n  return %edit.0",
    ),
    "insert on an input": (Change("insert", "x", op="neg"), "%p = mm %edit.0, %w"),
    "rescale": (Change("rescale", "h", attrs=(("value", 2),)), "%y = sub %edit.0, %edit.0"),
    "drop": (Change("drop", "h"), "%y = sub %p, %p"),
    "drop the last": (Change("drop", "z"), "return %h"),
    "change_reduce": (Change("change_reduce", "h", attrs=(("reduce", "avg"),)), "reduce=avg"),
    "change_mesh_dim": (Change("change_mesh_dim", "h", attrs=(("mesh_dim", "dp"),)), "=dp"),
    "replace_op": (
        Change(
            "replace_op",
            "h",
            op="reduce_scatter",
            attrs=(("dim", 0), ("mesh_dim", "tp"), ("reduce", "sum")),
        ),
        "%h = reduce_scatter %p",
    ),
    "move": (
        Change("move", "h", other="z"),
        "%y = sub %p, %p : f32[4, 6]\n  %z = add %p, %y : f32[4, 6]\n"
        "  %edit.0 = all_reduce %z {mesh_dim=tp, reduce=sum} : f32[4, 6]\n  return %edit.0",
    ),
    "swap_operands": (Change("swap_operands", "z"), "%z = add %y, %h"),
    "rewire": (Change("rewire", "z", other="p", position=1), "%z = add %h, %p"),
}


@pytest.mark.parametrize("case", CASES)
def test_edit_gives_this_program(case: str) -> None:
    change, expected = CASES[case]
    program = parse_text(RANKS)
    edited = apply_change(program, change)
    assert expected in to_text(edited)
    assert edited.inputs == program.inputs
    assert [(o.role, o.path) for o in edited.outputs] == [(o.role, o.path) for o in program.outputs]
    assert parse_text(to_text(edited)) == edited


def test_every_edit_has_a_case() -> None:
    shown = {change.edit for change, _ in CASES.values()}
    assert shown | {"change_dim", "change_attr", "reorder"} == set(EDITS)


REFUSED = {
    "unknown edit": (Change("rewrite", "h"), "unknown edit 'rewrite'"),
    "no such value": (Change("drop", "nope"), "no value %nope"),
    "an input": (Change("drop", "x"), "is an input"),
    "unknown op": (Change("insert", "h", op="all_reduc"), "unknown op 'all_reduc'"),
    "an op of two operands": (Change("insert", "h", op="mm"), "mm"),
    "no op": (Change("insert", "h"), "needs op"),
    "a field too many": (Change("drop", "h", op="neg"), "takes no op"),
    "an attribute of another op": (Change("change_dim", "h", attrs=(("dim", 0),)), "no attribute"),
    "an attribute of no op": (Change("change_attr", "h", attrs=(("path", 1),)), "no op has"),
    "no attribute": (Change("change_attr", "h"), "needs attrs"),
    "a fold that is none": (Change("change_reduce", "h", attrs=(("reduce", "mul"),)), "one of sum"),
    "a number that is none": (Change("rescale", "h", attrs=(("value", "x"),)), "a number"),
    "a mesh dim that is none": (
        Change("change_mesh_dim", "h", attrs=(("mesh_dim", "ep"),)),
        "ep",
    ),
    "shapes that do not fit": (
        Change("insert", "h", op="all_gather", attrs=(("dim", 7), ("mesh_dim", "tp"))),
        "all_gather",
    ),
    "before its operand": (Change("reorder", "z", other="h"), "reads %y"),
    "an operand that is not there": (Change("swap_operands", "h"), "1 operands"),
    "after itself": (Change("move", "h", other="h"), "%h"),
    "of two operands": (Change("move", "z", other="p"), "one operand"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_edit_that_does_not_fit_is_located(case: str) -> None:
    change, message = REFUSED[case]
    with pytest.raises(IRError) as caught:
        apply_change(parse_text(RANKS), change)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_edit_inside_a_repeated_block() -> None:
    text = """
program deep mesh(tp=2)
  input %x: f32[4, 4]
  param %w: f32[3, 4, 4] "w"
  %out = scan %x, %w {carry=1, length=3, xs=1} {
    carry %c: f32[4, 4]
    xs %v: f32[4, 4]
    %p = mm %c, %v
    return carry %p
  }
  return %out
"""
    change = Change(
        "insert", "out/p", op="all_reduce", attrs=(("mesh_dim", "tp"), ("reduce", "sum"))
    )
    body = apply_change(parse_text(text), change).nodes[0].body
    assert body is not None
    assert [n.op for n in body.nodes] == ["mm", "all_reduce"]
    assert body.outputs[0].value == body.nodes[1].outputs[0]


def test_an_edit_repairs_and_the_verifier_says_so() -> None:
    one, broken = parse_text(ONE), apply_change(parse_text(RANKS), Change("drop", "h"))
    contract = read_contract(CONTRACT, one, broken).contract
    assert isinstance(verify(one, broken, contract), Counterexample)
    attrs = (("mesh_dim", "tp"), ("reduce", "sum"))
    for change, verdict in (
        (Change("insert", "z", op="all_reduce", attrs=attrs), Proof),
        (Change("insert", "p", op="all_reduce", attrs=attrs), Proof),
        (
            Change("insert", "z", op="all_reduce", attrs=(attrs[0], ("reduce", "avg"))),
            Counterexample,
        ),
    ):
        assert isinstance(verify(one, apply_change(broken, change), contract), verdict)
