"""Rewrites keep every output, on numbers and on all ranks; a near miss is left alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shardproof.synthesis.frontends.torch.masked_gather import read_windows
from shardproof.synthesis.frontends.torch.ranks.gathered_sums import sums_of_gathers
from shardproof.synthesis.frontends.torch.ranks.join import Coords, RankError, gathers_by_dim, join
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Affine, Mesh, TensorType
from shardproof.verifier.provers.cross_entropy import FORMS, Form, open_entropy
from shardproof.verifier.refute.evaluate import evaluate, simulate

ROWS, RANKS = 3, 4
TP = Mesh.of(tp=RANKS)


def number(b: Builder, value: int, dtype: str = "i64") -> str:
    return b.add("full", shape=(), value=Fraction(value), dtype=dtype)


def shift(b: Builder, ids: str, by: int) -> str:
    return b.add("add_scalar", ids, value=Fraction(-by)) if by else ids


def embedding(rank: int, rows: int = ROWS, first: int | None = None) -> Program:
    """DTensor's masked lookup among `rows` rows from row `first` on."""
    first = rank * ROWS if first is None else first
    b = Builder("embedding", TP)
    table = b.param("w", TensorType((ROWS, 2), "f32"))
    ids = b.input("ids", TensorType((2, 5), "i64"))
    low, high = number(b, first), number(b, first + rows)
    mask = b.add("logical_or", b.add("lt", ids, low), b.add("ge", ids, high))
    local = b.add("where", mask, number(b, 0), shift(b, ids, first))
    found = b.add("take", table, local, dim=0)
    wide = b.add("reshape", mask, shape=(2, 5, 1))
    b.output(b.add("where", wide, number(b, 0, "f32"), found), "output", "y")
    return b.build()


def multiplied(
    rank: int, rows: int = ROWS, computed: bool = False, logged: bool = False
) -> Program:
    """A masked lookup times its mask, and what its backward adds up."""
    b = Builder("multiplied", TP)
    table = b.param("w", TensorType((ROWS, 2), "f32"))
    ids = b.input("ids", TensorType((2, 5), "i64"))
    g = b.input("g", TensorType((2, 5, 2), "f32"))
    low, high = number(b, rank * ROWS), number(b, rank * ROWS + rows)
    mask = b.add("logical_or", b.add("lt", ids, low), b.add("ge", ids, high))
    local = b.add("where", mask, number(b, 0), shift(b, ids, rank * ROWS))
    found = b.add("take", b.add("log", table) if computed else table, local, dim=0)
    inside = b.add("logical_not", b.add("reshape", mask, shape=(2, 5, 1)))
    b.output(b.add("mul", found, inside), "output", "y")
    kept = b.add("mul", inside, b.add("log", g) if logged else g)
    b.output(b.add("index_add", kept, local, size=ROWS), "grad", "w")
    return b.build()


def entry(rank: int, rows: int = ROWS) -> Program:
    """A clipped lookup along lines, masked outside of the window, and its adjoint."""
    b = Builder("entry", TP)
    x = b.input("x", TensorType((6, ROWS), "f32"))
    g = b.input("g", TensorType((6,), "f32"))
    ids = b.input("ids", TensorType((6,), "i64"))
    local = shift(b, ids, rank * ROWS)
    zero = number(b, 0, "f32")
    inside = b.add(
        "logical_and", b.add("ge", local, number(b, 0)), b.add("lt", local, number(b, rows))
    )
    near = b.add("minimum", b.add("maximum", local, number(b, 0)), number(b, ROWS - 1))
    line = b.add("reshape", near, shape=(6, 1))
    found = b.add("reshape", b.add("take_along", x, line, dim=1), shape=(6,))
    b.output(b.add("where", inside, found, zero), "output", "y")
    kept = b.add("reshape", b.add("where", inside, g, zero), shape=(6, 1))
    b.output(b.add("put_along", kept, line, dim=1, size=ROWS), "grad", "x")
    return b.build()


def numbers(program: Program, rng: np.random.Generator) -> dict[str, Any]:
    """Ids inside of all windows, and outside of every one."""
    return {
        i.name: rng.normal(size=i.type.shape)
        if i.type.is_float
        else rng.integers(-3, ROWS * RANKS + 3, i.type.shape)
        for i in program.inputs
    }


def same(a: Program, b: Program, values: dict[str, Any]) -> None:
    first, second = evaluate(a, values), evaluate(b, values)
    for x, y in zip(a.outputs, b.outputs, strict=True):
        np.testing.assert_allclose(
            np.asarray(first[x.value], float), np.asarray(second[y.value], float), atol=1e-12
        )


@pytest.mark.parametrize("make", [embedding, entry, multiplied])
@pytest.mark.parametrize("rank", range(RANKS))
def test_masked_lookups_read_as_windows_on_every_rank(make: Any, rank: int) -> None:
    program = make(rank)
    on_one = replace(program, mesh=Mesh())
    read = read_windows(on_one)
    assert {n.op for n in read.nodes}.isdisjoint(("where", "mul"))
    assert {n.attrs["offset"] for n in read.nodes if "offset" in n.attrs} == {rank * ROWS}
    rng = np.random.default_rng(rank)
    for _ in range(5):
        same(on_one, read, numbers(on_one, rng))


def softmax_less_labels(rank: int, apart: bool = False) -> Program:
    """What the backward of a cross entropy of split rows does, as fairscale and Megatron do; what
    is taken off `apart`, as PyTorch's loss_parallel does."""
    b = Builder("backward")
    ids = b.input("ids", TensorType((2, 3), "i64"))
    x = b.input("x", TensorType((6, ROWS), "f32"))
    far = b.add("lt", ids, number(b, rank * ROWS))
    outside = b.add("logical_or", far, b.add("ge", ids, number(b, (rank + 1) * ROWS)))
    local = b.add("add_scalar", ids, value=Fraction(-rank * ROWS))
    flat = b.add("reshape", b.add("where", outside, number(b, 0), local), shape=(6,))
    below = b.add("lt", flat, number(b, 0))
    line = b.add("where", below, b.add("add_scalar", flat, value=Fraction(ROWS)), flat)
    line = b.add("reshape", line, shape=(6, 1))
    mask = b.add("cast", b.add("reshape", outside, shape=(6,)), dtype="f32")
    less = b.add("add_scalar", b.add("neg", mask), value=Fraction(1))
    found = b.add("reshape", b.add("take_along", x, line, dim=1), shape=(6,))
    if apart:
        less = b.add("add_scalar", mask, value=Fraction(-1))
    put = b.add("reshape", less if apart else b.add("sub", found, less), shape=(6, 1))
    put = b.add("put_along", put, line, dim=1, size=ROWS)
    ones = b.add("full", shape=(6, 1), value=Fraction(1), dtype="i64")
    hit = b.add("gt", b.add("put_along", ones, line, dim=1, size=ROWS), number(b, 0))
    zeros = b.add(
        "expand", b.add("full", shape=(1, 1), value=Fraction(0), dtype="f32"), shape=(6, ROWS)
    )
    made = b.add("where", hit, put, zeros if apart else x)
    b.output(b.add("add", made, x) if apart else made, "output", "y")
    return b.build()


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("rank", range(RANKS))
def test_an_entry_of_each_row_that_a_mask_makes_less(rank: int, apart: bool) -> None:
    program = softmax_less_labels(rank, apart)
    read = read_windows(program)
    (put,) = [n for n in read.nodes if n.op == "put_along"]
    assert put.attrs["offset"] == rank * ROWS
    rng = np.random.default_rng(rank)
    for _ in range(5):
        same(program, read, numbers(program, rng))


@pytest.mark.parametrize(
    "program", [embedding(1, ROWS - 1), embedding(1, ROWS + 1), entry(1, ROWS - 1)]
)
def test_a_window_of_another_size_is_left_alone(program: Program) -> None:
    assert [n.op for n in read_windows(program).nodes].count("where") >= 1


@pytest.mark.parametrize("rows", [ROWS - 1, ROWS + 1])
def test_a_mask_of_another_window_stays_a_factor(rows: int) -> None:
    assert [n.op for n in read_windows(multiplied(1, rows)).nodes].count("mul") == 2


def test_what_may_have_no_value_keeps_its_factor() -> None:
    assert [n.op for n in read_windows(multiplied(1, computed=True)).nodes].count("mul") == 1


def test_what_may_have_no_value_and_is_added_up_has_none_at_any_row() -> None:
    program = replace(multiplied(1, logged=True), mesh=Mesh())
    read = read_windows(program)
    assert {n.op for n in read.nodes}.isdisjoint(("where", "mul"))
    given = numbers(program, np.random.default_rng(0))
    same(program, read, {**given, "g": np.abs(given["g"]) + 1})
    given["ids"][0, 0], given["g"][0, 0] = 0, -1  # of another rank's rows
    with np.errstate(invalid="ignore"):
        rows = evaluate(read, given)[read.outputs[1].value]
    assert np.isnan(np.asarray(rows, float)).all()


def test_offsets_of_all_ranks_are_fitted() -> None:
    whole = join([({"tp": r}, read_windows(embedding(r))) for r in range(RANKS)])
    (take,) = [n for n in whole.nodes if n.op == "take"]
    assert take.attrs["offset"] == Affine.of(0, {"tp": ROWS})


def test_one_rank_with_another_offset_is_refused() -> None:
    firsts = [0, ROWS, ROWS, 3 * ROWS]
    programs = [({"tp": r}, read_windows(embedding(r, first=f))) for r, f in enumerate(firsts)]
    with pytest.raises(RankError, match="do not grow evenly"):
        join(programs)


def ranked(size: int, build: Any, shape: tuple[int, ...] = (4, 6)) -> list[tuple[Coords, Program]]:
    out: list[tuple[Coords, Program]] = []
    for rank in range(size):
        b = Builder("rank", Mesh.of(tp=size))
        x = b.input("x", TensorType(shape, "f32"))
        b.output(build(b, x, rank), "output", "y")
        out.append(({"tp": rank}, b.build()))
    return out


def expected(program: Program, pieces: Sequence[Any], want: Sequence[Any]) -> None:
    got = simulate(program, [{"x": p} for p in pieces])
    for values, y in zip(got, want, strict=True):
        np.testing.assert_allclose(
            np.asarray(values[program.outputs[0].value], float), y, atol=1e-12
        )


def test_chunks_of_ranks_are_joined() -> None:
    def cut(b: Builder, x: str, rank: int) -> str:
        return b.add("slice", x, dim=1, start=3 * rank, stop=3 * rank + 3, step=1)

    def spread(b: Builder, x: str, rank: int) -> str:
        wide = b.add("pad", x, dim=1, lo=6 * rank, hi=6 * (1 - rank))
        return b.add("all_reduce", wide, mesh_dim="tp", reduce="sum")

    pieces = [np.random.default_rng(r).normal(size=(4, 6)) for r in range(2)]
    expected(join(ranked(2, cut)), pieces, [p[:, 3 * r : 3 * r + 3] for r, p in enumerate(pieces)])
    joined = join(ranked(2, spread))
    assert {n.op for n in joined.nodes} == {"all_gather", "reshape"}
    expected(joined, pieces, [np.concatenate(pieces, axis=1)] * 2)


def test_padded_chunks_that_are_not_summed_are_read_with_their_zeros() -> None:
    def spread(b: Builder, x: str, rank: int) -> str:
        wide = b.add("pad", x, dim=1, lo=6 * rank, hi=6 * (1 - rank))
        flat = b.add("reshape", wide, shape=(48,))
        return b.add("add", b.add("exp", flat), b.add("reshape", wide, shape=(48,)))

    pieces = [np.random.default_rng(r).normal(size=(4, 6)) for r in range(2)]
    wide = [np.pad(p, ((0, 0), (6 * r, 6 - 6 * r))).ravel() for r, p in enumerate(pieces)]
    expected(join(ranked(2, spread)), pieces, [np.exp(w) + w for w in wide])


def test_a_padded_chunk_alone_is_no_output() -> None:
    def spread(b: Builder, x: str, rank: int) -> str:
        return b.add("pad", x, dim=1, lo=6 * rank, hi=6 * (1 - rank))

    with pytest.raises(RankError, match="one chunk on each rank"):
        join(ranked(2, spread))


def test_collectives_on_dim_0_become_collectives_on_a_dim() -> None:
    def parts(b: Builder, x: str, dim: int) -> list[str]:
        half = b.types[x].shape[dim] // 2
        return [
            b.add("slice", x, dim=dim, start=i * half, stop=(i + 1) * half, step=1) for i in (0, 1)
        ]

    def gather(b: Builder, x: str, rank: int) -> str:
        whole = b.add("all_gather", x, mesh_dim="tp", dim=0)
        return b.add("concat", *parts(b, whole, 0), dim=1)

    def scatter(b: Builder, x: str, rank: int) -> str:
        rows = b.add("concat", *parts(b, x, 1), dim=0)
        return b.add("reduce_scatter", rows, mesh_dim="tp", dim=0, reduce="sum")

    def biased(b: Builder, x: str, rank: int) -> str:
        share = b.add("mul_scalar", x, value=Fraction(1, 2))
        total = b.add("reshape", b.add("add", b.add("exp", x), share), shape=(2, 12))
        return b.add("reduce_scatter", total, mesh_dim="tp", dim=0, reduce="sum")

    pieces = [np.random.default_rng(r).normal(size=(4, 6)) for r in range(2)]
    for build, op in ((gather, "concat"), (scatter, "concat"), (biased, "reduce_scatter")):
        before = join(ranked(2, build))
        after = gathers_by_dim(before)
        assert op not in {n.op for n in after.nodes}
        wanted = simulate(before, [{"x": p} for p in pieces])
        expected(after, pieces, [np.asarray(v[before.outputs[0].value], float) for v in wanted])


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("rows", [1, 2])
def test_pieces_of_an_all_to_all_are_joined_along_a_dim(at: int, rows: int) -> None:
    n, piece = 2 * rows, (3, 4, 2)
    order = [d for d in (1, 2, 3) if d <= at] + [0] + [d for d in (1, 2, 3) if d > at]
    joined = (*piece[:at], n * piece[at], *piece[at + 1 :])

    def build(b: Builder, x: str, rank: int) -> str:
        wide = b.add("reshape", x, shape=(n, 1, *piece))
        came = b.add("all_to_all", wide, mesh_dim="tp", split_dim=0, concat_dim=1)
        flat = b.add("reshape", came, shape=(n, *piece))
        return b.add("reshape", b.add("permute", flat, dims=tuple(order)), shape=joined)

    pieces = [np.random.default_rng(r).normal(size=(n, *piece)) for r in range(2)]
    before = join(ranked(2, build, (n, *piece)))
    after = gathers_by_dim(before)
    along = {node.attrs["concat_dim"] for node in after.nodes if node.op == "all_to_all"}
    assert along == {at + 2 if rows == 1 else 1}
    wanted = simulate(before, [{"x": p} for p in pieces])
    expected(after, pieces, [np.asarray(v[before.outputs[0].value], float) for v in wanted])


@pytest.mark.parametrize(("first", "second"), [("avg", "avg"), ("sum", "avg"), ("avg", "sum")])
def test_a_mean_of_a_mean_and_more_is_the_mean_and_that_of_more(first: str, second: str) -> None:
    def build(b: Builder, x: str, rank: int) -> str:
        total = b.add("all_reduce", b.add("exp", x), mesh_dim="tp", reduce=first)
        for op in ("sin", "cos"):
            total = b.add("add", total, b.add(op, x))
            total = b.add("all_reduce", total, mesh_dim="tp", reduce=second)
        return total

    pieces = [np.random.default_rng(r).normal(size=(4, 6)) for r in range(2)]
    before = join(ranked(2, build))
    after = gathers_by_dim(before)
    made = {v: n for n in after.nodes for v in n.outputs}
    last = made[after.outputs[0].value].op
    assert (last == "add") == (second == "avg")
    wanted = simulate(before, [{"x": p} for p in pieces])
    expected(after, pieces, [np.asarray(v[before.outputs[0].value], float) for v in wanted])


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)])
def test_pieces_of_an_all_to_all_that_are_added_up_are_reduced(
    dims: tuple[int, ...], rows: int
) -> None:
    def build(b: Builder, x: str, rank: int) -> str:
        came = b.add("all_to_all", x, mesh_dim="tp", split_dim=0, concat_dim=1)
        stack = b.add("reshape", came, shape=(2 * rows, 3, 4))
        return b.add("sum", stack, dims=dims, keepdim=False)

    pieces = [np.random.default_rng(r).normal(size=(2 * rows, 3, 4)) for r in range(2)]
    before = join(ranked(2, build, (2 * rows, 3, 4)))
    after = gathers_by_dim(before)
    assert ("all_to_all" in {n.op for n in after.nodes}) == ((rows, dims) != (1, (0,)))
    wanted = simulate(before, [{"x": p} for p in pieces])
    expected(after, pieces, [np.asarray(v[before.outputs[0].value], float) for v in wanted])


@pytest.mark.parametrize("cut", [0, 1, 2])
@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("turned", [False, True])
def test_stacked_chunks_are_exchanged_along_their_dim(
    cut: int, at: int, rows: int, turned: bool
) -> None:
    shape, n = (4, 8, 4), 2 * rows
    piece = tuple(size // n if d == cut else size for d, size in enumerate(shape))

    def build(b: Builder, x: str, rank: int) -> str:
        wide = b.add("reshape", x, shape=(*shape[:cut], n, *piece[cut:]))
        front = [cut, *(d for d in range(4) if d != cut)]
        front[2:] = front[:1:-1] if turned else front[2:]
        stack = b.add("permute", wide, dims=tuple(front))
        sent = b.add("reshape", stack, shape=(n, 1, *b.types[stack].shape[1:]))
        came = b.add("all_to_all", sent, mesh_dim="tp", split_dim=0, concat_dim=at + 2)
        return b.add("reshape", came, shape=(rows, *b.types[came].shape[2:]))

    pieces = [np.random.default_rng(r).normal(size=shape) for r in range(2)]
    before = join(ranked(2, build, shape))
    after = gathers_by_dim(before)
    (sent,) = [node for node in after.nodes if node.op == "all_to_all"]
    kept = turned or cut == 0 or rows == 2
    split, joined = (0, at + 2) if kept else (cut, at)
    assert (sent.attrs["split_dim"], sent.attrs["concat_dim"]) == (split, joined)
    wanted = simulate(before, [{"x": p} for p in pieces])
    expected(after, pieces, [np.asarray(v[before.outputs[0].value], float) for v in wanted])


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("back", [False, True])
def test_several_experts_of_a_rank_are_exchanged_at_once(at: int, turned: bool, back: bool) -> None:
    """Of ranks with two experts each, rows of all are joined; the way back parts them."""
    piece = (2, 4, 6)  # experts of a rank, rows, numbers

    def build(b: Builder, x: str, rank: int) -> str:
        order = [1, 2, 3]
        order.insert(at, 0)
        order = order[::-1] if turned else order
        if back:
            wide = b.add("reshape", x, shape=tuple((2, *piece)[d] for d in order))
            stack = b.add("permute", wide, dims=tuple(order.index(d) for d in range(4)))
            came = b.add("all_to_all", stack, mesh_dim="tp", split_dim=0, concat_dim=1)
            return b.add("reshape", came, shape=(4, *piece[1:]))
        stack = b.add("reshape", x, shape=(2, *piece))
        came = b.add("all_to_all", stack, mesh_dim="tp", split_dim=0, concat_dim=1)
        apart = b.add("reshape", came, shape=(2, *piece))
        front = b.add("permute", apart, dims=tuple(order))
        joined = tuple(n * 2 if d == at else n for d, n in enumerate(piece))
        return b.add("reshape", front, shape=joined)

    shape = (8, 12) if back else (4, 4, 6)
    pieces = [np.random.default_rng(r).normal(size=shape) for r in range(2)]
    before = join(ranked(2, build, shape))
    after = gathers_by_dim(before)
    (sent,) = [node for node in after.nodes if node.op == "all_to_all"]
    same = turned or at == 0
    expected_dims = (0, 1) if same else (at, 0) if back else (0, at + 2)
    assert (sent.attrs["split_dim"], sent.attrs["concat_dim"]) == expected_dims
    wanted = simulate(before, [{"x": p} for p in pieces])
    expected(after, pieces, [np.asarray(v[before.outputs[0].value], float) for v in wanted])


@pytest.mark.parametrize("cut", [0, 1, 2])
@pytest.mark.parametrize("joined", [0, 1, 2, 3])
@pytest.mark.parametrize("stacked", [False, True])
def test_joined_chunks_are_dims_in_another_order(cut: int, joined: int, stacked: bool) -> None:
    def build(order: Sequence[int]) -> Program:
        b = Builder("rank", Mesh.of(tp=2))
        given = b.input("x", TensorType((4, 6, 2), "f32"))
        x = b.add("all_to_all", given, mesh_dim="tp", split_dim=0, concat_dim=0)
        n = (2, 3, 2)[cut]
        size = (4, 6, 2)[cut] // n
        ends = [(i * size, (i + 1) * size) for i in order[:n] if i < n]
        pieces = [b.add("slice", x, dim=cut, start=i, stop=k, step=1) for i, k in ends]
        if stacked:
            shape = b.types[pieces[0]].shape
            pieces = [
                b.add("reshape", p, shape=(*shape[:joined], 1, *shape[joined:])) for p in pieces
            ]
        b.output(b.add("concat", *pieces, dim=joined), "output", "y")
        return b.build()

    if joined == 3 and not stacked:
        return
    before = build((0, 1, 2))
    after = gathers_by_dim(before)
    assert {n.op for n in after.nodes} <= {"reshape", "permute", "all_to_all"}
    given = [{"x": np.random.default_rng(r).normal(size=(4, 6, 2))} for r in range(2)]
    wanted = simulate(before, given)
    pieces = [g["x"] for g in given]
    expected(after, pieces, [np.asarray(v[before.outputs[0].value], float) for v in wanted])
    other = gathers_by_dim(build((1, 0, 2)))
    assert "concat" in {n.op for n in other.nodes}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(4))
def test_cross_entropy_is_opened_up(seed: int, form: Form) -> None:
    n, classes, ignored = 5, 7, -100
    b = Builder("loss")
    x = b.input("x", TensorType((n, classes), "f32"))
    labels = b.input("labels", TensorType((n,), "i64"))
    line = b.add("reshape", labels, shape=(n, 1))
    y = b.add("log_softmax", x)
    valid = b.add("ne", labels, number(b, ignored))
    count = b.add("sum", b.add("cast", valid, dtype="f32"), dims=(0,), keepdim=False)
    total = b.add("sum", b.add("take_along", y, line, dim=1), dims=(0, 1), keepdim=False)
    b.output(b.add("neg", b.add("div", total, count)), "loss", "loss")
    g = b.add("neg", b.add("div", number(b, 1, "f32"), count))
    g = b.add("expand", b.add("reshape", g, shape=(1, 1)), shape=(n, 1))
    put = b.add("put_along", g, line, dim=1, size=classes)
    b.output(b.add("log_softmax_backward", put, y), "grad", "x")
    before = inline(b.build())
    after, assumed = open_entropy(before, form)
    assert assumed == (f"Every label names a class or is {ignored}.",)
    assert [n.op for n in after.nodes].count("where") == 2
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, classes, n)
    ids[rng.integers(n)] = ignored
    same(before, after, {"x": rng.normal(size=(n, classes)), "labels": ids})


def _summed_up(how: str) -> Callable[[Builder, str, int], str]:
    def piece(b: Builder, whole: str, i: int) -> str:
        return b.add("slice", whole, dim=0, start=2 * i, stop=2 * i + 2, step=1)

    def build(b: Builder, x: str, rank: int) -> str:
        whole = b.add("all_gather", x, mesh_dim="tp", dim=0)
        if how == "stacked":
            stack = b.add("reshape", whole, shape=(2, 2, 3))
            return b.add("sum", stack, dims=(0,), keepdim=False)
        if how == "stacked, all of it":
            stack = b.add("reshape", whole, shape=(2, 6))
            return b.add("sum", stack, dims=(0, 1), keepdim=True)
        if how == "in other pieces":
            stack = b.add("reshape", whole, shape=(4, 3))
            return b.add("sum", stack, dims=(0,), keepdim=False)
        if how == "of rows across ranks":
            stack = b.add("reshape", whole, shape=(2, 2, 3))
            return b.add("sum", stack, dims=(1,), keepdim=False)
        first, second = (piece(b, whole, i) for i in (0, 1))
        if how == "one by one":
            first = b.add("mul_scalar", first, value=Fraction(1, 2))
            second = b.add("mul_scalar", second, value=Fraction(1, 2))
            own = b.add("add", b.add("exp", x), second)
            return b.add("add", own, first)
        if how == "with unlike factors":
            return b.add("add", first, b.add("mul_scalar", second, value=Fraction(1, 2)))
        if how == "one twice":
            return b.add("add", first, first)
        if how == "one twice, and the other":
            return b.add("add", b.add("add", first, first), second)
        if how == "of the chunk of each rank":
            other = b.add("shard_slice", second, mesh_dim="tp", dim=0)
            return b.add("add", b.add("shard_slice", first, mesh_dim="tp", dim=0), other)
        shifted = b.add("slice", whole, dim=0, start=1, stop=3, step=1)
        return b.add("add", first, shifted)

    return build


@pytest.mark.parametrize(
    ("how", "reduced"),
    {
        "stacked": True,
        "stacked, all of it": True,
        "one by one": True,
        "in other pieces": False,
        "of rows across ranks": False,
        "with unlike factors": False,
        "one twice": False,
        "one twice, and the other": False,
        "of the chunk of each rank": False,
        "of other rows": False,
    }.items(),
)
def test_the_sum_over_what_is_gathered_is_an_all_reduce(how: str, reduced: bool) -> None:
    pieces = [np.random.default_rng(r).normal(size=(2, 3)) for r in range(2)]
    before = join(ranked(2, _summed_up(how), (2, 3)))
    after = sums_of_gathers(before)
    assert ("all_reduce" in {n.op for n in after.nodes}) == reduced
    wanted = simulate(before, [{"x": p} for p in pieces])
    expected(after, pieces, [np.asarray(v[before.outputs[0].value], float) for v in wanted])
