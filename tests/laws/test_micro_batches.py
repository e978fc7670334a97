"""Micro-batches in one body: the same outputs as one after the other, on numbers and all ranks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from shardproof.synthesis.frontends.torch.captured import Draw
from shardproof.synthesis.frontends.torch.ranks.drawn_rows import in_rows
from shardproof.synthesis.frontends.torch.ranks.micro_batches import TIME, in_one_body
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program, Timing
from shardproof.verifier.kernel.program.types import Mesh, Source, TensorType
from shardproof.verifier.refute.evaluate import simulate

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

ROWS, WIDTH = 2, 3
MESH = Mesh.of(dp=2)
Step = Callable[[Builder, str, str, str], str]
"""One op of a copy: on what it made last, what it made first, and a value that all copies have."""
STEPS: Sequence[Step] = (
    lambda b, x, first, whole: b.add("mul", x, whole),
    lambda b, x, first, whole: b.add("add", x, whole),
    lambda b, x, first, whole: b.add("add", x, first),
    lambda b, x, first, whole: b.add("sub", first, x),
    lambda b, x, first, whole: b.add("mul", x, x),
    lambda b, x, first, whole: b.add("all_reduce", x, mesh_dim="dp", reduce="sum"),
    lambda b, x, first, whole: b.add("mul_scalar", x, value=Fraction(1, 2)),
)


def drawn(seed: int, unlike: bool = False, own: bool = False) -> tuple[Program, int]:
    """A batch in parts, each through the same random ops, and what is made of all parts; of
    unlike ones, the first goes through another op. A rank may first take rows of its `own`."""
    rng = random.Random(seed)
    k = rng.choice((2, 3, 4))
    b = Builder("parts", MESH)
    x = b.input("x", TensorType(((1 + own) * k * ROWS, WIDTH), "f32"))
    x = b.add("shard_slice", x, mesh_dim="dp", dim=0) if own else x
    w = b.param("w", TensorType((WIDTH,), "f32"))
    steps = [rng.choice(STEPS) for _ in range(rng.randrange(1, 6))]
    made: list[list[str]] = []
    for at in rng.sample(range(k), k):
        wide = b.add("mul_scalar", w, value=Fraction(3))  # each copy computes it anew
        first = b.add("slice", x, dim=0, start=at * ROWS, stop=(at + 1) * ROWS, step=1)
        values = [first]
        for step in steps:
            values.append(step(b, values[-1], first, wide))
        if unlike and not at:
            values.append(b.add("neg", values[-1]))
        made.append([f"{at}", *values])
    ordered = sorted(made, key=lambda values: int(values[0]))
    last = [values[-1] for values in ordered]
    row = b.add("concat", *last, dim=0)
    b.output(row, "output", "y")
    dims = rng.choice(((0,), (0, 1), (1,)))
    b.output(b.add("sum", row, dims=dims, keepdim=rng.random() < 0.5), "output", "total")
    b.output(_added(b, rng.sample(last, k), w, rng), "output", "sum")
    sizes = enumerate(last)
    apart = [b.add("pad", v, dim=0, lo=i * ROWS, hi=(k - 1 - i) * ROWS) for i, v in sizes]
    b.output(_added(b, rng.sample(apart, k), None, rng), "grad", "x")
    return b.build(), k


def _added(b: Builder, terms: Sequence[str], whole: str | None, rng: random.Random) -> str:
    total = terms[0]
    for term in terms[1:]:
        total = b.add("add", *rng.sample((total, term), 2))
    return b.add("add", total, whole) if whole else total


def outputs(program: Program, k: int, rng: np.random.Generator) -> list[list[np.ndarray]]:
    """Those of every rank, each `k` times: as often as a mesh with a dim of time has it."""
    given = [
        {i.name: rng.normal(size=i.type.shape) for i in program.inputs} for _ in range(MESH.size)
    ]
    again = [values for values in given for _ in range(program.mesh.size // MESH.size)]
    found = simulate(program, again)
    times = k if program.mesh == MESH else 1
    return [
        [np.asarray(values[o.value], float) for o in program.outputs]
        for values in found
        for _ in range(times)
    ]


@pytest.mark.parametrize("seed", range(60))
def test_one_body_computes_what_all_copies_do(seed: int) -> None:
    program, k = drawn(seed, own=seed >= 45)
    rolled = in_one_body(program)
    assert rolled.mesh.dims == (*MESH.dims, (TIME, k))
    assert len(rolled.nodes) < len(program.nodes)
    _same(program, rolled, k, seed)


@pytest.mark.parametrize("seed", range(30))
def test_copies_that_differ_keep_their_values(seed: int) -> None:
    program, k = drawn(seed, unlike=True)
    rolled = in_one_body(program)
    assert rolled.mesh == MESH
    _same(program, rolled, k, seed)


def test_memory_that_micro_batches_use_in_turn_is_not_read_as_one() -> None:
    program, _ = drawn(0)
    buffered = replace(program.nodes[0], timing=Timing(asynchronous=True, buffer="kept"))
    program = replace(program, nodes=(buffered, *program.nodes[1:]))
    assert in_one_body(program) is program


def _same(program: Program, rolled: Program, k: int, seed: int) -> None:
    made = [outputs(p, k, np.random.default_rng(seed)) for p in (program, rolled)]
    for one, other in zip(*made, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("each", [1, 2])
def test_what_is_drawn_for_each_micro_batch_is_a_row_of_one_draw(each: int) -> None:
    """The program runs the same on the rows; of each line that draws, one draw is left."""
    b = Builder("drawn", Mesh.of(dp=1))
    x = b.input("x", TensorType((4, 3), "f32"))
    parts = [b.add("slice", x, dim=0, start=at, stop=at + 2, step=1) for at in (0, 2)]
    names = [f"drawn.a.{i}" for i in range(2 * each)]
    draws = [Draw(n, (2, 3), "uniform from 0 to 1", "a.py", 1, "", "f32") for n in names]
    for name in names:
        b.input(name, TensorType((2, 3), "f32"))
    for i, name in enumerate(names):
        b.output(b.add("mul", parts[i // each], name), "output", f"y{i}")
    before = b.build()
    after, left = in_rows(before, draws)
    assert [(d.name, d.shape) for d in left] == [(n, (4, 3)) for n in names[:each]]
    rng = np.random.default_rng(0)
    given = {"x": rng.normal(size=(4, 3)), **{n: rng.normal(size=(2, 3)) for n in names}}
    rows = {
        n: np.concatenate([given[n], given[m]]) for n, m in zip(names, names[each:], strict=False)
    }
    rows = {d.name: rows[d.name] for d in left}
    (first,), (second,) = simulate(before, [given]), simulate(after, [{"x": given["x"], **rows}])
    for a, z in zip(before.outputs, after.outputs, strict=True):
        np.testing.assert_array_equal(first[a.value], second[z.value])


def test_draws_of_a_batch_that_is_not_cut_stay_as_they_are() -> None:
    b = Builder("drawn", Mesh.of(dp=1))
    names = ["drawn.a.0", "drawn.a.1"]
    for name in names:
        b.output(b.add("neg", b.input(name, TensorType((2,), "f32"))), "output", name)
    program = b.build()
    draws = [Draw(n, (2,), "uniform from 0 to 1", "a.py", 1, "", "f32") for n in names]
    assert in_rows(program, draws) == (program, tuple(draws))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("scaled", [False, True], ids=["alike", "one copy is scaled"])
def test_sums_of_some_copies_may_be_reshaped_before_the_others_are_added(
    seed: int, scaled: bool
) -> None:
    """Each copy adds its part in one of two shapes, and to what was summed in the other."""
    rng = random.Random(seed)
    k = rng.randint(2, 5)
    b = Builder("reshaped", MESH)
    x = b.input("x", TensorType((k, WIDTH), "f32"))
    shapes, total = ((1, WIDTH), (WIDTH,)), ""
    for i in range(k):
        part = b.add("mul", *[b.add("slice", x, dim=0, start=i, stop=i + 1, step=1)] * 2)
        if scaled and i == 0:
            part = b.add("mul_scalar", part, value=Fraction(1, 2))
        shape = rng.choice(shapes)
        part, total = (
            b.add("reshape", v, shape=shape) if v and b.types[v].shape != shape else v
            for v in (part, total)
        )
        total = b.add("add", total, part) if total else part
    b.output(b.add("exp", b.add("reshape", total, shape=(WIDTH, 1))), "output", "y")
    program = b.build()
    rolled = in_one_body(program)
    assert (rolled.mesh == MESH) == scaled
    _same(program, rolled, k, seed)


@pytest.mark.parametrize("wrong", [False, True], ids=["alike", "another dtype"])
def test_what_all_copies_cast_and_gather_is_one_value_wherever_it_is_begun(wrong: bool) -> None:
    """The first copy gathers a weight in one module, the second ahead of another."""
    b = Builder("gathered", MESH)
    x, w = b.input("x", TensorType((4, WIDTH), "f32")), b.param("w", TensorType((WIDTH,), "f32"))
    made: list[str] = []
    for i, module in enumerate(("", "norm")):
        part = b.add("slice", x, dim=0, start=2 * i, stop=2 * i + 2, step=1)
        with b.at(Source("model.py", 1, module=module)):
            narrow = b.add("cast", w, dtype="i64" if wrong and i else "bf16")
        whole = b.add("all_gather", b.add("cast", narrow, dtype="f32"), mesh_dim="dp", dim=0)
        part = b.add("concat", part, part, dim=1)
        made.append(b.add("mul", part, whole))
    b.output(b.add("add", *made), "output", "y")
    assert (in_one_body(b.build()).mesh == MESH) == wrong


@pytest.mark.parametrize("wrong", ["", "scaled", "constant"])
def test_rows_of_ranks_in_each_copy_are_rolled_up_over_an_outermost_dim(wrong: str) -> None:
    """Each copy has its constant from another module; a wrong one is another number."""
    k = 3
    b = Builder("rows", MESH)
    x = b.input("x", TensorType((k * 2, WIDTH), "f32"))
    made: list[str] = []
    for i in range(k):
        part = b.add("slice", x, dim=0, start=2 * i, stop=2 * i + 2, step=1)
        part = b.add("shard_slice", part, mesh_dim="dp", dim=0)
        with b.at(Source("model.py", 1, module=f"layer{i}")):
            value = Fraction(5 if wrong == "constant" and i else 2)
            number = b.add("full", shape=(WIDTH,), value=value, dtype="f32")
        part = b.add("mul", part, number)
        part = b.add("mul_scalar", part, value=Fraction(3)) if wrong == "scaled" and i else part
        made.append(b.add("all_reduce", part, mesh_dim="dp", reduce="sum"))
    b.output(b.add("add", b.add("add", made[0], made[1]), made[2]), "output", "y")
    program = b.build()
    rolled = in_one_body(program)
    assert rolled.mesh.dims == (MESH.dims if wrong else ((TIME, k), *MESH.dims))
    rows = {"x": np.random.default_rng(0).normal(size=(k * 2, WIDTH))}
    want = simulate(program, [rows] * MESH.size)
    for rank, found in enumerate(simulate(rolled, [rows] * rolled.mesh.size)):
        whole = want[rank % MESH.size][program.outputs[0].value]
        np.testing.assert_allclose(found[rolled.outputs[0].value], whole, atol=1e-9)
