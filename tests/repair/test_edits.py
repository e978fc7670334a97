"""Edits: every kind on a small program, names that stay, and edits that do not fit."""

from __future__ import annotations

import pytest

from shardproof.synthesis.repair.edits import KINDS, Edit, apply
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.text.assemble import well_formed
from shardproof.verifier.text.parser import parse_text, to_text

PROGRAM = """
program many mesh(tp=2)
  input %x: f32[4, 4]
  input %c: f32[4, 4]
  %a = relu %x
  %s = sub %a, %c
  %r = all_reduce %s {mesh_dim=tp, reduce=sum}
  %y = scan %r, %c {carry=1, length=2, xs=0} body step {
    carry %h: f32[4, 4]
    input %w: f32[4, 4]
    %m = mul %h, %w
    return carry %m
  }
  return %y "y", %r "r"
"""
EDITS: dict[str, tuple[Edit, str]] = {
    "after": (Edit("after", "a", "neg"), "%s = sub %a_neg, %c"),
    "after for one reader": (
        Edit("after", "r", "neg", uses=("output:r",)),
        'return %y, %r_neg "r"',
    ),
    "drop": (Edit("drop", "s", "sub", index=1), "%r = all_reduce %c"),
    "replace": (Edit("replace", "s", "add"), "%s = add %a, %c"),
    "set": (Edit("set", "r", attrs=(("reduce", "avg"),)), "reduce=avg"),
    "set_alike": (Edit("set_alike", "r", attrs=(("reduce", "max"),)), "reduce=max"),
    "drop_alike": (Edit("drop_alike", "r", "all_reduce"), 'return %y, %s "r"'),
    "skip": (Edit("skip", "s", index=1), "%r = all_reduce %c"),
    "rewire": (Edit("rewire", "s", operands=("x",), index=1), "%s = sub %a, %x"),
    "swap": (Edit("swap", "s", operands=("c", "a")), "%s = sub %c, %a"),
    "commute": (Edit("commute", "r", index=0), "%r = sub %r_early, %c"),
    "on": (Edit("on", "a", where=(("tp", (0,)),)), "%a = relu %x on(tp=0)"),
    "output": (Edit("output", "output:y", operands=("r",)), 'return %r "y", %y "r"'),
    "in a block": (Edit("drop", "m", "mul", index=0, scope=("y",)), "return carry %h"),
}


def many() -> Program:
    return parse_text(PROGRAM)


@pytest.mark.parametrize("name", EDITS)
def test_edit_does_what_it_says_and_keeps_the_other_names(name: str) -> None:
    edit, expected = EDITS[name]
    before, text = many(), to_text(many())
    edited = apply(before, edit)
    assert expected in to_text(edited)
    assert to_text(before) == text
    if name != "on":
        assert well_formed(edited).types == edited.types
    left = {v for n in before.nodes for v in n.outputs} - {edit.value}
    assert left <= set(edited.types)
    assert str(edit)


def test_every_kind_is_shown_here_and_says_what_it_does() -> None:
    assert {e.kind for e, _ in EDITS.values()} == set(KINDS)
    for kind in KINDS.values():
        assert kind.says.strip()
        assert set(kind.fields) <= set(Edit.__dataclass_fields__)


@pytest.mark.parametrize(
    "edit",
    [
        Edit("after", "none", "neg"),
        Edit("after", "a", "reshape", (("shape", (3,)),)),
        Edit("rewire", "a", operands=("r",)),
        Edit("drop", "s", "sub", index=2),
        Edit("output", "output:z", operands=("a",)),
        Edit("drop", "m", "mul", scope=("a",)),
        Edit("melt", "a"),
    ],
    ids=["no value", "shape", "cycle", "no operand", "no output", "no block", "no kind"],
)
def test_edit_that_does_not_fit_is_an_error(edit: Edit) -> None:
    with pytest.raises(IRError):
        apply(many(), edit)
