"""Statements of layouts that mean nothing are told before anything is traced."""

from __future__ import annotations

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.stated import on_mesh, read_lines
from shardproof.verifier.kernel.program.types import Mesh


@pytest.mark.parametrize("text", [
    "y=P(avg)@dp", "y=S(0)", "y=Q@dp", "y=S(0)@dp,S(x)@tp", "y=", "=R", "y=S(0) @dp@tp",
])  # fmt: skip
def test_what_is_no_placement_is_told_at_once(text: str) -> None:
    with pytest.raises(CaptureError, match="--output-layout"):
        read_lines([text], "--output-layout")


@pytest.mark.parametrize("text", [
    "y=R", "y=Replicate", "y=S(-1)@dp", "y=Shard(0)@dp,P(max)@tp", "y=P@dp", "y=@tp",
    "y=[8][3 2@tp 4]", "y=[2@tp 8 + 2@tp 4][16]",
])  # fmt: skip
def test_placements_are_read_and_their_mesh_dims_must_be_there(text: str) -> None:
    lines = read_lines([text], "--layout")
    on_mesh(lines, Mesh.of(dp=2, tp=2))
    if "@" in text:
        with pytest.raises(CaptureError, match=r"the mesh has no dim '[dt]p'"):
            on_mesh(lines, Mesh.of(cp=2))
