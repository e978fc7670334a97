"""The scripts in `examples/tir`: lifted, run, and held against numpy and the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardproof.compat.tir_lifter import interpret, lift_text
from shardproof.verifier.refute.evaluate import evaluate
from shardproof.verifier.text.parser import parse_text, to_text

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "tir"
Arrays = dict[str, Any]


def mlp(g: Arrays) -> Any:
    h = g["X"] @ g["W1"] + g["B1"]
    return g["X"] + (h / (1 + np.exp(-h))) @ g["W2"]


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def layernorm(g: Arrays) -> Any:
    x = g["X"]
    over = np.sqrt(x.var(1, keepdims=True) + 1e-5)
    return (x - x.mean(1, keepdims=True)) / over * g["W"] + g["B"]


def rmsnorm(g: Arrays) -> Any:
    return g["X"] / np.sqrt((g["X"] ** 2).mean(1, keepdims=True) + 1e-6) * g["W"]


def attention(g: Arrays) -> Any:
    score = np.einsum("bhid,bhjd->bhij", g["Q"], g["K"]) * 0.125
    score = np.where(np.tri(score.shape[-1], dtype=bool), score, -np.inf)
    e = np.exp(score - score.max(-1, keepdims=True))
    return np.einsum("bhij,bhjd->bhid", e / e.sum(-1, keepdims=True), g["V"])


HEADS = {"batch": 2, "heads": 3, "seq": 4, "dim": 5}
SMALL = {"M": 16, "N": 8, "K": 8, "block_M": 8, "block_N": 4, "block_K": 4}
CASES: list[tuple[str, dict[str, Any], Callable[[Arrays], Any], set[str]]] = [
    ("gemm.tir.py", {"m": 6, "k": 5, "n": 4}, lambda g: g["A"] @ g["B"], {"matmul"}),
    ("gemm_tiled.tir.py", {"M": 37, "K": 8}, lambda g: g["A"] @ g["B"], {"matmul"}),
    ("mlp.tir.py", {}, mlp, {"matmul", "elementwise"}),
    ("softmax.tir.py", {}, lambda g: softmax(g["A"]), {"reduction(max)", "reduction(sum)"}),
    ("layernorm.tir.py", {}, layernorm, {"reduction(sum)", "elementwise"}),
    ("rmsnorm.tir.py", {"ROWS": 3}, rmsnorm, {"reduction(sum)"}),
    ("gemm_tilelang.py", SMALL, lambda g: g["A"] @ g["B"], {"matmul"}),
    ("attention_tilelang.py", HEADS, attention, {"matmul", "reduction(max)"}),
    ("softmax_tilelang.py", {"M": 8, "N": 6}, lambda g: softmax(g["X"]), {"reduction(max)"}),
]


def test_every_example_has_a_case() -> None:
    assert {p.name for p in EXAMPLES.glob("*.py")} == {name for name, *_ in CASES}


@pytest.mark.parametrize(("name", "extents", "truth", "kinds"), CASES, ids=[c[0] for c in CASES])
def test_program_interpreter_and_numpy_agree(
    name: str, extents: dict[str, Any], truth: Callable[[Arrays], Any], kinds: set[str]
) -> None:
    text = (EXAMPLES / name).read_text()
    made = lift_text(text, name, extents=extents)
    rng = np.random.default_rng(1)
    given = {i.name: rng.normal(size=i.type.shape) for i in made.program.inputs}
    (out,) = made.program.outputs
    got = evaluate(made.program, given)[out.value]
    np.testing.assert_allclose(got, truth(given), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(interpret(made.func, given)[out.path], got, rtol=1e-9, atol=1e-12)
    assert kinds <= {b.kind for b in made.blocks}
    again = parse_text(to_text(made.program))
    assert again.nodes == made.program.nodes


def test_a_tiled_product_through_shared_memory_is_one_product() -> None:
    text = (EXAMPLES / "gemm_tilelang.py").read_text()
    made = lift_text(text, "gemm_tilelang.py", extents={"M": 1024, "N": 512, "K": 256})
    assert [(n.op, n.inputs) for n in made.program.nodes] == [("mm", ("A", "B"))]
    (node,) = made.program.nodes
    assert node.source.file == "gemm_tilelang.py"
    assert node.source.text == "T.gemm(A_shared, B_shared, C_local)"


def test_check_runs_at_smaller_extents_where_they_have_names() -> None:
    text = (EXAMPLES / "gemm.tir.py").read_text()
    made = lift_text(text, "g", extents={"m": 512, "k": 16, "n": 8}, check=True)
    assert made.checked == "m=256, k=8, n=4"
    assert made.program["A"].shape == (512, 16)
