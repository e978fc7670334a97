"""A batch in parts of any extents, read at once: the same outputs, on numbers and on all ranks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest

from shardproof.synthesis.frontends.torch.put_sums import sums_of_puts
from shardproof.synthesis.frontends.torch.ranks.unequal_parts import at_once
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Affine, Mesh, TensorType
from shardproof.verifier.refute.evaluate import simulate

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

MESH, WIDTH = Mesh.of(dp=2), 4
Step = Callable[[Builder, str, str], str]


def _turned(b: Builder, x: str, w: str) -> str:
    wide = b.add("reshape", x, shape=(b.types[x].shape[0], 2, WIDTH // 2))
    turned = b.add("permute", wide, dims=(0, 2, 1))
    return b.add("reshape", turned, shape=b.types[x].shape)


def _over_row(b: Builder, x: str, w: str) -> str:
    total = b.add("sum", x, dims=(1,), keepdim=True)
    return b.add("mul", x, b.add("exp", b.add("mul_scalar", total, value=Fraction(1, 8))))


def _flat(b: Builder, x: str, w: str) -> str:
    flat = b.add("reshape", x, shape=(b.types[x].size,))
    return b.add("reshape", b.add("sin", flat), shape=b.types[x].shape)


def _shifted(b: Builder, x: str, w: str) -> str:
    number = b.add("full", shape=(), value=Fraction(3), dtype="f32")
    half = b.add("mul_scalar", number, value=Fraction(1, 2))
    return b.add("mul", x, b.add("expand", half, shape=b.types[x].shape))


def _by_a_table(b: Builder, x: str, w: str) -> str:
    """The first rows of a table are no part of the batch."""
    rows = b.add("slice", w, dim=0, start=1, stop=2, step=1)
    return b.add("add", x, b.add("expand", rows, shape=b.types[x].shape))


STEPS: Sequence[Step] = (
    _by_a_table,
    lambda b, x, w: b.add("mm", x, b.add("permute", w, dims=(1, 0))),
    lambda b, x, w: b.add("mul", x, x),
    lambda b, x, w: b.add("sub", x, b.add("amax", x, dims=(1,), keepdim=True)),
    lambda b, x, w: b.add("all_reduce", x, mesh_dim="dp", reduce="max"),
    lambda b, x, w: b.add("all_reduce", x, mesh_dim="dp", reduce="avg"),
    lambda b, x, w: b.add(
        "slice", b.add("all_gather", x, mesh_dim="dp", dim=1), dim=1, start=2, stop=6, step=1
    ),
    _turned,
    _over_row,
    _flat,
    _shifted,
)
FAULTS = ("scaled", "doubled", "left out", "turned", "of all rows", "crossed", "of one row")


def drawn(seed: int, fault: str = "") -> Program:
    """Parts of a batch through the same ops, and what is made of all; with a fault, one part is
    scaled, is there twice or not at all, two change places, each is added to a sum over it, or one
    is added to another, or to a row of another."""
    rng = random.Random(seed)
    sizes = [rng.randint(2, 4), *(rng.randint(1, 4) for _ in range(rng.randint(1, 3)))]
    if fault in ("turned", "crossed"):
        sizes[:2] = [2, 2]
    b = Builder("parts", MESH)
    x = b.input("x", TensorType((sum(sizes), WIDTH), "f32"))
    w = b.param("w", TensorType((WIDTH, WIDTH), "f32"))
    steps = [rng.choice(STEPS) for _ in range(rng.randint(1, 5))]
    rows, shares, apart, start = list[str](), list[str](), list[str](), 0
    for number, size in enumerate(sizes):
        first = made = b.add("slice", x, dim=0, start=start, stop=start + size, step=1)
        for step in steps:
            made = step(b, made, w)
        if fault == "scaled" and number == len(sizes) - 1:
            made = b.add("mul_scalar", made, value=Fraction(1, 2))
        if fault == "of all rows":
            total = b.add("sum", made, dims=(0,), keepdim=True)
            made = b.add("add", made, b.add("expand", total, shape=b.types[made].shape))
        if fault == "crossed" and number == 1:
            made = b.add(rng.choice(("add", "mul")), *rng.sample((made, rows[0]), 2))
        if fault == "of one row" and number:
            row = b.add("slice", rows[0], dim=0, start=0, stop=1, step=1)
            made = b.add("mul", made, b.add("expand", row, shape=b.types[made].shape))
        rows.append(made)
        share = b.add("mm", b.add("permute", first, dims=(1, 0)), made)
        shares.append(b.add("all_reduce", share, mesh_dim="dp", reduce="sum"))
        apart.append(b.add("pad", made, dim=0, lo=start, hi=sum(sizes) - start - size))
        start += size
    for made in (rows, shares, apart):
        if fault == "doubled":
            made.append(made[0])
        elif fault == "left out":
            made.pop()
        elif fault == "turned":
            made[:2] = made[1::-1]
    b.output(b.add("concat", *rows, dim=0) if len(rows) > 1 else rows[0], "output", "rows")
    stacked = [b.add("reshape", v, shape=(1, *b.types[v].shape)) for v in shares]
    stack = b.add("concat", *stacked, dim=0) if len(stacked) > 1 else stacked[0]
    b.output(b.add("sum", stack, dims=(0,), keepdim=False), "output", "stacked")
    for path, terms in (("shares", shares), ("apart", apart)):
        total = terms[0]
        for term in terms[1:]:
            total = b.add("add", *rng.sample((total, term), 2))
        b.output(total, "output", path)
    return b.build()


def same(before: Program, after: Program, seed: int) -> None:
    """Every output of every rank, on random numbers."""
    rng = np.random.default_rng(seed)
    given = [
        {i.name: rng.normal(size=i.type.shape) for i in before.inputs}
        for _ in range(before.mesh.size)
    ]
    for first, second in zip(simulate(before, given), simulate(after, given), strict=True):
        for x, y in zip(before.outputs, after.outputs, strict=True):
            np.testing.assert_allclose(
                np.asarray(first[x.value], float), np.asarray(second[y.value], float), rtol=1e-9
            )


@pytest.mark.parametrize("seed", range(60))
def test_what_is_read_at_once_is_what_the_parts_compute(seed: int) -> None:
    program = drawn(seed)
    whole = at_once(program)
    cut = [n for n in whole.nodes if n.op in ("slice", "pad") and n.number("dim") == 0]
    assert all(n.inputs == ("w",) for n in cut)
    same(program, whole, seed)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seed", range(12))
def test_parts_that_do_not_make_a_whole_keep_their_values(seed: int, fault: str) -> None:
    program = drawn(seed, fault)
    same(program, at_once(program), seed)


def test_rows_that_a_reshape_groups_across_a_cut_stay_in_parts() -> None:
    """Rows 1 to 4 in pairs are no pairs of rows 0 to 5."""
    b = Builder("pairs", Mesh.of(dp=1))
    x = b.input("x", TensorType((6,), "f32"))
    cuts = ((0, 1), (1, 5), (5, 6))
    parts = [b.add("slice", x, dim=0, start=lo, stop=hi, step=1) for lo, hi in cuts]
    pairs = b.add("sum", b.add("reshape", parts[1], shape=(2, 2)), dims=(1,), keepdim=False)
    b.output(b.add("concat", parts[0], pairs, parts[2], dim=0), "output", "y")
    program = b.build()
    assert at_once(program) is program or len(at_once(program).nodes) == len(program.nodes)
    same(program, at_once(program), 0)


def test_what_ranks_take_of_a_part_is_not_what_they_take_of_the_whole() -> None:
    b = Builder("taken", MESH)
    x = b.input("x", TensorType((6, 2), "f32"))
    parts = [b.add("slice", x, dim=0, start=at, stop=at + n, step=1) for at, n in ((0, 2), (2, 4))]
    taken = [b.add("shard_slice", part, mesh_dim="dp", dim=0) for part in parts]
    b.output(b.add("concat", *taken, dim=0), "output", "y")
    same(b.build(), at_once(b.build()), 0)


@pytest.mark.parametrize("offset", [0, Affine.of(2), 1], ids=str)
def test_a_sum_over_what_is_put_is_of_what_was_put_in_a_whole_table_alone(offset: object) -> None:
    """Of a window of a table, indices may lie outside."""
    b = Builder("put", Mesh.of(dp=1))
    g, index = b.input("g", TensorType((3, 1), "f32")), b.input("i", TensorType((3, 1), "i64"))
    at = {"offset": offset} if offset else {}
    put = b.add("put_along", g, index, dim=1, size=4, **at)  # pyright: ignore[reportArgumentType]
    b.output(put, "output", "put")
    b.output(b.add("sum", put, dims=(1,), keepdim=True), "output", "total")
    program = b.build()
    after = sums_of_puts(program, {"i": (4, None)})
    assert ("sum" in {n.op for n in after.nodes}) == bool(offset)
    given = [{"g": np.array([[1.0], [2.0], [3.0]]), "i": np.array([[0], [3], [1]])}]
    (one,), (two,) = simulate(program, given), simulate(after, given)
    for x, y in zip(program.outputs, after.outputs, strict=True):
        np.testing.assert_allclose(np.asarray(one[x.value], float), np.asarray(two[y.value], float))


def test_a_sum_that_alone_reads_what_is_put_keeps_its_indices() -> None:
    b = Builder("put", Mesh.of(dp=1))
    g, index = b.input("g", TensorType((3, 1), "f32")), b.input("i", TensorType((3, 1), "i64"))
    put = b.add("put_along", g, index, dim=1, size=4)
    b.output(b.add("sum", put, dims=(1,), keepdim=True), "output", "total")
    assert "put_along" in {n.op for n in sums_of_puts(b.build(), {"i": (4, None)}).nodes}


@pytest.mark.parametrize(("low", "high", "offset", "number", "known"), [
    (4, 8, 4, 0, True), (4, 8, 4, 3, True), (5, 7, 4, 0, True), (4, 8, 4, 4, False),
    (4, 8, 4, -1, False), (4, 9, 4, 0, False), (3, 8, 4, 0, False), (4, 8, 3, 0, False),
])  # fmt: skip
@pytest.mark.parametrize("turned", [False, True])
def test_what_is_put_in_a_window_is_in_its_sum(
    low: int, high: int, offset: int, number: int, known: bool, turned: bool
) -> None:
    b = Builder("put", Mesh.of(dp=1))
    g, ids = b.input("g", TensorType((8, 1), "f32")), b.input("i", TensorType((8, 1), "i64"))

    def whole(value: int) -> str:
        one = b.add("full", shape=(), value=Fraction(value), dtype="i64")
        return b.add("expand", one, shape=(8, 1))

    out = b.add("logical_or", b.add("lt", ids, whole(low)), b.add("ge", ids, whole(high)))
    shifted = b.add("add_scalar", ids, value=Fraction(-offset))
    if turned:
        at = b.add("where", b.add("logical_not", out), shifted, whole(number))
    else:
        at = b.add("where", out, whole(number), shifted)
    put = b.add("put_along", g, at, dim=1, size=4)
    b.output(put, "output", "put")
    b.output(b.add("sum", put, dims=(1,), keepdim=True), "output", "total")
    program = b.build()
    after = sums_of_puts(program, {"i": (12, None)})
    assert ("sum" not in {n.op for n in after.nodes}) == known
    given = [{"g": np.arange(1.0, 9.0)[:, None], "i": np.arange(2, 10)[:, None]}]
    (one,), (two,) = simulate(program, given), simulate(after, given)
    for x, y in zip(program.outputs, after.outputs, strict=True):
        np.testing.assert_allclose(np.asarray(one[x.value], float), np.asarray(two[y.value], float))


@pytest.mark.parametrize("masked", [-100, 5, None])
def test_what_is_put_at_labels_without_ignored_ones_is_in_its_sum(masked: int | None) -> None:
    b = Builder("put", Mesh.of(dp=1))
    g, labels = b.input("g", TensorType((3, 1), "f32")), b.input("i", TensorType((3, 1), "i64"))
    at = labels
    if masked is not None:
        other, zero = (b.add("full", shape=(), value=Fraction(v), dtype="i64") for v in (masked, 0))
        valid = b.add("ne", labels, b.add("expand", other, shape=(3, 1)))
        at = b.add("where", valid, labels, b.add("expand", zero, shape=(3, 1)))
    put = b.add("put_along", g, at, dim=1, size=4)
    b.output(put, "output", "put")
    b.output(b.add("sum", put, dims=(1,), keepdim=True), "output", "total")
    after = sums_of_puts(b.build(), {"i": (4, -100)})
    assert ("sum" not in {n.op for n in after.nodes}) == (masked == -100)


@pytest.mark.parametrize(("limit", "ignored", "known"), [
    (4, 0, True), (4, 3, True), (4, -100, False), (4, 4, False), (5, 0, False), (0, 0, False),
])  # fmt: skip
def test_what_is_put_at_no_place_is_in_no_sum(limit: int, ignored: int, known: bool) -> None:
    """Labels that move by a token end with one that is ignored."""
    b = Builder("put", Mesh.of(dp=1))
    g, labels = b.input("g", TensorType((3, 1), "f32")), b.input("i", TensorType((3, 1), "i64"))
    last = b.add("full", shape=(1, 1), value=Fraction(ignored), dtype="i64")
    rest = b.add("slice", labels, dim=0, start=1, stop=3, step=1)
    put = b.add("put_along", g, b.add("concat", rest, last, dim=0), dim=1, size=4)
    b.output(put, "output", "put")
    b.output(b.add("sum", put, dims=(1,), keepdim=True), "output", "total")
    program = b.build()
    after = sums_of_puts(program, {"i": (limit, None)})
    assert ("sum" not in {n.op for n in after.nodes}) == known
    given = [{"g": np.array([[1.0], [2.0], [3.0]]), "i": np.array([[0], [limit - 1], [1]])}]
    (one,), (two,) = simulate(program, given), simulate(after, given)
    for x, y in zip(program.outputs, after.outputs, strict=True):
        np.testing.assert_allclose(np.asarray(one[x.value], float), np.asarray(two[y.value], float))
