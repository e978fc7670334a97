"""What is sent in one piece, sent one by one: the same on every rank, and a near miss is kept."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from shardproof.synthesis.frontends.torch.ranks.buckets import one_by_one
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.refute.evaluate import simulate

Shape = tuple[int, ...]
SEEDS = range(12)


def draw(rng: np.random.Generator) -> tuple[Mesh, int]:
    """A mesh, and the ranks along its `dp`."""
    ranks = int(rng.integers(2, 5))
    return (Mesh.of(dp=ranks), Mesh.of(dp=ranks, tp=2), Mesh.of(tp=2, dp=ranks))[
        int(rng.integers(3))
    ], ranks


def shape_of(rng: np.random.Generator, least: int = 1) -> Shape:
    return tuple(int(n) for n in rng.integers(least, 4, int(rng.integers(1, 4))))


def reduction(rng: np.random.Generator) -> str:
    return ("sum", "avg")[int(rng.integers(2))]


def flat(b: Builder, value: str) -> str:
    return b.add("reshape", value, shape=(b.types[value].size,))


def cut(b: Builder, value: str, dim: int, start: int, stop: int, step: int = 1) -> str:
    return b.add("slice", value, dim=dim, start=start, stop=stop, step=step)


def ops(program: Program) -> Counter[str]:
    return Counter(n.op for n in program.nodes)


def same(before: Program, after: Program, rng: np.random.Generator) -> None:
    """Every output of every rank, on random numbers."""
    given = [
        {i.name: rng.normal(size=i.type.shape) for i in before.inputs}
        for _ in range(before.mesh.size)
    ]
    for first, second in zip(simulate(before, given), simulate(after, given), strict=True):
        for x, y in zip(before.outputs, after.outputs, strict=True):
            a, z = np.asarray(first[x.value], float), np.asarray(second[y.value], float)
            assert a.shape == z.shape
            np.testing.assert_allclose(a, z, atol=1e-12)


def gathered(mesh: Mesh, ranks: int, shapes: Sequence[Shape]) -> Program:
    """Parameters gathered as one row of numbers."""
    b = Builder("gathered", mesh)
    params = [b.param(f"p{i}", TensorType(shape, "f32")) for i, shape in enumerate(shapes)]
    rows = [flat(b, p) for p in params]
    bucket = b.add("concat", *rows, dim=0) if len(rows) > 1 else rows[0]
    whole = b.add("all_gather", bucket, mesh_dim="dp", dim=0)
    columns = b.add("reshape", whole, shape=(ranks, b.types[bucket].size))
    at = 0
    for i, shape in enumerate(shapes):
        part = cut(b, columns, 1, at, at + math.prod(shape))
        at += math.prod(shape)
        read = b.add("reshape", flat(b, part), shape=(ranks * shape[0], *shape[1:]))
        b.output(read, "output", f"y{i}")
    return b.build()


def scattered(
    mesh: Mesh, ranks: int, shapes: Sequence[Shape], reduce: str, cast: str = ""
) -> Program:
    """Gradients reduced as one row of numbers, perhaps cast; each rank keeps its rows of each."""
    b = Builder("scattered", mesh)
    grads = [
        b.input(f"g{i}", TensorType((ranks * shape[0], *shape[1:]), "f32"))
        for i, shape in enumerate(shapes)
    ]
    rows = [b.add("reshape", g, shape=(ranks, b.types[g].size // ranks)) for g in grads]
    joined = b.add("concat", *rows, dim=1)
    bucket = flat(b, b.add("cast", joined, dtype=cast) if cast else joined)
    mine = b.add("reduce_scatter", bucket, mesh_dim="dp", dim=0, reduce=reduce)
    at = 0
    for i, shape in enumerate(shapes):
        part = cut(b, mine, 0, at, at + math.prod(shape))
        at += math.prod(shape)
        b.output(b.add("reshape", part, shape=shape), "grad", f"y{i}")
    return b.build()


@pytest.mark.parametrize("seed", SEEDS)
def test_parameters_of_a_bucket_are_gathered_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mesh, ranks = draw(rng)
    shapes = [shape_of(rng) for _ in range(int(rng.integers(2, 5)))]
    before = gathered(mesh, ranks, shapes)
    after = one_by_one(before)
    assert ops(after)["all_gather"] == len(shapes)
    assert not ops(after).keys() & {"concat", "slice"}
    same(before, after, rng)


@pytest.mark.parametrize("in_order", [True, False])
def test_parts_of_what_is_gathered_along_another_dim_are_of_one_gather(in_order: bool) -> None:
    b = Builder("along", Mesh.of(dp=2))
    whole = b.add("all_gather", b.input("x", TensorType((2, 3, 4), "f32")), mesh_dim="dp", dim=0)
    pieces = [cut(b, whole, 0, at, at + 2) for at in ((0, 2) if in_order else (2, 0))]
    joined = b.add("concat", *pieces, dim=2)
    for at in (0, 4):
        b.output(cut(b, joined, 2, at, at + 4), "output", f"y{at}")
    before = b.build()
    after = one_by_one(before)
    dims = [n.attrs["dim"] for n in after.nodes if n.op == "all_gather"]
    assert dims == [2 if in_order else 0]
    same(before, after, np.random.default_rng(0))


@pytest.mark.parametrize("cast", ["", "f32", "i64"])
@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_of_a_bucket_are_reduced_one_by_one(seed: int, cast: str) -> None:
    rng = np.random.default_rng(seed)
    mesh, ranks = draw(rng)
    shapes = [shape_of(rng) for _ in range(int(rng.integers(2, 5)))]
    reduce = "sum" if cast == "i64" else reduction(rng)
    before = scattered(mesh, ranks, shapes, reduce, cast)
    after = one_by_one(before)
    assert ops(after)["reduce_scatter"] == len(shapes)
    assert ops(after)["cast"] == (len(shapes) if cast else 0)
    assert not ops(after).keys() & {"concat", "slice"}
    assert {n.attrs["reduce"] for n in after.nodes if n.op == "reduce_scatter"} == {reduce}
    same(before, after, rng)


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_that_replicas_reduce_too_are_reduced_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = [shape_of(rng) for _ in range(int(rng.integers(2, 5)))]
    reduce = reduction(rng)
    b = Builder("replicas", Mesh.of(rep=2, dp=2))
    rows = [
        b.add(
            "reshape",
            b.input(f"g{i}", TensorType((2 * n, *rest), "f32")),
            shape=(2, n * math.prod(rest)),
        )
        for i, (n, *rest) in enumerate(shapes)
    ]
    bucket = flat(b, b.add("concat", *rows, dim=1))
    mine = b.add("reduce_scatter", bucket, mesh_dim="dp", dim=0, reduce=reduce)
    summed = b.add("all_reduce", mine, mesh_dim="rep", reduce=reduce)
    at = 0
    for i, shape in enumerate(shapes):
        part = cut(b, summed, 0, at, at + math.prod(shape))
        at += math.prod(shape)
        b.output(b.add("reshape", part, shape=shape), "grad", f"y{i}")
    before = b.build()
    after = one_by_one(before)
    assert ops(after)["reduce_scatter"] == ops(after)["all_reduce"] == len(shapes)
    assert not ops(after).keys() & {"concat", "slice"}
    same(before, after, rng)


@pytest.mark.parametrize("seed", SEEDS)
def test_sums_of_buckets_are_sums_of_their_gradients(seed: int) -> None:
    """Replicas reduce what was added up over micro-batches; one bucket may lie otherwise."""
    rng = np.random.default_rng(seed)
    ranks = int(rng.integers(2, 4))
    b = Builder("added", Mesh.of(rep=2, dp=ranks))
    shapes = [shape_of(rng) for _ in range(int(rng.integers(2, 4)))]
    other, total = bool(seed % 3 == 2), ""
    for at in range(int(rng.integers(2, 4))):
        kinds = [TensorType((ranks * s[0], *s[1:]), "f32") for s in shapes]
        grads = [b.input(f"g{at}.{i}", kind) for i, kind in enumerate(kinds)]
        rows = [b.add("reshape", g, shape=(ranks, b.types[g].size // ranks)) for g in grads]
        rows = rows[::-1] if other and at else rows
        bucket = flat(b, b.add("concat", *rows, dim=1))
        mine = b.add("reduce_scatter", bucket, mesh_dim="dp", dim=0, reduce="avg")
        total = b.add("add", total, mine) if total else mine
    total = b.add("all_reduce", total, mesh_dim="rep", reduce=reduction(rng))
    start = 0
    for i, shape in enumerate(shapes):
        part = cut(b, total, 0, start, start + math.prod(shape))
        start += math.prod(shape)
        b.output(b.add("reshape", part, shape=shape), "grad", f"y{i}")
    before = b.build()
    after = one_by_one(before)
    assert other or not ops(after).keys() & {"concat", "slice"}
    same(before, after, rng)


def test_what_is_read_in_the_end_says_along_which_dim_a_row_is_gathered() -> None:
    """[1, n] on w ranks as a row of numbers, which is read as [w, n]."""
    b = Builder("row", Mesh.of(dp=2))
    sent = b.add("all_gather", b.input("x", TensorType((1, 4), "f32")), mesh_dim="dp", dim=0)
    b.output(b.add("reshape", flat(b, sent), shape=(2, 4)), "output", "y")
    before = b.build()
    after = one_by_one(before)
    assert [n.attrs["dim"] for n in after.nodes if n.op == "all_gather"] == [0]
    same(before, after, np.random.default_rng(0))


def sent_flat(mesh: Mesh, old: Shape, new: Shape, reduce: str | None) -> Program:
    """A tensor sent as a row of numbers, and read as a tensor again."""
    b = Builder("flat", mesh)
    row = flat(b, b.input("x", TensorType(old, "f32")))
    sent = (
        b.add("all_gather", row, mesh_dim="dp", dim=0)
        if reduce is None
        else b.add("reduce_scatter", row, mesh_dim="dp", dim=0, reduce=reduce)
    )
    b.output(b.add("reshape", sent, shape=new), "output", "y")
    return b.build()


@pytest.mark.parametrize("reduces", [False, True], ids=["gathered", "reduced"])
@pytest.mark.parametrize("leading", range(3))
@pytest.mark.parametrize("seed", range(4))
def test_a_row_of_numbers_is_sent_as_the_tensor_it_is(
    seed: int, leading: int, reduces: bool
) -> None:
    """Along the first dim, and along those before which all extents are 1."""
    rng = np.random.default_rng(seed)
    mesh, ranks = draw(rng)
    ones, shape = (1,) * leading, (*shape_of(rng, 2), 3)
    piece, whole = (*ones, *shape), (*ones, ranks * shape[0], *shape[1:])
    reduce = reduction(rng) if reduces else None
    before = sent_flat(mesh, *((whole, piece) if reduces else (piece, whole)), reduce)
    after = one_by_one(before)
    (node,) = after.nodes
    assert node.attrs["dim"] == leading
    assert node.attrs.get("reduce", reduce) == reduce
    same(before, after, rng)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("reduces", [False, True], ids=["gathered", "reduced"])
def test_pieces_along_a_later_dim_are_not_joined(seed: int, reduces: bool) -> None:
    """[m, n] on w ranks in a row is [w m, n], not [m, w n]."""
    rng = np.random.default_rng(seed)
    mesh, ranks = draw(rng)
    m, n = (int(i) for i in rng.integers(2, 5, 2))
    shapes = ((m, ranks * n), (m, n)) if reduces else ((m, n), (m, ranks * n))
    before = sent_flat(mesh, *shapes, reduction(rng) if reduces else None)
    after = one_by_one(before)
    sent = next(n for n in after.nodes if n.op in ("all_gather", "reduce_scatter"))
    assert sent.attrs["dim"] == 0
    assert ops(after)["reshape"] >= 1
    same(before, after, rng)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("leading", [1, 2])
@pytest.mark.parametrize("kept", [0, 1], ids=["rows", "ones kept"])
def test_rows_of_ranks_that_hold_one_line_are_gathered_along_it(
    seed: int, leading: int, kept: int
) -> None:
    rng = np.random.default_rng(seed)
    mesh, ranks = draw(rng)
    n, *rest = (int(i) for i in rng.integers(2, 5, 2))
    b = Builder("rows", mesh)
    x = b.input("x", TensorType(((1,) * leading) + (n, *rest), "f32"))
    sent = b.add("all_gather", x, mesh_dim="dp", dim=0)
    read = (*((1,) * kept), ranks * n, *rest)
    b.output(b.add("reshape", sent, shape=read), "output", "y")
    before = b.build()
    after = one_by_one(before)
    (node,) = (node for node in after.nodes if node.op == "all_gather")
    assert node.attrs["dim"] == leading
    same(before, after, rng)


def test_lines_that_stay_lines_of_ranks_are_kept() -> None:
    """[w, n] of [1, n] on each rank, read as [w, n / 2, 2]: no dim of all rows."""
    b = Builder("lines", Mesh.of(dp=2))
    x = b.input("x", TensorType((1, 6), "f32"))
    sent = b.add("all_gather", x, mesh_dim="dp", dim=0)
    b.output(b.add("reshape", sent, shape=(2, 3, 2)), "output", "y")
    before = b.build()
    assert one_by_one(before) == before


PARTS = (3, 6)


@pytest.mark.parametrize(
    "part",
    [(1, 0, 2), (1, 1, 3), (1, 2, 5), (1, 0, 9), (1, 3, 9, 2), (0, 0, 1)],
    ids=["too short", "shifted", "of two", "all", "every second", "of a rank"],
)
def test_columns_that_are_no_part_of_the_bucket_are_kept(part: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    b = Builder("gathered", Mesh.of(dp=2))
    rows = [b.input(f"p{i}", TensorType((n,), "f32")) for i, n in enumerate(PARTS)]
    whole = b.add("all_gather", b.add("concat", *rows, dim=0), mesh_dim="dp", dim=0)
    columns = b.add("reshape", whole, shape=(2, sum(PARTS)))
    b.output(cut(b, columns, *part), "output", "y")
    before = b.build()
    after = one_by_one(before)
    assert ops(after) == ops(before)
    same(before, after, rng)


@pytest.mark.parametrize(
    "part",
    [(0, 0, 2), (0, 1, 4), (0, 2, 8), (0, 3, 9, 2)],
    ids=["too short", "shifted", "of two", "every second"],
)
def test_numbers_that_are_no_part_of_the_bucket_are_kept(part: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    b = Builder("scattered", Mesh.of(dp=2))
    rows = [b.input(f"g{i}", TensorType((2, n), "f32")) for i, n in enumerate(PARTS)]
    bucket = flat(b, b.add("concat", *rows, dim=1))
    mine = b.add("reduce_scatter", bucket, mesh_dim="dp", dim=0, reduce="sum")
    b.output(cut(b, mine, *part), "output", "y")
    before = b.build()
    after = one_by_one(before)
    assert ops(after) == ops(before)
    same(before, after, rng)


def test_columns_of_a_row_that_is_cut_elsewhere_are_kept() -> None:
    """[w n] seen as [n, w] is not one line a rank; [n / k, w k] is neither."""
    rng = np.random.default_rng(0)
    for shape in ((9, 2), (3, 6), (1, 18)):
        b = Builder("gathered", Mesh.of(dp=2))
        rows = [b.input(f"p{i}", TensorType((n,), "f32")) for i, n in enumerate(PARTS)]
        whole = b.add("all_gather", b.add("concat", *rows, dim=0), mesh_dim="dp", dim=0)
        columns = b.add("reshape", whole, shape=shape)
        b.output(cut(b, columns, 1, 0, min(3, shape[1])), "output", "y")
        before = b.build()
        after = one_by_one(before)
        assert ops(after) == ops(before)
        same(before, after, rng)


def test_parts_that_were_joined_by_rows_are_kept() -> None:
    """A bucket of [w, n] lines that are stacked, not laid side by side."""
    rng = np.random.default_rng(0)
    b = Builder("scattered", Mesh.of(dp=2))
    rows = [b.input(f"g{i}", TensorType((n, 2), "f32")) for i, n in enumerate((4, 6))]
    bucket = flat(b, b.add("concat", *rows, dim=0))
    mine = b.add("reduce_scatter", bucket, mesh_dim="dp", dim=0, reduce="sum")
    b.output(cut(b, mine, 0, 0, 4), "output", "y")
    before = b.build()
    after = one_by_one(before)
    assert ops(after) == ops(before)
    same(before, after, rng)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_read_of_a_row_is_what_was_written_there(seed: int) -> None:
    rng = np.random.default_rng(seed)
    b, count = Builder("written", Mesh.of(dp=2)), int(rng.integers(4, 9))
    row = b.input("row", TensorType((count,), "f32"))
    for turn in range(4):
        start, stop = sorted(int(n) for n in rng.choice(count + 1, 2, replace=False))
        new = b.add("neg", cut(b, row, 0, start, stop))
        ends = [(0, start), (stop, count)]
        before, after = (
            cut(b, row, 0, *ends[i]) if ends[i][0] < ends[i][1] else "" for i in (0, 1)
        )
        parts = [p for p in (before, new, after) if p]
        row = b.add("concat", *parts, dim=0) if len(parts) > 1 else new
        first, last = sorted(int(n) for n in rng.choice(count + 1, 2, replace=False))
        b.output(cut(b, row, 0, first, last), "output", f"y{turn}")
    b.output(row, "output", "row")
    before_it = b.build()
    same(before_it, one_by_one(before_it), rng)


def test_a_join_that_no_rank_sends_is_the_models_own() -> None:
    """A layer cuts off the token that was joined before it, and so does the next one."""
    rng = np.random.default_rng(0)
    b = Builder("joined", Mesh.of(dp=2))
    token, patches = (b.input(n, TensorType((2, m, 3), "f32")) for n, m in (("t", 1), ("p", 4)))
    tokens = b.add("concat", token, patches, dim=1)
    b.output(cut(b, tokens, 1, 1, 5), "output", "y")
    before = b.build()
    after = one_by_one(before)
    assert ops(after) == ops(before)
    same(before, after, rng)


@pytest.mark.parametrize("apart", [False, True])
def test_a_bucket_that_some_ranks_alone_send(apart: bool) -> None:
    """Where others make its row as well, what they send stays in one piece."""
    b = Builder("stages", Mesh.of(pp=2, dp=2))
    params = [b.param(f"p{i}", TensorType((n, 3), "f32")) for i, n in enumerate((2, 1))]
    rows = [flat(b, p) for p in params]
    everywhere = b.add("concat", *rows, dim=0) if apart else ""
    with b.on(pp=0):
        bucket = everywhere or b.add("concat", *rows, dim=0)
        whole = b.add("all_gather", bucket, mesh_dim="dp", dim=0)
        columns = b.add("reshape", whole, shape=(2, 9))
        part = b.add("reshape", cut(b, columns, 1, 0, 6), shape=(4, 3))
        b.output(part, "output", "first")
    program = b.build()
    after = one_by_one(program)
    assert ("concat" in ops(after)) == apart
    rng = np.random.default_rng(0)
    given = [{i.name: rng.normal(size=i.type.shape) for i in program.inputs} for _ in range(4)]
    runs = zip(simulate(program, given)[:2], simulate(after, given)[:2], strict=True)
    for first, second in runs:
        a, z = first[program.outputs[0].value], second[after.outputs[0].value]
        np.testing.assert_allclose(np.asarray(a, float), np.asarray(z, float), atol=1e-12)
