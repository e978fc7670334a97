"""An assumption of equal parts along a mesh dim holds on the ranks of a pipeline stage too."""

from __future__ import annotations

import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.kernel.contract import Balanced, Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof

ONE = """program one
  input %w: f32[8000000]
  input %x: f32[8000000]
  %n = sum %w {dims=[0], keepdim=false}
  %p = mul %w, %x
  %s = sum %p {dims=[0], keepdim=false}
  %l = div %s, %n
  return loss %l "loss"
"""
MANY = """program many mesh(pp=2, dp=2)
  input %w: f32[4000000]
  input %x: f32[4000000]
  %n = sum %w {dims=[0], keepdim=false} on(ON)
  %p = mul %w, %x on(ON)
  %s = sum %p {dims=[0], keepdim=false} on(ON)
  %l = div %s, %n on(ON)
  %half = mul_scalar %l {value=1/2} on(ON)
  %mean = all_reduce %half {mesh_dim=dp} on(ON)
  return loss %mean "loss"
"""


@pytest.mark.parametrize("assumed", [True, False])
def test_the_mean_of_means_of_one_stage(assumed: bool) -> None:
    split = from_placements((8_000_000,), [("dp", 2, "S(0)")])
    contract = Contract(
        {"w": split, "x": split},
        {"loss:loss": Layout.replicate(())},
        (Balanced("n", "dp", "the weight"),) if assumed else (),
        wanted={"loss:loss": (("pp", (1,)),)},
    )
    one, many = parse_text(ONE), parse_text(MANY.replace("ON", "pp=1"))
    found = verify(Problem(one, many, contract))
    assert isinstance(found, Proof) == assumed, found
    if isinstance(found, Proof):
        assert isinstance(check(found.certificate, Problem(one, many, contract)), Accepted)


@pytest.mark.parametrize(
    ("on", "right", "wrong"),
    [
        ("pp=1", "value=1/2", "value=1/3"),
        ("pp=1", "sum %w", "sum %x"),
        ("dp=0, pp=1", "all_reduce %half {mesh_dim=dp}", "mul_scalar %half {value=2}"),
    ],
    ids=["another share", "another count", "one rank alone"],
)
def test_what_is_not_assumed_is_refuted(on: str, right: str, wrong: str) -> None:
    split = from_placements((8_000_000,), [("dp", 2, "S(0)")])
    many = parse_text(MANY.replace(right, wrong).replace("ON", on))
    contract = Contract(
        {"w": split, "x": split},
        {"loss:loss": Layout.replicate(())},
        (Balanced("n", "dp", "the weight"),),
        wanted={"loss:loss": many.nodes[-1].where},
    )
    assert isinstance(verify(Problem(parse_text(ONE), many, contract)), Counterexample)
