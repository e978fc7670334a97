"""A two-stage program with replicas and tensor ranks, and edits of one rank's text."""

from __future__ import annotations

import re
from pathlib import Path

from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.text.parser import parse_text
from tests.rank_programs.writing import write_ranks

SEQUENTIAL = parse_text("""
program lookup
  param %table: f32[16, 4]
  param %w: f32[4, 4]
  input %ids: i64[8]
  %h = take %table, %ids {dim=0, offset=0}
  %y = mm %h, %w
  %z = mul_scalar %y {value=1/2}
  return %z
""")
DISTRIBUTED = parse_text("""
program lookup mesh(pp=2, dp=4, tp=4)
  param %table: f32[4, 4] on(pp=0)
  param %w: f32[4, 1] on(pp=1)
  input %ids: i64[2] on(pp=0)
  %part = take %table, %ids {dim=0, offset=4*tp} on(pp=0)
  %h = all_reduce %part {mesh_dim=tp, reduce=sum} on(pp=0)
  %sent = send %h {mesh_dim=pp, src=0, dst=1} on(pp=0)
  %got = recv %sent {mesh_dim=pp, src=0, dst=1} on(pp=1)
  %y = mm %got, %w on(pp=1)
  %z = mul_scalar %y {value=1/2} on(pp=1)
  %whole = all_gather %z {mesh_dim=tp, dim=1} on(pp=1)
  %all = all_gather %whole {mesh_dim=dp, dim=0} on(pp=1)
  return %all "z"
""")


def contract() -> Contract:
    mesh = DISTRIBUTED.mesh

    def placed(shape: tuple[int, ...], **dims: str) -> Layout:
        return from_placements(shape, [(n, mesh[n], dims.get(n, "R")) for n in mesh.names])

    return Contract(
        {
            "table": placed((16, 4), tp="S(0)"),
            "w": placed((4, 4), tp="S(1)"),
            "ids": placed((8,), dp="S(0)"),
        },
        {"output:z": placed((8, 4))},
        held={"table": (("pp", (0,)),), "w": (("pp", (1,)),), "ids": (("pp", (0,)),)},
        wanted={"output:z": (("pp", (1,)),)},
    )


def written(folder: Path, program: Program = DISTRIBUTED) -> Path:
    write_ranks(program, folder)
    return folder


def file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank:05d}.sp"


def edit(folder: Path, rank: int, pattern: str, new: str) -> int:
    """Replace the first match in one rank's text; gives its line."""
    path = file(folder, rank)
    text = path.read_text(encoding="utf-8")
    found = re.search(pattern, text)
    assert found is not None, f"no {pattern} in {text}"
    path.write_text(text[: found.start()] + found.expand(new) + text[found.end() :], "utf-8")
    return text.count("\n", 0, found.start()) + 1
