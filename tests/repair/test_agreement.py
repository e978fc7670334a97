"""What floats say of a wrong program: which ranks are right, and which line is needless."""

from __future__ import annotations

from shardproof.synthesis.repair.agreement import differing, needless, spared
from shardproof.synthesis.repair.edits import Edit
from shardproof.synthesis.repair.question import Question
from shardproof.synthesis.repair.search import Repaired, repair
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Atom, Layout
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.parser import parse_text

ONE = """program one
  input %x: f32[4, 2]
  %s = add %x, %x
  %y = exp %s
  return %y "y"
"""
TURNED = """program turned mesh(tp=2)
  input %x: f32[2, 2]
  %a = exp %x @ m.py:1 | a
  %b = flip %a {dim=0} @ m.py:2 | b
  %c = flip %b {dim=1} @ m.py:2 | b
  %d = mul %c, %c @ m.py:3 | d
  return %d "y"
"""
OF_THE_FIRST = """program first mesh(tp=2)
  input %x: f32[2, 2]
  %a = broadcast %x {index=0, mesh_dim=tp} @ m.py:1 | a
  %b = add %a, %a @ m.py:2 | b
  %c = exp %b @ m.py:2 | b
  return %c "y"
"""
ROWS = Layout(((Atom(2, "tp"), Atom(2)), (Atom(2),)))


def problem(many: str) -> Problem:
    contract = Contract({"x": ROWS}, {"output:y": ROWS})
    return Problem(parse_text(ONE), parse_text(many), contract)


def test_a_line_without_which_all_numbers_are_right_is_found() -> None:
    asked = problem(TURNED)
    run = differing(asked)
    assert run is not None
    assert spared(asked, run) == ()
    assert needless(asked, run) == Edit("skip", "b")


def test_a_repair_is_seen_where_functions_are_not_hashes() -> None:
    asked = problem(TURNED)
    found = repair(Question(asked.sequential, asked.distributed, asked.contract), seconds=60)
    assert isinstance(found, Repaired)
    assert found.edits == (Edit("skip", "b"),)


def test_ranks_that_are_right_are_told_from_others() -> None:
    asked = problem(OF_THE_FIRST)
    run = differing(asked)
    assert run is not None
    assert spared(asked, run) == (0,)
    assert needless(asked, run) is None


def test_nothing_differs_where_the_program_is_right() -> None:
    right = OF_THE_FIRST.replace("broadcast %x {index=0, mesh_dim=tp}", "neg %x")
    right = right.replace("add %a, %a", "mul_scalar %a {value=-2}")
    assert differing(problem(right)) is None
