"""What ranks compute of parts that they share is the same on every rank when read of wholes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from shardproof.synthesis.frontends.torch.ranks.join import FewRanksError, RankError, join
from shardproof.synthesis.frontends.torch.ranks.shared_parts import products_of_wholes
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.refute.evaluate import evaluate, simulate

RANKS, HEADS, SIZE, WIDTH, ROWS = 4, 2, 4, 3, 6
WHOLE = HEADS * SIZE
TP = Mesh.of(tp=RANKS)


def head_of(rank: int) -> int:
    return rank * HEADS // RANKS


def rows(b: Builder, weight: str, head: int) -> str:
    return b.add("slice", weight, dim=0, start=head * SIZE, stop=(head + 1) * SIZE, step=1)


def among_zeros(b: Builder, part: str, head: int) -> str:
    return b.add("pad", part, dim=0, lo=head * SIZE, hi=WHOLE - (head + 1) * SIZE)


def turned(b: Builder, x: str) -> str:
    return b.add("permute", x, dims=(1, 0))


def rotated(b: Builder, x: str, table: str, *, back: bool = False) -> str:
    """Rotary position embedding of [2, heads, 3, size], or its adjoint."""
    half = SIZE // 2
    first = b.add("mul", x, table) if back else x
    parts = [b.add("slice", first, dim=3, start=s, stop=s + half, step=1) for s in (0, half)]
    if back:
        up = b.add("pad", b.add("neg", parts[0]), dim=3, lo=half, hi=0)
        other = b.add("add", up, b.add("pad", parts[1], dim=3, lo=0, hi=half))
    else:
        other = b.add("mul", b.add("concat", b.add("neg", parts[1]), parts[0], dim=3), table)
    return b.add("add", b.add("mul", x, table), other)


def split(b: Builder, x: str) -> str:
    """[6, size] as [2, heads, 3, size]."""
    wide = b.add("reshape", b.add("reshape", x, shape=(2, 3, SIZE)), shape=(2, 3, 1, SIZE))
    return b.add("permute", wide, dims=(0, 2, 1, 3))


def repeated(b: Builder, k: str, times: int) -> str:
    """A head of keys for so many heads of queries: [2, 1, 3, size] as [2, times, 3, size]."""
    one = b.add("reshape", k, shape=(2, 1, 1, 3, SIZE))
    many = b.add("expand", one, shape=(2, 1, times, 3, SIZE))
    return b.add("reshape", many, shape=(2, times, 3, SIZE))


def keys(head: int, queries: int = 1) -> Program:
    """A head of keys for heads of queries, and its gradients, as a rank has them of whole
    weights."""
    b = Builder("keys", TP)
    x = b.input("x", TensorType((ROWS, WIDTH), "f32"))
    w, bias = (
        b.param(n, TensorType(s, "f32"), n) for n, s in (("w", (WHOLE, WIDTH)), ("b", (WHOLE,)))
    )
    norm = b.param("norm", TensorType((SIZE,), "f32"), "norm")
    table = b.input("table", TensorType((1, 1, 3, SIZE), "f32"))
    g = b.input("g", TensorType((2, queries, 3, SIZE), "f32"))
    mine = rows(b, w, head)
    line = b.add("mm", x, turned(b, mine))
    line = b.add("add", line, rows(b, bias, head))
    k = split(b, line)
    root = b.add(
        "rsqrt",
        b.add(
            "add_scalar",
            b.add("sum", b.add("mul", k, k), dims=(3,), keepdim=True),
            value=Fraction(1),
        ),
    )
    even = b.add("mul", k, root)
    out, back = rotated(b, b.add("mul", even, norm), table), g
    if queries > 1:
        out = repeated(b, out, queries)
        row = b.add("reshape", g, shape=(2, 1, queries, 3, SIZE))
        back = b.add("sum", row, dims=(2,), keepdim=False)
    b.output(out, "output", "k")
    back = rotated(b, back, table, back=True)
    b.output(b.add("sum", b.add("mul", back, even), dims=(0, 1, 2), keepdim=False), "grad", "norm")
    back = b.add("mul", back, norm)
    inner = b.add("sum", b.add("mul", back, k), dims=(3,), keepdim=True)
    inner = b.add("mul", b.add("mul", inner, root), b.add("mul", root, root))
    less = b.add("mul", b.add("expand", inner, shape=(2, 1, 3, SIZE)), k)
    back = b.add("sub", b.add("mul", back, root), less)
    flat = b.add("permute", back, dims=(0, 2, 1, 3))
    flat = b.add("reshape", b.add("reshape", flat, shape=(2, 3, SIZE)), shape=(ROWS, SIZE))
    b.output(b.add("mm", flat, mine), "grad", "x")
    b.output(among_zeros(b, b.add("mm", turned(b, flat), x), head), "grad", "w")
    total = b.add("reshape", b.add("sum", flat, dims=(0,), keepdim=True), shape=(SIZE,))
    b.output(among_zeros(b, total, head), "grad", "b")
    return b.build()


def joined(head: Callable[[int], int], queries: int = 1) -> Program:
    return join([({"tp": r}, keys(head(r), queries)) for r in range(RANKS)])


@pytest.mark.parametrize("queries", [1, 2, 3])
def test_keys_that_ranks_share_are_read_of_all_keys(queries: int) -> None:
    read = products_of_wholes(joined(head_of, queries))
    shapes = {read.types[n.outputs[0]].shape for n in read.nodes if n.op == "mm"}
    assert shapes == {(ROWS, WHOLE), (ROWS, WIDTH), (WHOLE, WIDTH)}
    (cut,) = [n for n in read.nodes if n.op == "shard_slice"]
    assert read.types[cut.inputs[0]].shape == (2, RANKS * queries, 3, SIZE)  # the keys that go out
    padded = {read.types[n.inputs[0]].shape for n in read.nodes if n.op == "shard_pad"}
    assert padded == {(2, queries, 3, SIZE)}  # what their gradient is
    rng = np.random.default_rng(0)
    values = {i.name: rng.normal(size=i.type.shape) for i in read.inputs if i.name != "g"}
    given = [{**values, "g": rng.normal(size=(2, queries, 3, SIZE))} for _ in range(RANKS)]
    for rank, local in enumerate(simulate(read, given)):
        alone = replace(keys(head_of(rank), queries), mesh=Mesh())
        expected = evaluate(alone, given[rank])
        for mine, out in zip(alone.outputs, read.outputs, strict=True):
            np.testing.assert_allclose(local[out.value], expected[mine.value], atol=1e-12)


@pytest.mark.parametrize(
    "head", [lambda r: r % HEADS, lambda r: int(r == 1), lambda r: 1 - head_of(r)]
)
def test_ranks_with_other_heads_are_not_read(head: Callable[[int], int]) -> None:
    with pytest.raises(RankError):
        joined(head)


def test_all_ranks_must_be_known_where_some_share_a_part() -> None:
    ends = [({"tp": r}, keys(head_of(r))) for r in (0, RANKS - 1)]
    with pytest.raises(FewRanksError, match="ranks along tp share parts"):
        join(ends)
