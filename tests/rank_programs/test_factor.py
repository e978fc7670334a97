"""One rank with another number, in programs too large to run: no right one is refuted."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.rank_texts import rank_texts
from shardproof.synthesis.frontends.rank_programs import read_ranks
from shardproof.synthesis.frontends.rank_programs.form import header
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
from shardproof.verifier.verdict import Counterexample, Proof
from tests.rank_programs.judging import verify_ranks

RANK = 37
HIDDEN = """
  param %w: f32[ROWS, 256]
  input %x: f32[ROWS, 256]
  %s = sigmoid %x
  %v = mul_scalar %s {value=10/3}
  %e = exp %w
  %u = add_scalar %e {value=1}
  %t0 = sum %u {dims=[0], keepdim=true}
  REDUCED
  %t = expand %t1 {shape=[ROWS, 256]}
  %y = CHOICE
  return %y
"""
CLIPPED = """
  param %w: f32[ROWS, 256]
  input %x: f32[ROWS, 256]
  %m = mul %x, %w
  %v = mul_scalar %m {value=10/3}
  %q = mul %v, %v
  %t0 = sum %q {dims=[0, 1], keepdim=true}
  REDUCED
  %r = sqrt %t1
  %o = full {shape=[1, 1], value=1, dtype=f32}
  %k = reciprocal %r
  %f = minimum %k, %o
  %g = expand %f {shape=[ROWS, 256]}
  %y = mul %v, %g
  return %y
"""
MADE_UP = (
    """
program made
  input %x: f32[256, 256]
  %y = add %x, %x
  %m = mul_scalar %x {value=1/64}
  return %y, %m
""",
    """
program made mesh(dp=64)
  input %x: f32[256, 256]
  %p = mul_scalar %x {value=1/64}
  %y = all_reduce %p {mesh_dim=dp, reduce=sum}
  %m = mul_scalar %x {value=1/64}
  return %y, %m
""",
)


def _pair(body: str) -> tuple[str, str]:
    total = "%t1 = all_reduce %t0 {mesh_dim=dp, reduce=sum}"
    one = body.replace("REDUCED", "").replace("%t1", "%t0").replace("ROWS", "4096")
    many = body.replace("REDUCED", total).replace("ROWS", "64")
    return f"program p{one}", f"program p mesh(dp=64){many}"


CUT = (
    """
program cut
  input %x: f32[4096, 256]
  %s = tanh %x
  %v = mul_scalar %s {value=10/3}
  %y = slice %v {dim=0, start=2432, stop=4096}
  return %y
""",
    """
program cut mesh(dp=64)
  input %x: f32[64, 256]
  %s = tanh %x
  %v = mul_scalar %s {value=10/3}
  %g = all_gather %v {mesh_dim=dp, dim=0}
  %y = slice %g {dim=0, start=2432, stop=4096}
  return %y
""",
)


CASES = {
    "a maximum with a sum of many": (_pair(HIDDEN.replace("CHOICE", "maximum %v, %t")), "20/3"),
    "a choice by an order": (
        _pair(HIDDEN.replace("%y = CHOICE", "%c = gt %v, %t\n  %y = where %c, %v, %t")),
        "20/3",
    ),
    "one rank that makes up for the others": (MADE_UP, "65/64"),
    "rows that are cut off": (CUT, "7/9"),
}


def _set(texts: tuple[str, str], number: str, path: Path) -> tuple[Program, Contract]:
    one, many = map(parse_text, texts)
    split = "S(0)" if any(i.name == "w" for i in one.inputs) else "R"
    placed = {
        i.name: from_placements(i.type.shape, [("dp", 64, "S(0)" if texts == CUT else split)])
        for i in one.inputs
    }
    outs = {
        f"output:{o.value}": from_placements(one[o.value].shape, [("dp", 64, split)])
        for o in one.outputs
    }
    written = [f"{header(many.name, many.mesh)}\n"]
    for rank, text in rank_texts(many):
        said = text.decode()
        if rank == RANK:
            said, count = re.subn(
                r"(mul_scalar %\S+ \{value=)[^}]*", rf"\g<1>{number}", said, count=1
            )
            assert count == 1
        written.append(said)
    path.write_text("".join(written), "utf-8")
    return one, Contract(placed, outs)


@pytest.mark.parametrize("name", CASES)
def test_a_right_number_is_not_refuted_where_a_smaller_mesh_would_show_it(
    name: str, tmp_path: Path
) -> None:
    texts, number = CASES[name]
    one, contract = _set(texts, number, tmp_path / "set.sp")
    many = read_ranks(tmp_path / "set.sp").program
    assert many is not None
    assert too_large(one, many)
    given = inline(one), inline(many), contract
    for seed in range(2):
        inputs = sample(one, Floats(), np.random.default_rng(seed), {})
        assert compare(Problem(*given), inputs, run_once) is None
    found = verify_ranks(one, tmp_path / "set.sp", contract)
    assert [f.rank for f in found.ingested.of_kind("deviates")] == [RANK]
    assert not isinstance(found.verdict, Counterexample | Proof), found.verdict


@pytest.mark.parametrize(
    "body", [CLIPPED, HIDDEN.replace("CHOICE", "add %v, %t")], ids=["clipped", "added"]
)
def test_a_wrong_number_is_refuted_through_a_choice_that_does_not_hide_it(
    body: str, tmp_path: Path
) -> None:
    one, contract = _set(_pair(body), "3", tmp_path / "set.sp")
    found = verify_ranks(one, tmp_path / "set.sp", contract)
    assert isinstance(found.verdict, Counterexample), found.verdict
    assert found.verdict.witness is not None
    assert [f.rank for f in found.ingested.of_kind("deviates")] == [RANK]
