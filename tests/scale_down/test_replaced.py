"""A number of the distributed program alone: wrong ones are refuted, right ones never."""

from __future__ import annotations

import numpy as np
import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.compare import compare
from shardproof.verifier.refute.dedup import run_once
from shardproof.verifier.refute.sampling import sample
from shardproof.verifier.refute.search import too_large
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof, Verdict

ONE = """program one
  param %w: f32[2048, 512]
  input %x: f32[4096, 2048]
  %h = mm %x, %w
  %a = silu %h
  %t = sum %a {dims=[0], keepdim=true}
  %m = mul_scalar %t {value=1/4096}
  return %m "y"
"""
MANY = """program many mesh(dp=64, tp=2)
  param %w: f32[2048, 256]
  input %x: f32[64, 2048]
  %h = mm %x, %w
  %a = silu %h
  STEP
  %t0 = sum %b {dims=[0], keepdim=true}
  END
  %y = all_gather %m {mesh_dim=tp, dim=1}
  return %y "y"
"""
SUMMED = "%t = all_reduce %t0 {mesh_dim=dp} %m = mul_scalar %t {value=1/4096}"
MEAN_OF_MEANS = """%l = mul_scalar %t0 {value=1/64} %t = all_reduce %l {mesh_dim=dp}
  %m = mul_scalar %t {value=1/64}"""
PLAIN = "%b = mul_scalar %a {value=1}"
REST = f"dp={[i for i in range(64) if i != 37]}"
ON_ONE = f"""%c = mul_scalar %a {{value=3}} on(dp=37, tp=1)
  %d = mul_scalar %a {{value=1}} on(dp=37, tp=0)
  %e = mul_scalar %a {{value=1}} on({REST})
  %b = merge %c, %d, %e"""


def _verdict(step: str, end: str) -> tuple[Verdict, Program, Program, Contract]:
    one = parse_text(ONE)
    many = parse_text(MANY.replace("STEP", step).replace("END", end))
    placed = {
        "w": from_placements((2048, 512), [("tp", 2, "S(1)")]),
        "x": from_placements((4096, 2048), [("dp", 64, "S(0)")]),
    }
    contract = Contract(placed, {"output:y": from_placements((1, 512), [])})
    assert too_large(one, many)
    return verify(Problem(one, many, contract)), one, many, contract


@pytest.mark.parametrize("end", [SUMMED, MEAN_OF_MEANS], ids=["sum", "mean of means"])
def test_the_programs_without_the_number_are_proved(end: str) -> None:
    assert isinstance(_verdict(PLAIN, end)[0], Proof)


@pytest.mark.parametrize("end", [SUMMED, MEAN_OF_MEANS], ids=["sum", "mean of means"])
@pytest.mark.parametrize(
    "step", [ON_ONE, "%b = mul_scalar %a {value=3}"], ids=["on one rank", "on all"]
)
def test_a_wrong_number_is_refuted_and_placed(step: str, end: str) -> None:
    found = _verdict(step, end)[0]
    assert isinstance(found, Counterexample), found
    assert found.location is not None
    assert found.location.op == "mul_scalar"
    assert "value=3" in found.location.text
    assert "with 1 in place of 3" in found.location.reason


def test_a_mean_over_ranks_taken_twice_is_placed_where_it_is_too_many() -> None:
    twice = "%b = mul_scalar %a {value=1/64}"
    found = _verdict(twice, MEAN_OF_MEANS)[0]
    assert isinstance(found, Counterexample), found
    assert found.location is not None
    assert "value=1/64" in found.location.text


@pytest.mark.parametrize(
    ("step", "end"),
    [
        ("%b = mul_scalar %a {value=8}", SUMMED.replace("1/4096", "1/32768")),
        ("%b = mul_scalar %a {value=64}", MEAN_OF_MEANS.replace("1/64}", "1/512}")),
        (ON_ONE.replace("value=3", "value=1"), MEAN_OF_MEANS),
    ],
    ids=["scaled and back", "scaled by ranks and back", "written apart"],
)
def test_right_numbers_are_not_refuted(step: str, end: str) -> None:
    found, one, many, contract = _verdict(step, end)
    inputs = sample(inline(one), Floats(), np.random.default_rng(0), {})
    with np.errstate(all="ignore"):
        assert compare(Problem(inline(one), inline(many), contract), inputs, run_once) is None
    assert not isinstance(found, Counterexample), found
