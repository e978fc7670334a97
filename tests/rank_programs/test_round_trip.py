"""What is written for every rank is read back as the same program, with the same verdict."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from benchmarks.steps.examples import preconditions
from benchmarks.steps.model import MODELS, Degrees
from benchmarks.steps.step import training_step
from shardproof.synthesis.frontends.rank_programs import read_ranks
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Affine, Mesh, TensorType
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Proof
from tests.rank_programs.graphs import graph, results
from tests.rank_programs.judging import verify_ranks
from tests.rank_programs.samples import DISTRIBUTED, SEQUENTIAL, contract, written
from tests.rank_programs.writing import write_ranks


@pytest.mark.parametrize("kind", ["folder", "ranks.spz", "ranks.sp", "ranks.zip"])
def test_every_container_gives_the_program_back(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "ranks.zip":
        folder = written(tmp_path / "folder")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(folder.iterdir()):
                archive.write(name, name.name)
    else:
        write_ranks(DISTRIBUTED, path)
    read = read_ranks(path)
    assert read.findings == ()
    assert [len(c.ranks) for c in read.classes] == [16, 16]
    assert read.program is not None
    assert graph(read.program) == graph(DISTRIBUTED)
    assert isinstance(verify_ranks(SEQUENTIAL, path, contract()).verdict, Proof)


@pytest.mark.parametrize(
    "degrees",
    [
        Degrees(dp=2, tp=2, pp=2, micro_batches=2),
        Degrees(dp=2, tp=2, sequence_parallel=True, zero=1),
        Degrees(dp=2, pp=2, micro_batches=2, schedule="gpipe", zero=3),
        Degrees(tp=2, cp=2),
        Degrees(tp=2, dp=2, scan_layers=True),
    ],
    ids=str,
)
def test_training_steps_come_back(tmp_path: Path, degrees: Degrees) -> None:
    step = training_step(MODELS["tiny"], degrees)
    write_ranks(step.distributed, tmp_path / "step.spz")
    read = read_ranks(tmp_path / "step.spz")
    assert read.findings == ()
    assert read.program is not None
    assert graph(read.program) == graph(step.distributed)


def test_the_verdict_on_a_training_step_is_the_same(tmp_path: Path) -> None:
    step = training_step(MODELS["tiny"], Degrees(tp=2, pp=2))
    write_ranks(step.distributed, tmp_path)
    known = preconditions(step)
    assert isinstance(
        verify(Problem(step.sequential, step.distributed, step.contract, consts=known)), Proof
    )
    found = verify_ranks(step.sequential, tmp_path, step.contract, consts=known)
    assert isinstance(found.verdict, Proof)
    assert found.verdict.stats["ranks"] == 4


MOVES = """
program moves mesh(pp=2, dp=3)
  input %x: f32[6]
  %a = reduce_to %x {mesh_dim=dp, index=1, reduce=sum}
  %b = broadcast %a {mesh_dim=dp, index=1}
  %c = gather %b {mesh_dim=dp, dim=0, index=2}
  %d = scatter %c {mesh_dim=dp, dim=0, index=2}
  %e = ring_shift %d {mesh_dim=dp, shift=2}
  %f = neg %e on(pp=0)
  %g = exp %e on(pp=1)
  %h = merge %f, %g
  %i = all_reduce %h {mesh_dim=[dp, pp], reduce=max}
  %j = only %i on(pp=1, dp=[0, 2])
  %k = on_coord %i {mesh_dim=dp, index=1}
  %l = shard_slice %k {mesh_dim=[pp, dp], dim=0}
  return %i, %j, %l
"""


def test_movements_over_a_root_and_around_a_ring_come_back(tmp_path: Path) -> None:
    program = parse_text(MOVES)
    write_ranks(program, tmp_path / "moves.sp")
    read = read_ranks(tmp_path / "moves.sp")
    assert read.findings == ()
    assert read.program is not None
    assert graph(read.program) == graph(program)


def test_slices_in_turn_are_chunks_of_mesh_dims(tmp_path: Path) -> None:
    lines = ["ranks 6 of cut mesh(dp=3, tp=2)"]
    for rank in range(6):
        at = 2 * (rank % 2 * 3 + rank // 2)
        lines += [f"rank {rank}", "input %x: f32[12]"]
        lines += [f"%y = slice %x {{dim=0, start={at}, stop={at + 2}}}", "return %y", "end"]
    (tmp_path / "cut.sp").write_text("\n".join(lines), "utf-8")
    read = read_ranks(tmp_path / "cut.sp")
    assert read.findings == ()
    assert read.program is not None
    (node,) = read.program.nodes
    assert (node.op, node.attrs) == ("shard_slice", {"mesh_dim": ("tp", "dp"), "dim": 0})


def test_slices_that_are_uneven_stand_on_their_ranks(tmp_path: Path) -> None:
    cuts = (0, 5, 8, 12)
    lines = ["ranks 3 of cut mesh(tp=3)"]
    for rank in range(3):
        start, stop = cuts[rank : rank + 2]
        lines += [f"rank {rank}", "input %x: f32[12]"]
        lines += [f"%y = slice %x {{dim=0, start={start}, stop={stop}}}", "%s = sum %y {dims=[0]}"]
        lines += ["%t = all_reduce %s {ranks=[0, 1, 2]}", "return %t", "end"]
    (tmp_path / "cut.sp").write_text("\n".join(lines), "utf-8")
    read = read_ranks(tmp_path / "cut.sp")
    assert read.findings == ()
    assert read.program is not None
    x = np.arange(12.0)
    assert {r["output:t"] for r in results(read.program, [{"x": x}] * 3)} == {(66.0,)}


MESH = Mesh.of(pp=2, dp=2, tp=3)
STEPS = ("neg", "add", "reduce", "tuple", "slice", "iota", "send", "merge", "broadcast")


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Random programs over two stages."""
    b = Builder("random", MESH)
    kind = TensorType((6,))
    pools: dict[int, list[str]] = {}
    for stage in range(2):
        with b.on(pp=stage):
            pools[stage] = [b.input(f"x{stage}", kind)]
    for _ in range(draw(st.integers(1, 8))):
        stage = draw(st.integers(0, 1))
        x = draw(st.sampled_from(pools[stage]))
        what = draw(st.sampled_from(STEPS))
        if what == "send":
            sent = b.add_node(
                "send",
                [x],
                {"mesh_dim": "pp", "src": stage, "dst": 1 - stage},
                where=(("pp", (stage,)),),
            )
            with b.on(pp=1 - stage):
                (got,) = b.add_node(
                    "recv", sent, {"mesh_dim": "pp", "src": stage, "dst": 1 - stage}
                )
            pools[1 - stage].append(got)
            continue
        if what == "merge":
            other = draw(st.sampled_from(pools[1 - stage]))
            pieces: list[str] = []
            for at, value in enumerate((x, other) if stage == 0 else (other, x)):
                with b.on(pp=at):
                    pieces.append(b.add("only", value))
            both = b.add("merge", *pieces)
            total = b.add("all_reduce", both, mesh_dim=("dp", "pp"), reduce="sum")
            for pool in pools.values():
                pool.append(total)
            continue
        with b.on(pp=stage):
            if what == "neg":
                made = b.add("neg", x)
            elif what == "add":
                made = b.add("add", x, draw(st.sampled_from(pools[stage])))
            elif what == "reduce":
                dims = draw(st.sampled_from(["dp", "tp"]))
                made = b.add("all_reduce", x, mesh_dim=dims, reduce="max")
            elif what == "tuple":
                dims = draw(st.permutations(["dp", "tp"]))
                part = b.add("shard_slice", x, mesh_dim=tuple(dims), dim=0)
                dims = draw(st.permutations(["dp", "tp"]))
                made = b.add("all_gather", part, mesh_dim=tuple(dims), dim=0)
            elif what == "slice":
                part = b.add("shard_slice", x, mesh_dim="tp", dim=0)
                made = b.add("concat", part, part, part, dim=0)
            elif what == "iota":
                steps = draw(st.tuples(*[st.integers(-3, 3)] * 3))
                offset = Affine.of(7, dict(zip(MESH.names, steps, strict=True)))
                row = b.add("iota", shape=(6,), dim=0, offset=offset, dtype="f32")
                made = b.add("mul", x, row)
            else:
                index = draw(st.integers(0, 1))
                made = b.add("broadcast", x, mesh_dim="dp", index=index)
        pools[stage].append(made)
    for stage in range(2):
        b.output(pools[stage][-1], "output", f"y{stage}")
    return b.build()


@settings(max_examples=40, deadline=None)
@given(programs())
def test_random_programs_come_back_and_compute_the_same(program: Program) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_ranks(program, folder)
        read = read_ranks(folder)
    assert read.findings == ()
    assert read.program is not None
    rng = np.random.default_rng(0)
    ranks = [
        {i.name: rng.integers(-4, 5, i.type.shape).astype(float) for i in program.inputs}
        for _ in range(MESH.size)
    ]
    assert results(read.program, [*ranks]) == results(program, [*ranks])
