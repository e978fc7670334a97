"""A repair in the text it came from: what is not edited stays byte for byte."""

from __future__ import annotations

import difflib

import pytest

from benchmarks.mutation_testing.corpus import cases
from benchmarks.mutation_testing.mutants import mutations
from shardproof.synthesis.repair.edits import Edit, apply, without_dead
from shardproof.synthesis.repair.textual import rewritten, unsourced
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.text.parser import parse_text

TEXT = """# Two ranks; the sum is missing.
program  many   mesh(tp=2)
  input %x: f32[4, 4]        # a half
  param %w: f32[4, 6] "w"
  %y = mm %x,%w      @ model.py:8 mlp | y = x @ self.w
  # then the activation
  %z = relu   %y  # not linear
  %s = all_reduce %z {reduce=sum, mesh_dim=tp}
  %t = scan %s, %x {carry=1, length=4, xs=1} body step {   # four steps
    carry %h: f32[4, 6]
    input %r: f32[4]
    %m = mul %h, %h   # squares
    return carry %m
  }
  return %t, %s "s"
"""
EDITS: dict[str, tuple[Edit, list[str]]] = {
    "a line more": (
        Edit("after", "y", "all_reduce", (("mesh_dim", "tp"), ("reduce", "sum"))),
        [
            "+  %y_all_reduce = all_reduce %y {mesh_dim=tp, reduce=sum}",
            "-  %z = relu   %y  # not linear",
            "+  %z = relu   %y_all_reduce  # not linear",
        ],
    ),
    "a line less": (
        Edit("drop", "s", "all_reduce"),
        [
            "-  %s = all_reduce %z {reduce=sum, mesh_dim=tp}",
            "-  %t = scan %s, %x {carry=1, length=4, xs=1} body step {   # four steps",
            "+  %t = scan %z, %x {carry=1, length=4, xs=1} body step {   # four steps",
            '-  return %t, %s "s"',
            '+  return %t, %z "s"',
        ],
    ),
    "an attribute in its place": (
        Edit("set", "s", attrs=(("reduce", "avg"),)),
        [
            "-  %s = all_reduce %z {reduce=sum, mesh_dim=tp}",
            "+  %s = all_reduce %z {reduce=avg, mesh_dim=tp}",
        ],
    ),
    "an op in its place": (
        Edit("replace", "z", "gelu"),
        ["-  %z = relu   %y  # not linear", "+  %z = gelu   %y  # not linear"],
    ),
    "ranks": (
        Edit("on", "z", where=(("tp", (0,)),)),
        ["-  %z = relu   %y  # not linear", "+  %z = relu   %y on(tp=0)  # not linear"],
    ),
    "within a block": (
        Edit("after", "m", "neg", scope=("t",)),
        ["-    return carry %m", "+    %m_neg = neg %m", "+    return carry %m_neg"],
    ),
    "an output, whose path stays": (
        Edit("output", "output:t", operands=("s",)),
        ['-  return %t, %s "s"', '+  return %s "t", %t "s"'],
    ),
}


@pytest.mark.parametrize("case", EDITS)
def test_only_what_is_edited_changes(case: str) -> None:
    edit, expected = EDITS[case]
    before = parse_text(TEXT)
    after = apply(before, edit)
    text = rewritten(TEXT, before, after)
    assert text is not None
    assert unsourced(parse_text(text)) == unsourced(after)
    lines = difflib.unified_diff(TEXT.splitlines(), text.splitlines(), n=0, lineterm="")
    changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    assert [c.replace(' "m"', "") for c in changed] == expected


def test_every_mutation_of_the_corpus_can_be_written() -> None:
    """Also where a value moves, where types are written, and where nodes are without reader."""
    count = 0
    for case in list(cases())[::9]:
        if case.kind != "program" or "right" not in case.sides:
            continue
        text = case.sections["right"]
        program = parse_text(text)
        for mutation in list(mutations(program))[::17]:
            edited = mutation.edit()
            if edited is None:
                continue
            edited = without_dead(program, edited)
            found = rewritten(text, program, edited)
            assert found is not None, (case.path, mutation.text)
            _alike(found, edited)
            count += 1
    assert count > 25


def _alike(text: str, program: Program) -> None:
    assert unsourced(parse_text(text)) == unsourced(program)


def test_a_program_that_its_text_cannot_say_is_printed() -> None:
    before = parse_text(TEXT)
    other = parse_text(TEXT.replace("input %x", "input %u").replace("%x", "%u"))
    assert rewritten(TEXT, before, other) is None


def test_nothing_to_change_changes_nothing() -> None:
    program = parse_text(TEXT)
    assert rewritten(TEXT, program, program) == TEXT


def test_line_ends_of_windows_stay() -> None:
    text = TEXT.replace("\n", "\r\n")
    before = parse_text(text)
    edit = Edit("after", "y", "all_reduce", (("mesh_dim", "tp"), ("reduce", "sum")))
    after = apply(before, edit)
    assert isinstance(after, Program)
    out = rewritten(text, before, after)
    assert out is not None
    assert out.count("\n") == out.count("\r\n") == text.count("\n") + 1
