"""Syntax trees that are built by hand lift like parsed ones."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from shardproof.compat.tir_lifter import (
    Apply,
    Const,
    Load,
    Store,
    TIRBlock,
    TIRBlockAxis,
    TIRBuffer,
    TIRBufferRegion,
    TirError,
    TIRFunc,
    TIRGrid,
    TIRLifter,
    TIRVar,
    compare,
    parse,
)
from shardproof.verifier.kernel.program.types import Mesh

LI, LJ, LK = (TIRVar(n) for n in "ijk")
VI, VJ, VK = (TIRVar(n) for n in ("vi", "vj", "vk"))
ZERO = Const(Fraction(0), True)
TARGET = Load("C", (VI, VJ))
PRODUCT = Apply("mul", (Load("A", (VI, VK)), Load("B", (VK, VJ))))
BLOCK = TIRBlock(
    "C",
    (
        TIRBlockAxis("vi", "S", 4, LI),
        TIRBlockAxis("vj", "S", 3, LJ),
        TIRBlockAxis("vk", "R", 5, LK),
    ),
    body=(Store("C", (VI, VJ), Apply("add", (TARGET, PRODUCT))),),
    init=(Store("C", (VI, VJ), ZERO),),
    reads=(TIRBufferRegion("A", ((VI, 1), (VK, 1))), TIRBufferRegion("B", ((VK, 1), (VJ, 1)))),
    writes=(TIRBufferRegion("C", ((VI, 1), (VJ, 1))),),
)
GEMM = TIRFunc(
    "gemm",
    (TIRBuffer("A", (4, 5)), TIRBuffer("B", (5, 3)), TIRBuffer("C", (4, 3))),
    (TIRGrid((LI, LJ, LK), (4, 3, 5), (BLOCK,)),),
    "by hand",
)
TEXT = """
@T.prim_func
def gemm(A: T.Buffer((4, 5)), B: T.Buffer((5, 3)), C: T.Buffer((4, 3))):
    for i, j, k in T.grid(4, 3, 5):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(A[vi, vk], B[vk, vj])
            T.writes(C[vi, vj])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


def test_the_tree_is_what_the_parser_makes() -> None:
    assert parse(TEXT, "by hand").body == GEMM.body


def test_a_function_lifts_with_the_layouts_of_its_parameters() -> None:
    made = TIRLifter({"A": {"tp": "S(0)"}}, Mesh.of(tp=2)).lift(GEMM)
    compare(made)
    assert [n.op for n in made.program.nodes] == ["mm"]
    assert [b.kind for b in made.blocks] == ["fill", "matmul"]
    assert made.layouts["A"].local_shape == (2, 5)
    assert made.layouts["B"].local_shape == (5, 3)


def wrong(block: TIRBlock) -> TIRFunc:
    return replace(GEMM, body=(TIRGrid((LI, LJ, LK), (4, 3, 5), (block,)),))


@pytest.mark.parametrize(
    ("func", "message"),
    [
        (wrong(replace(BLOCK, init=())), "C is read before it is written"),
        (wrong(replace(BLOCK, axes=BLOCK.axes[:2])), "vk is not in scope"),
        (wrong(replace(BLOCK, reads=())), "reads A outside what T.reads declares"),
        (replace(GEMM, body=(TIRGrid((LI,), (4, 3), ()),)), "an extent of 1 or more for each"),
        (replace(GEMM, body=()), "stores to none of its parameters"),
        (wrong(replace(BLOCK, body=(Store("C", (VI,), ZERO),))), "C has 2 dims"),
        (wrong(replace(BLOCK, body=(Store("Q", (VI,), ZERO),))), "buffer Q is not in scope"),
        (
            wrong(
                replace(
                    BLOCK,
                    body=(Store("C", (VI, VJ), Apply("add", (TARGET, Apply("zeta", (VI,))))),),
                )
            ),
            "function zeta is not understood",
        ),
    ],
)  # fmt: skip
def test_a_tree_that_means_nothing_is_refused(func: TIRFunc, message: str) -> None:
    with pytest.raises(TirError, match=message):
        TIRLifter().lift(func)


def test_placements_are_checked() -> None:
    with pytest.raises(TirError, match="mesh dim pp of A"):
        TIRLifter({"A": {"pp": "S(0)"}}, Mesh.of(tp=2)).lift(GEMM)
