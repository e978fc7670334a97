"""The public names: what a star import gives, what it costs, and programs written against it."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import verifier
from shardproof.compat.names import HOME
from shardproof.compat.program import IROp
from verifier.temporal import RaceType, TemporalVerifyResult

BLOCKS = Path(__file__).parent / "blocks"
FIRST = ["verify", "check", "Problem", "Contract", "Proof", "Counterexample", "Unknown"]
OPS = [
    "MatMul",
    "Add",
    "Multiply",
    "SiLU",
    "GELU",
    "ReLU",
    "Dropout",
    "LayerNorm",
    "RMSNorm",
    "Softmax",
    "FlashAttention",
    "Embedding",
    "CrossEntropyLoss",
    "AllReduce",
    "AllGather",
    "ReduceScatter",
    "Broadcast",
    "Reduce",
    "AllToAll",
    "Scatter",
    "Gather",
    "Send",
    "Recv",
    "SendAsync",
    "RecvAsync",
    "AllReduceAsync",
    "Wait",
    "WaitAll",
    "OverlapRegion",
    "Cast",
    "LossScale",
    "FP8Quantize",
    "FP8Dequantize",
    "AmaxUpdate",
    "ZeROGatherParam",
    "ZeROScatterGrad",
    "ZeROPartitionOptState",
    "RingRotate",
    "RingAttentionStep",
    "RingAttention",
    "TopKGate",
    "MoEDispatch",
    "MoECombine",
    "ExpertCompute",
    "Reshape",
    "Transpose",
    "Reinterpret",
    "Convert",
]


def run(block: str) -> dict[str, object]:
    scope: dict[str, object] = {}
    exec(compile((BLOCKS / f"{block}.txt").read_text(), block, "exec"), scope)
    return scope


def test_a_row_parallel_linear_passes_four_questions(capsys: pytest.CaptureFixture[str]) -> None:
    run("linear")
    assert capsys.readouterr().out == "Verification Summary: 4 passed, 0 failed\n"


def test_a_read_before_the_wait_is_found() -> None:
    result = run("race")["result"]
    assert isinstance(result, TemporalVerifyResult)
    assert not result.is_safe
    assert (RaceType.MISSING_WAIT, "y") in [(r.race_type, r.tensor) for r in result.reports]


def test_a_vocabulary_parallel_embedding_is_whole_after_the_sum() -> None:
    final = run("embedding")["final"]
    assert isinstance(final, dict)
    assert final["emb_partial"].partial  # type: ignore[index]
    assert final["emb"].is_replicated  # type: ignore[index]


def test_there_are_48_ops() -> None:
    assert len(set(OPS)) == 48
    for name in OPS:
        assert issubclass(getattr(verifier, name), IROp)


def test_every_name_of_the_star_import_is_there() -> None:
    scope: dict[str, object] = {}
    exec("from verifier import *", scope)
    assert set(verifier.__all__) <= set(scope)
    assert verifier.__all__[: len(FIRST)] == FIRST
    assert set(verifier.__all__) == set(HOME) | set(FIRST)
    homes = [v.__module__ for k, v in scope.items() if k not in FIRST and inspect.isclass(v)]
    assert all(home.startswith("shardproof.compat.") for home in homes)


def test_importing_is_light() -> None:
    code = (
        "import sys, verifier; assert 'numpy' not in sys.modules;"
        "from verifier import *; from verifier.temporal import verify_temporal;"
        "assert not {'torch', 'z3', 'networkx'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_program_of_the_docs_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "classes.md").read_text(encoding="utf-8")
    block = text.split("```python\n")[1].split("```")[0]
    exec(compile(block, "classes.md", "exec"), {})
    assert "4 passed, 0 failed" in capsys.readouterr().out
