"""The op that is named: where numbers turn wrong, not what right programs need as well."""

from __future__ import annotations

import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.contract import compose, read_contract
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample

ONE = """program one
  input %x: f32[8, 6]
  param %w: f32[6, 6]
  param %v: f32[6, 6]
  %h = mm %x, %w
  %r = relu %h
  %o = mm %r, %v
  return %o
"""
MICRO = """program many mesh(dp=2)
  input %x: f32[4, 6]
  param %w: f32[6, 6]
  param %v: f32[6, 6]
  %x0 = slice %x {dim=0, start=0, stop=2}
  %x1 = slice %x {dim=0, start=2, stop=4}
  %h0 = mm %x0, %w
  %h1 = mm %x1, %w
  %r0 = relu %h0
  %r1 = ACT %h1 @ model.py:7
  %o0 = mm %r0, %v
  %o1 = mm %r1, W @ model.py:8
  %o = concat %o0, %o1 {dim=0}
  return %o
"""
FUSED = """program many mesh(dp=2)
  input %x: f32[4, 6]
  param %w: f32[6, 6]
  param %v: f32[6, 6]
  %f = concat %w, %v {dim=1}
  %z = mm %x, %f
  %h = slice %z {dim=1, start=START, stop=STOP} @ model.py:6
  %r = relu %h
  %s = mul_scalar %r {value=SCALE} @ model.py:8
  %o = mm %s, %v
  return %o
"""


@pytest.mark.parametrize(
    ("many", "line"),
    [
        (MICRO.replace("ACT", "neg").replace("W", "%v"), 7),
        (MICRO.replace("ACT", "relu").replace("W", "%w"), 8),
        (FUSED.replace("START", "0").replace("STOP", "6").replace("SCALE", "2"), 8),
    ],
)
def test_innocent_arrangements_are_not_named(many: str, line: int) -> None:
    one, ranks = parse_text(ONE), parse_text(many)
    contract = read_contract("input x dp=S(0)\noutput o dp=S(0)", one, ranks)
    verdict = verify(Problem(one, *compose(ranks, contract)))
    assert isinstance(verdict, Counterexample)
    assert verdict.location is not None
    assert verdict.location.source.line == line, verdict.location
