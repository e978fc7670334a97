"""Wrong programs are refused and right ones accepted: none of either kind is missed."""

from __future__ import annotations

from fractions import Fraction

import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Atom, Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof, Verdict
from tests.compat.right import RIGHT, row
from tests.compat.wrong import WRONG
from verifier import (
    AllReduce,
    DeadlockChecker,
    LossScale,
    Program,
    verify_temporal,
)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_is_accepted(name: str) -> None:
    accepted, why = RIGHT[name]().accepted()
    assert accepted, why


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_program_is_refused(name: str) -> None:
    accepted, _ = WRONG[name]().accepted()
    assert not accepted


def test_t1_and_t2_are_the_same_missing_wait() -> None:
    for name in ("T1 read before its wait", "T2 the same beside a buffer used again"):
        found = verify_temporal(Program(name, list(WRONG[name]().ops)))
        assert [r.tensor for r in found.reports] == ["y"]
        assert found.num_missing_waits == 1


def traffic(*messages: tuple[str, int, int, str]) -> tuple[bool, list[str]]:
    checker = DeadlockChecker()
    for kind, src, dst, name in messages:
        (checker.add_send if kind == "send" else checker.add_recv)(src, dst, name)
    return checker.check()


def test_d1_traffic_in_both_directions_is_accepted() -> None:
    ok, errors = traffic(
        ("send", 0, 1, "act"), ("recv", 0, 1, "act"), ("send", 1, 0, "grad"), ("recv", 1, 0, "grad")
    )
    assert ok, errors


def test_d2_a_send_without_a_receive_is_refused() -> None:
    assert not traffic(("send", 0, 1, "a"), ("send", 0, 1, "b"), ("recv", 0, 1, "a"))[0]


def test_d3_receives_in_another_order_are_refused() -> None:
    assert not traffic(
        ("send", 0, 1, "a"), ("send", 0, 1, "b"), ("recv", 0, 1, "b"), ("recv", 0, 1, "a")
    )[0]


def test_a_third_is_exact() -> None:
    case = row(AllReduce("p", "q"), LossScale("q", "y", Fraction(1, 3)))
    assert case.accepted()[0]


FUSED = """program one
  input %x: f32[8, 4]
  param %w: f32[4, 12]
  %h = mm %x, %w
  %q = slice %h {dim=1, start=0, stop=4}
  %k = slice %h {dim=1, start=4, stop=8}
  %v = slice %h {dim=1, start=8, stop=12}
  %s = mul %q, %k
  %y = mul %s, %v
  return %y
---
program many mesh(tp=2)
  input %x: f32[8, 4]
  param %w: f32[4, 6]
  %h = mm %x, %w
  %q = slice %h {dim=1, start=0, stop=2}
  %k = slice %h {dim=1, start=2, stop=4}
  %v = slice %h {dim=1, start=4, stop=6}
  %s = mul %q, %k
  %y = mul %s, %v
  return %y
"""
ROTARY = """program one
  input %x: f32[8, 4]
  param %f: f32[4]
  %i = iota {shape=[8, 1], dim=0, dtype=f32}
  %a = mul %i, %f
  %c = cos %a
  %y = mul %x, %c
  return %y
---
program many mesh(tp=2)
  input %x: f32[4, 4]
  param %f: f32[4]
  %i = iota {shape=[4, 1], dim=0, offset=OFFSET, dtype=f32}
  %a = mul %i, %f
  %c = cos %a
  %y = mul %x, %c
  return %y
"""
PARTS = Layout(((Atom(4),), (Atom(3), Atom(2, "tp"), Atom(2))))


def judge(text: str, inputs: dict[str, Layout], output: Layout) -> Verdict:
    one, many = (parse_text(part) for part in text.split("---\n"))
    return verify(Problem(one, many, Contract(inputs, {"output:y": output})))


def test_u29_a_fused_weight_is_cut_in_its_parts() -> None:
    x, y = Layout.replicate((8, 4)), from_placements((8, 4), [("tp", 2, "S(1)")])
    cut = from_placements((4, 12), [("tp", 2, "S(1)")])
    assert isinstance(judge(FUSED, {"x": x, "w": PARTS}, y), Proof)
    assert isinstance(judge(FUSED, {"x": x, "w": cut}, y), Counterexample)


def test_u41_a_rotary_table_starts_at_the_block_of_the_rank() -> None:
    x, f = from_placements((8, 4), [("tp", 2, "S(0)")]), Layout.replicate((4,))
    assert isinstance(judge(ROTARY.replace("OFFSET", "4*tp"), {"x": x, "f": f}, x), Proof)
    assert isinstance(judge(ROTARY.replace("OFFSET", "0"), {"x": x, "f": f}, x), Counterexample)
