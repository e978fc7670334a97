"""Communication inserted into compute ops: as little as is needed, and proved."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.compat.cases import TP, placed, tensor
from verifier import (
    GELU,
    Add,
    AllReduce,
    Embedding,
    FlashAttention,
    IROp,
    LayerNorm,
    MatMul,
    PlacementAnalyzer,
    Program,
    Reshape,
    ShardingSpec,
    SiLU,
    synthesize_parallel_program,
)

Shapes = dict[str, tuple[tuple[int, ...], str]]


def layers(count: int) -> tuple[list[IROp], Shapes]:
    ops: list[IROp] = []
    inputs: Shapes = {"x": ((8, 16), "R")}
    x = "x"
    for i in range(count):
        ops += [
            LayerNorm(x, f"n{i}"),
            MatMul(f"n{i}", f"u{i}", f"h{i}"),
            SiLU(f"h{i}", f"g{i}"),
            MatMul(f"g{i}", f"d{i}", f"o{i}"),
            Add(f"o{i}", x, f"y{i}"),
        ]
        inputs |= {f"u{i}": ((16, 32), "1"), f"d{i}": ((32, 16), "0")}
        x = f"y{i}"
    return ops, inputs


QKV: Shapes = dict.fromkeys("qkv", ((8, 4), "0"))
CASES: dict[str, tuple[Callable[[], tuple[list[IROp], Shapes]], list[str]]] = {
    "three layers": (lambda: layers(3), ["AllReduce"] * 3),
    "column parallel stays split": (
        lambda: ([MatMul("x", "w", "y")], {"x": ((8, 16), "R"), "w": ((16, 32), "1")}),
        [],
    ),
    "split @ whole": (
        lambda: ([MatMul("x", "w", "y")], {"x": ((8, 16), "1"), "w": ((16, 32), "R")}),
        ["AllGather"],
    ),
    "vocabulary": (
        lambda: (
            [Embedding("i", "t", "e"), GELU("e", "y")], {"i": ((8,), "R"), "t": ((16, 4), "0")}
        ),
        ["AllReduce"],
    ),
    "context": (lambda: ([FlashAttention("q", "k", "v", "y")], QKV), ["AllGather", "AllGather"]),
    "norm of a split row": (lambda: ([LayerNorm("x", "y")], {"x": ((8, 16), "1")}), ["AllGather"]),
    "two shares, one sum": (
        lambda: (
            [MatMul("x", "w", "a"), MatMul("x", "v", "b"), Add("a", "b", "y")],
            {"x": ((8, 16), "1"), "w": ((16, 4), "0"), "v": ((16, 4), "0")},
        ),
        ["AllReduce"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_lacking_is_inserted(name: str) -> None:
    build, expected = CASES[name]
    ops, inputs = build()
    result = synthesize_parallel_program(
        ops,
        {n: shape for n, (shape, _) in inputs.items()},
        {n: ShardingSpec((placed(word),), TP) for n, (_, word) in inputs.items()},
    )
    assert result.success, result.summary()
    assert result.program is not None
    assert [type(op).__name__ for op in result.program.collectives] == expected


def test_what_no_communication_mends_is_not_proved() -> None:
    specs = {"x": ShardingSpec((placed("R"),), TP)}
    result = synthesize_parallel_program([Reshape("x", "y", (3, 3))], {"x": (8, 16)}, specs)
    assert not result.success
    assert "nothing fixes y = Reshape" in result.reason


def test_one_all_reduce_too_many_is_named() -> None:
    states = {"x": tensor("x", (8, 16), "1"), "w": tensor("w", (16, 32), "0")}
    twice = [MatMul("x", "w", "p"), AllReduce("p", "q"), AllReduce("q", "y")]
    found = PlacementAnalyzer().analyze(Program("twice", twice), states)
    assert not found.is_correct
    assert found.redundant_collectives
    assert not found.missing_collectives
    once = PlacementAnalyzer().analyze(Program("once", twice[:2]), states)
    assert once.is_correct
    assert once.partial_tensors == ["p"]
    broken = PlacementAnalyzer().analyze(Program("broken", [MatMul("x", "x", "y")]), states)
    assert "MatMul" in broken.error
