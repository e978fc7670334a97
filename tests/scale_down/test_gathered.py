"""Shards of parameters that are gathered before use end anywhere: their cuts are no heads."""

from __future__ import annotations

import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Atom, Layout, whole
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.scale_down.resized import Resized, resize
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof

ONE = """program one
  param %q: f32[16384, 256]
  param %k: f32[1024, 256]
  input %x: f32[512, 256]
  %tq = permute %q {dims=[1, 0]}
  %tk = permute %k {dims=[1, 0]}
  %yq = mm %x, %tq
  %yk = mm %x, %tk
  %hq = reshape %yq {shape=[512, 128, 128]}
  %hk = reshape %yk {shape=[512, 8, 128]}
  %lq = slice %hq {dim=2, start=0, stop=64}
  %uk = slice %hk {dim=2, start=64, stop=128}
  return %lq "lq", %uk "uk"
"""
MANY = """program many mesh(dp=64, tp=8)
  param %q: f32[32, 256]
  param %k: f32[2, 256]
  input %x: f32[8, 256]
  %wq = all_gather %q {mesh_dim=dp, dim=0}
  %wk = all_gather %k {mesh_dim=dp, dim=0}
  %tq = permute %wq {dims=[1, 0]}
  %tk = permute %wk {dims=[1, 0]}
  %yq = mm %x, %tq
  %yk = mm %x, %tk
  %hq = reshape %yq {shape=[8, 16, 128]}
  %hk = reshape %yk {shape=[8, 1, 128]}
  %lq = slice %hq {dim=2, start=0, stop=64}
  %uk = slice %hk {dim=2, start=64, stop=128}
  return %lq "lq", %uk "uk"
"""


def contract() -> Contract:
    def rows(size: int) -> Layout:
        return Layout(((Atom(8, "tp"), Atom(64, "dp"), Atom(size)), whole(256)))

    batch = [("dp", 64, "S(0)")]
    heads = [*batch, ("tp", 8, "S(1)")]
    return Contract(
        {"q": rows(32), "k": rows(2), "x": from_placements((512, 256), batch)},
        {
            "output:lq": from_placements((512, 128, 64), heads),
            "output:uk": from_placements((512, 8, 64), heads),
        },
    )


def test_the_programs_are_proved_and_resized_to_few_ranks() -> None:
    one, many = parse_text(ONE), parse_text(MANY)
    assert isinstance(verify(Problem(one, many, contract())), Proof)
    small = resize(Problem(one, many, contract()))
    assert isinstance(small, Resized), small
    assert small.problem.distributed.mesh.size <= 16
    assert not small.caveats


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("slice %hq {dim=2, start=0, stop=64}", "slice %hq {dim=2, start=64, stop=128}"),
        ("%wk = all_gather %k", "%g = neg %k %wk = all_gather %g"),
    ],
    ids=["the other half", "a sign"],
)
def test_wrong_ones_are_refuted(right: str, wrong: str) -> None:
    assert right in MANY
    found = verify(Problem(parse_text(ONE), parse_text(MANY.replace(right, wrong)), contract()))
    assert isinstance(found, Counterexample), found
