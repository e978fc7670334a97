"""Programs of ranks of two mesh dims as one program: equal to every rank's own, or refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from shardproof.synthesis.frontends.torch.ranks.join import Coords, FewRanksError, RankError, join
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Affine, Mesh, TensorType
from shardproof.verifier.refute.evaluate import evaluate, simulate

MESHES = [Mesh.of(dp=2, tp=3), Mesh.of(dp=2, tp=2), Mesh.of(dp=3, tp=2, cp=2)]
Body = Callable[[Builder, str, Coords], str]


def program(mesh: Mesh, shape: Sequence[int], body: Body, coords: Coords) -> Program:
    b = Builder("rank", mesh)
    x = b.input("x", TensorType(tuple(shape), "f32"))
    b.output(body(b, x, coords), "output", "y")
    return b.build()


def ranks(mesh: Mesh, shape: Sequence[int], body: Body) -> list[tuple[Coords, Program]]:
    """The program of every rank."""
    return [(coords, program(mesh, shape, body, coords)) for coords in mesh.coords()]


def values(mesh: Mesh, shape: Sequence[int], rng: np.random.Generator) -> list[dict[str, Any]]:
    return [{"x": rng.normal(size=tuple(shape))} for _ in range(mesh.size)]


def result(whole: Program, given: Sequence[dict[str, Any]]) -> list[np.ndarray[Any, Any]]:
    name = whole.outputs[0].value
    return [np.asarray(found[name], float) for found in simulate(whole, given)]


def equal_alone(
    whole: Program, alone: Sequence[tuple[Coords, Program]], given: Sequence[dict[str, Any]]
) -> None:
    """Each rank of the whole computes what its own program, which talks to no other, does."""
    for got, (_, own), x in zip(result(whole, given), alone, given, strict=True):
        one = replace(own, mesh=Mesh())
        want = np.asarray(evaluate(one, x)[own.outputs[0].value], float)
        np.testing.assert_allclose(got, want, atol=1e-12)


def window(name: str, rows: int, first: int = 0) -> Body:
    """The rows of a table of which each coordinate along `name` has some, by their numbers."""

    def body(b: Builder, x: str, coords: Coords) -> str:
        ids = b.add("iota", shape=(first + 3 * rows + 2,), dim=0, dtype="i64")
        at = first + rows * coords[name]
        return b.add("take", x, ids, dim=0, offset=at)

    return body


def chunk(name: str, count: int, dim: int, extent: int) -> Body:
    """Chunk of the coordinate along `name` of `count`."""

    def body(b: Builder, x: str, coords: Coords) -> str:
        at, size = coords[name], extent // count
        return b.add("slice", x, dim=dim, start=at * size, stop=(at + 1) * size, step=1)

    return body


def padded(
    name: str, count: int, dim: int, extent: int, reshaped: bool = False, over: str = ""
) -> Body:
    """Chunk of the coordinate along `name`, zeros elsewhere; added up along it, or along `over`."""

    def body(b: Builder, x: str, coords: Coords) -> str:
        at = coords[name]
        wide = b.add("pad", x, dim=dim, lo=at * extent, hi=(count - 1 - at) * extent)
        if reshaped:
            wide = b.add("reshape", wide, shape=(b.types[wide].size,))
        return b.add("all_reduce", wide, mesh_dim=over or name, reduce="sum")

    return body


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_offsets_along_each_dim_are_fitted(mesh: Mesh, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for name in mesh.names:
        rows, first, n = (int(i) for i in rng.integers(1, 5, 3))
        alone = ranks(mesh, (rows, n), window(name, rows, first))
        whole = join(alone)
        (take,) = [node for node in whole.nodes if node.op == "take"]
        assert take.attrs["offset"] == Affine.of(first, {name: rows})
        equal_alone(whole, alone, values(mesh, (rows, n), rng))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_chunks_along_each_dim_are_fitted(mesh: Mesh, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for name in mesh.names:
        shape = [int(n) for n in rng.integers(1, 5, 3)]
        dim = int(rng.integers(3))
        shape[dim] *= 12
        alone = ranks(mesh, shape, chunk(name, mesh[name], dim, shape[dim]))
        whole = join(alone)
        (node,) = whole.nodes
        assert (node.op, node.attrs["mesh_dim"]) == ("shard_slice", name)
        equal_alone(whole, alone, values(mesh, shape, rng))


@pytest.mark.parametrize("reshaped", [False, True], ids=["as it is", "reshaped"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_padded_chunks_along_each_dim_are_gathered(mesh: Mesh, seed: int, reshaped: bool) -> None:
    rng = np.random.default_rng(seed)
    coords = mesh.coords()
    for name in mesh.names:
        shape = [int(n) for n in rng.integers(1, 5, 3)]
        dim = int(rng.integers(3))
        body = padded(name, mesh[name], dim, shape[dim], reshaped)
        whole = join(ranks(mesh, shape, body))
        ops = Counter(n.op for n in whole.nodes)
        assert (ops["all_gather"], ops["all_reduce"], ops["pad"]) == (1, 0, 0)
        given = values(mesh, shape, rng)
        for got, at in zip(result(whole, given), coords, strict=True):
            others = [
                x["x"] for x, c in zip(given, coords, strict=True) if {**c, name: at[name]} == at
            ]
            want = np.concatenate(others, axis=dim)
            np.testing.assert_allclose(got, want.reshape(got.shape), atol=1e-12)


@pytest.mark.parametrize("over", ["dp", "tp"])
@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_padded_chunks_are_read_with_their_zeros(over: str, reduce: str) -> None:
    """Added up along another dim, or of which the largest is taken."""
    mesh, rng = Mesh.of(dp=2, tp=2), np.random.default_rng(0)

    def body(b: Builder, x: str, coords: Coords) -> str:
        at = coords["tp"]
        wide = b.add("pad", x, dim=0, lo=2 * at, hi=2 * (1 - at))
        return b.add("all_reduce", wide, mesh_dim=over, reduce=reduce)

    whole, given = join(ranks(mesh, (2, 3), body)), values(mesh, (2, 3), rng)
    combined = np.sum if reduce == "sum" else np.max
    coords = mesh.coords()
    wide = [
        np.pad(x["x"], ((2 * c["tp"], 2 - 2 * c["tp"]), (0, 0)))
        for x, c in zip(given, coords, strict=True)
    ]
    for got, at in zip(result(whole, given), coords, strict=True):
        met = [w for w, c in zip(wide, coords, strict=True) if {**c, over: at[over]} == at]
        np.testing.assert_allclose(got, combined(met, axis=0), atol=1e-12)


def first_and_last(alone: list[tuple[Coords, Program]]) -> list[tuple[Coords, Program]]:
    return [alone[0], alone[-1]]


def next_to_first(alone: list[tuple[Coords, Program]]) -> list[tuple[Coords, Program]]:
    """The first and the last, and those at coordinate 1 of one dim and 0 of all others."""
    return [*first_and_last(alone), *((c, p) for c, p in alone if sum(c.values()) == 1)]


SHARED: dict[str, Callable[[str], Body]] = {
    "offset": partial(window, rows=3),
    "chunk": partial(chunk, count=2, dim=0, extent=4),
    "padded": partial(padded, count=2, dim=0, extent=4),
}


@pytest.mark.parametrize("name", ["dp", "tp"])
@pytest.mark.parametrize("make", SHARED.values(), ids=SHARED)
def test_what_several_dims_explain_needs_more_ranks(make: Callable[[str], Body], name: str) -> None:
    alone = ranks(Mesh.of(dp=2, tp=2), (4, 2), make(name))
    with pytest.raises(FewRanksError, match="dp or tp"):
        join(first_and_last(alone))
    whole = join(next_to_first(alone))
    assert whole == join(alone)


def test_offsets_of_two_steps_along_two_dims_need_more_ranks() -> None:
    """From 0 to 6 in one step along dp, or in two of 3 along tp."""
    alone = ranks(Mesh.of(dp=2, tp=3), (3, 2), window("tp", 3))
    with pytest.raises(FewRanksError):
        join(first_and_last(alone))
    assert join(next_to_first(alone)) == join(alone)


def both(b: Builder, x: str, coords: Coords) -> str:
    ids = b.add("iota", shape=(16,), dim=0, dtype="i64")
    return b.add("take", x, ids, dim=0, offset=8 * coords["dp"] + 4 * coords["tp"])


def shifted(b: Builder, x: str, coords: Coords) -> str:
    at = coords["tp"]
    return b.add("slice", x, dim=0, start=2 * at + 1, stop=2 * at + 3, step=1)


def overlapping(b: Builder, x: str, coords: Coords) -> str:
    at = coords["tp"]
    return b.add("slice", x, dim=0, start=2 * at, stop=2 * at + 3, step=1)


def turned(b: Builder, x: str, coords: Coords) -> str:
    at = 1 - coords["tp"]
    return b.add("slice", x, dim=0, start=4 * at, stop=4 * at + 4, step=1)


def every_second(b: Builder, x: str, coords: Coords) -> str:
    at = coords["tp"]
    return b.add("slice", x, dim=0, start=4 * at, stop=4 * at + 4, step=2)


def half(b: Builder, x: str, coords: Coords) -> str:
    """The first two quarters on two ranks."""
    at = coords["tp"]
    return b.add("slice", x, dim=0, start=2 * at, stop=2 * at + 2, step=1)


def turned_pad(b: Builder, x: str, coords: Coords) -> str:
    at = coords["tp"]
    wide = b.add("pad", x, dim=0, lo=8 * (1 - at), hi=8 * at)
    return b.add("all_reduce", wide, mesh_dim="tp", reduce="sum")


def short_pad(b: Builder, x: str, coords: Coords) -> str:
    """Pieces that lap over."""
    at = coords["tp"]
    wide = b.add("pad", x, dim=0, lo=4 * at, hi=4 * (1 - at))
    return b.add("all_reduce", wide, mesh_dim="tp", reduce="sum")


@pytest.mark.parametrize(
    "body",
    [both, shifted, overlapping, turned, every_second, half, turned_pad, short_pad],
)
def test_near_misses_are_refused(body: Body) -> None:
    alone = ranks(Mesh.of(dp=2, tp=2), (8, 2), body)
    with pytest.raises(RankError) as caught:
        join(alone)
    assert not isinstance(caught.value, FewRanksError)
