"""Chunks that ranks cut out of a value, or put between zeros, each at its own place."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardproof.synthesis.frontends.rank_programs import read_ranks
from shardproof.synthesis.frontends.rank_programs.form import header
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof
from tests.rank_programs.judging import verify_ranks

ONE = parse_text("""
program one
  input %x: f32[8, 3]
  %y = mul_scalar %x {value=2}
  return %y "y"
""")
TEXT = """rank {r}
input %x: f32[2, 3]
%p = pad %x {{dim=0, lo={lo}, hi={hi}}} : f32[8, 3]
%q = mul_scalar %p {{value=2}} : f32[8, 3]
%y = all_reduce %q {{ranks=[0, 1, 2, 3], reduce=sum}} : f32[8, 3]
return %y "y"
end
"""


def folder(path: Path, places: list[int]) -> Path:
    (path / "mesh.sp").write_text(header("padded", Mesh.of(dp=2, tp=2)))
    for r, lo in enumerate(places):
        text = TEXT.format(r=r, lo=lo, hi=6 - lo)
        (path / f"rank-{r:05d}.sp").write_text(text)
    return path


def contract() -> Contract:
    split = from_placements((8, 3), [("dp", 2, "S(0)"), ("tp", 2, "S(0)")])
    return Contract({"x": split}, {"output:y": Layout.replicate((8, 3))})


def test_pads_in_turn_are_pieces_of_a_sum(tmp_path: Path) -> None:
    folder(tmp_path, [0, 2, 4, 6])
    program = read_ranks(tmp_path).program
    assert program is not None
    assert next(n.op for n in program.nodes) == "shard_pad"
    assert isinstance(verify_ranks(ONE, tmp_path, contract()).verdict, Proof)


@pytest.mark.parametrize("places", [[0, 4, 2, 6], [0, 2, 4, 4], [2, 0, 6, 4]])
def test_pads_elsewhere_are_found(tmp_path: Path, places: list[int]) -> None:
    found = verify_ranks(ONE, folder(tmp_path, places), contract()).verdict
    assert isinstance(found, Counterexample)
