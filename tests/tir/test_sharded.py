"""Kernels on a mesh: the verdicts, each wrong sharding beside the right one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from shardproof.compat.tir_lifter import Collective, TirError, shard, verify_lifted
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "tir"
GEMM = {"m": 8, "k": 8, "n": 8}
TILES = {"M": 64, "N": 64, "K": 32}
ROW = {"A": {"tp": "S(1)"}, "B": {"tp": "S(0)"}}
COLUMN = {"B": {"tp": "S(1)"}}
SUM = Collective("C", "all_reduce", {"mesh_dim": "tp"})
GATHER = Collective("C", "all_gather", {"mesh_dim": "tp", "dim": 1})
SCATTER = Collective("C", "reduce_scatter", {"mesh_dim": "tp", "dim": 0})
SPLIT = {"X": {"tp": "S(1)"}, "W": {"tp": "S(0)"}}
HEADS = {"batch": 1, "heads": 4, "seq": 4, "dim": 3}
QKV = {n: {"tp": "S(1)"} for n in "QKV"}
MLP = {"W1": {"tp": "S(1)"}, "B1": {"tp": "S(0)"}, "W2": {"tp": "S(0)"}}


def total(buffer: str, reduce: str = "sum") -> Collective:
    return Collective(buffer, "all_reduce", {"mesh_dim": "tp", "reduce": reduce})


Case = tuple[str, str, dict[str, int], Any, Any, Sequence[Collective], bool]
CASES: list[Case] = [
    ("row-parallel, no sum", "gemm.tir.py", GEMM, ROW, {}, [], False),
    ("row-parallel, summed", "gemm.tir.py", GEMM, ROW, {}, [SUM], True),
    ("row-parallel, left partial", "gemm.tir.py", GEMM, ROW, {"C": {"tp": "P"}}, [], True),
    ("row-parallel, scattered", "gemm.tir.py", GEMM, ROW, {"C": {"tp": "S(0)"}}, [SCATTER], True),
    ("row-parallel, scattered by columns", "gemm.tir.py", GEMM, ROW, {"C": {"tp": "S(1)"}},
     [Collective("C", "reduce_scatter", {"mesh_dim": "tp", "dim": 1})], True),
    ("row-parallel, summed twice", "gemm.tir.py", GEMM, ROW, {}, [SUM, SUM], False),
    ("row-parallel, averaged", "gemm.tir.py", GEMM, ROW, {}, [total("C", "avg")], False),
    ("column-parallel", "gemm.tir.py", GEMM, COLUMN, {"C": {"tp": "S(1)"}}, [], True),
    ("column-parallel, gathered", "gemm.tir.py", GEMM, COLUMN, {}, [GATHER], True),
    ("column-parallel, summed", "gemm.tir.py", GEMM, COLUMN, {"C": {"tp": "S(1)"}}, [SUM], False),
    ("tiled, imperfect, column", "gemm_tiled.tir.py", {}, COLUMN, {"C": {"tp": "S(1)"}}, [], True),
    ("tilelang, row, no sum", "gemm_tilelang.py", TILES, ROW, {}, [], False),
    ("tilelang, row, summed", "gemm_tilelang.py", TILES, ROW, {}, [SUM], True),
    ("tilelang, column", "gemm_tilelang.py", TILES, COLUMN, {"C": {"tp": "S(1)"}}, [], True),
    ("softmax along the row", "softmax.tir.py", {}, {"A": {"tp": "S(1)"}},
     {"Y": {"tp": "S(1)"}}, [], False),
    ("softmax along the row, sum only", "softmax.tir.py", {}, {"A": {"tp": "S(1)"}},
     {"Y": {"tp": "S(1)"}}, [total("total")], False),
    ("softmax along the row, both", "softmax.tir.py", {}, {"A": {"tp": "S(1)"}},
     {"Y": {"tp": "S(1)"}}, [total("top", "max"), total("total")], True),
    ("softmax of rows", "softmax.tir.py", {}, {"A": {"tp": "S(0)"}},
     {"Y": {"tp": "S(0)"}}, [], True),
    ("tilelang softmax along the row", "softmax_tilelang.py", {"M": 8, "N": 8},
     {"X": {"tp": "S(1)"}}, {"Y": {"tp": "S(1)"}}, [], False),
    ("tilelang softmax of rows", "softmax_tilelang.py", {"M": 16, "N": 8},
     {"X": {"tp": "S(0)"}}, {"Y": {"tp": "S(0)"}}, [], True),
    ("mlp", "mlp.tir.py", {}, MLP, {}, [total("P")], True),
    ("mlp, no sum", "mlp.tir.py", {}, MLP, {}, [], False),
    ("mlp, residual summed", "mlp.tir.py", {}, MLP, {}, [total("Y")], False),
    ("attention by heads", "attention_tilelang.py", HEADS, QKV, {"Y": {"tp": "S(1)"}}, [], True),
    ("attention by one head", "attention_tilelang.py", {**HEADS, "heads": 2}, QKV,
     {"Y": {"tp": "S(1)"}}, [], True),
    ("attention by positions", "attention_tilelang.py", HEADS,
     {n: {"tp": "S(2)"} for n in "QKV"}, {"Y": {"tp": "S(2)"}}, [], False),
    ("norm of rows", "layernorm.tir.py", {}, {"X": {"tp": "S(0)"}},
     {"Y": {"tp": "S(0)"}}, [], True),
    ("norm of split rows, local count", "rmsnorm.tir.py", {}, SPLIT, {"Y": {"tp": "S(1)"}},
     [total("squares")], False),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[c[0] for c in CASES])
def test_the_verdict(case: Case) -> None:
    _, name, extents, placements, outputs, collectives, right = case
    text = (EXAMPLES / name).read_text()
    given: Any = {"filename": name, "extents": extents, "collectives": collectives}
    verdict = verify_lifted(text, Mesh.of(tp=2), placements, outputs, **given)
    if right:
        assert isinstance(verdict, Proof), verdict
        both = shard(text, Mesh.of(tp=2), placements, outputs, **given)
        assert isinstance(
            check(verdict.certificate, Problem(*both.programs, both.contract)), Accepted
        )
    else:
        assert isinstance(verdict, Counterexample), verdict
        assert verdict.location is not None
        assert verdict.location.source.file == name


def test_a_script_of_its_own_for_the_ranks() -> None:
    """The count that a norm divides by stays whole: the extent of a rank is written out."""
    text = (EXAMPLES / "rmsnorm.tir.py").read_text()
    local = text.replace("T.float32(COLS)", "T.float32(16)")
    options: Mapping[str, Any] = {"collectives": [total("squares")], "local_extents": {"COLS": 8}}
    verdict = verify_lifted(
        text, Mesh.of(tp=2), SPLIT, {"Y": {"tp": "S(1)"}}, local_text=local, **options
    )
    assert isinstance(verdict, Proof)
    text = text.replace("T.float32(COLS)", "T.float32(15)")
    verdict = verify_lifted(
        text, Mesh.of(tp=2), SPLIT, {"Y": {"tp": "S(1)"}}, local_text=local, **options
    )
    assert isinstance(verdict, Counterexample)


def test_two_mesh_dims() -> None:
    text = (EXAMPLES / "gemm_tilelang.py").read_text()
    mesh = Mesh.of(dp=2, tp=2)
    placements = {"A": {"dp": "S(0)", "tp": "S(1)"}, "B": {"tp": "S(0)"}}
    for collectives, expected in (([SUM], Proof), ([], Counterexample)):
        verdict = verify_lifted(
            text,
            mesh,
            placements,
            {"C": {"dp": "S(0)"}},
            extents=TILES,
            collectives=collectives,
        )
        assert isinstance(verdict, expected)


WRONG: list[tuple[str, dict[str, int], Any, Any, Sequence[Collective], str]] = [
    (
        "gemm.tir.py",
        GEMM,
        {"A": {"tp": "S(1)"}},
        {},
        [],
        "extent k is split differently in A and B",
    ),
    ("gemm.tir.py", GEMM, {"C": {"tp": "S(1)"}}, {}, [], "placement of C; expected an input"),
    ("gemm.tir.py", GEMM, {}, {"A": {"tp": "S(1)"}}, [], "placement of A; expected an output"),
    ("gemm.tir.py", GEMM, {"A": {"pp": "S(1)"}}, {}, [], "mesh dim pp of A; expected tp"),
    ("gemm.tir.py", {**GEMM, "k": 7}, ROW, {}, [], "is not divisible by tp=2"),
    ("gemm.tir.py", GEMM, {"A": {"tp": "Q"}}, {}, [], "unknown placement"),
    ("gemm.tir.py", GEMM, {"A": {"tp": "P"}}, {}, [], "cannot be partial"),
    ("gemm.tir.py", GEMM, ROW, {}, [total("Z")], "a collective on Z; expected one of C"),
    ("gemm.tir.py", GEMM, ROW, {}, [Collective("C", "all_reduce")], "all_reduce of C"),
    ("gemm_tilelang.py", TILES, ROW, {}, [total("C_local")], "would run inside a loop"),
]


@pytest.mark.parametrize("case", WRONG, ids=[c[-1] for c in WRONG])
def test_placements_that_do_not_fit_are_one_error(case: Any) -> None:
    name, extents, placements, outputs, collectives, message = case
    text = (EXAMPLES / name).read_text()
    with pytest.raises(TirError) as caught:
        verify_lifted(
            text,
            Mesh.of(tp=2),
            placements,
            outputs,
            filename=name,
            extents=extents,
            collectives=collectives,
        )
    assert message in str(caught.value)
    assert str(caught.value).startswith(name)
