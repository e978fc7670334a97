"""Outputs that are written otherwise than what is asked: proved in index notation, replayed."""

from __future__ import annotations

import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, Rejected, check
from shardproof.verifier.checker.certificate import seal
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.contract import compose, read_contract
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof

ONE = """program one
  input %x: f32[96, 64]
  param %g: f32[64, 128]
  param %u: f32[64, 128]
  %a = mm %x, %g
  %s = silu %a
  %b = mm %x, %u
  %y = mul %s, %b
  return %y
"""
FUSED = """program many mesh(tp=2)
  input %x: f32[96, 64]
  param %g: f32[64, 64]
  param %u: f32[64, 64]
  %w = concat %g, %u {dim=1}
  %z = mm %x, %w
  %a = slice %z {dim=1, start=LO, stop=HI}
  %b = slice %z {dim=1, start=64, stop=128}
  %s = silu %a
  %y = mul %s, %b
  return %y
"""
MICRO = """program many mesh(tp=2)
  input %x: f32[96, 64]
  param %g: f32[64, 64]
  param %u: f32[64, 64]
  %x0 = slice %x {dim=0, start=0, stop=32}
  %x1 = slice %x {dim=0, start=32, stop=96}
  %a0 = mm %x0, %g
  %a1 = mm %x1, %g
  %s0 = silu %a0
  %s1 = silu %a1
  %b0 = mm %x0, %u
  %b1 = mm %x1, %u
  %y0 = mul %s0, %b0
  %y1 = mul %s1, %b1
  %y = concat %y0, %y1 {dim=0}
  return %y
"""
CONTRACT = "input g tp=S(1)\ninput u tp=S(1)\noutput y tp=S(1)\n"


def triple(many: str) -> tuple[Program, Program, Contract]:
    one, ranks = parse_text(ONE), parse_text(many)
    return one, *compose(ranks, read_contract(CONTRACT, one, ranks))


@pytest.mark.parametrize("many", [FUSED.replace("LO", "0").replace("HI", "64"), MICRO])
def test_proof_in_index_notation_is_accepted_and_says_so(many: str) -> None:
    programs = triple(many)
    verdict = verify(Problem(*programs))
    assert isinstance(verdict, Proof)
    found = check(verdict.certificate, Problem(*programs))
    assert isinstance(found, Accepted)
    assert found.rests == ("index notation",)


def test_another_part_is_not_taken_for_the_one_asked() -> None:
    programs = triple(FUSED.replace("LO", "0").replace("HI", "64"))
    proof = verify(Problem(*programs))
    assert isinstance(proof, Proof)
    wrong = triple(FUSED.replace("LO", "64").replace("HI", "128"))
    assert isinstance(verify(Problem(*wrong)), Counterexample)
    from shardproof.verifier.kernel.inline import inline
    from shardproof.verifier.text.assemble import shared, well_formed
    from shardproof.verifier.text.digest import digest

    held = digest(inline(well_formed(shared(wrong[1]))))
    moved = {**proof.certificate, "distributed": {"name": "many", "digest": held}}
    found = check({**moved, "seal": seal(moved)}, Problem(*wrong))
    assert isinstance(found, Rejected)
    assert "another value" in found.reason
