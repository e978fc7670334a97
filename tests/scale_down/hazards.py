"""Pairs of programs that agree at the given extents, and would differ at carelessly chosen ones."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.layout import Atom, Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Affine, Mesh, TensorType

Case = tuple[Program, Program, Contract]
TP = Mesh.of(tp=8)


def case(
    mesh: Mesh,
    inputs: dict[str, tuple[tuple[int, ...], str, dict[str, str]]],
    one: Callable[[Builder], str],
    many: Callable[[Builder], str],
    **out: str,
) -> Case:
    """A pair from inputs (shape, dtype, placements), two bodies and placements of the result."""
    s, d = Builder("one"), Builder("many", mesh)
    layouts: dict[str, Layout] = {}
    for name, (shape, dtype, placed) in inputs.items():
        layouts[name] = split(mesh, shape, placed)
        s.input(name, TensorType(shape, dtype))
        d.input(name, TensorType(layouts[name].local_shape, dtype))
    value = one(s)
    s.output(value, path="y")
    d.output(many(d), path="y")
    whole, ranks = s.build(), d.build()
    asked = {output_key(whole.outputs[0]): split(mesh, whole[value].shape, out)}
    return whole, ranks, Contract(layouts, asked)


def split(mesh: Mesh, shape: tuple[int, ...], placed: dict[str, str]) -> Layout:
    return from_placements(shape, [(n, size, placed.get(n, "R")) for n, size in mesh.dims])


def blocks() -> Case:
    """The sum of the maxima of blocks: nothing but coincidence says that blocks are as long."""

    def maxima(b: Builder, count: int) -> str:
        cut = b.add("reshape", "x", shape=(count, 64))
        return b.add("sum", b.add("amax", cut, dims=(1,)), dims=(0,))

    return case(
        TP,
        {"x": ((4096,), "f32", {"tp": "S(0)"})},
        lambda b: maxima(b, 64),
        lambda b: b.add("all_reduce", maxima(b, 8), mesh_dim="tp"),
    )


def halves() -> Case:
    """One program cuts a dim in halves by slices, the other by a reshape."""

    def sliced(b: Builder) -> str:
        low = b.add("slice", "x", dim=1, start=0, stop=512)
        high = b.add("slice", "x", dim=1, start=512, stop=1024)
        return b.add("mul", low, b.add("tanh", high))

    def reshaped(b: Builder) -> str:
        both = b.add("reshape", "x", shape=(8, 2, 512))
        low = b.add("slice", both, dim=1, start=0, stop=1)
        high = b.add("slice", both, dim=1, start=1, stop=2)
        return b.add("reshape", b.add("mul", low, b.add("tanh", high)), shape=(8, 512))

    return case(TP, {"x": ((64, 1024), "f32", {"tp": "S(0)"})}, sliced, reshaped, tp="S(0)")


def window() -> Case:
    """A masked lookup with the first row of a rank as a number: the rows of a rank, times it."""

    def masked(b: Builder) -> str:
        first = b.add("iota", shape=(1,), dim=0, offset=Affine.of(0, {"tp": 400}))
        own = b.add("sub", "ids", first)
        past = b.add("full", shape=(), value=Fraction(400), dtype="i64")
        zero = b.add("full", shape=(), value=Fraction(0), dtype="i64")
        inside = b.add("logical_and", b.add("ge", own, zero), b.add("lt", own, past))
        rows = b.add("take", "table", b.add("where", inside, own, zero))
        mask = b.add("reshape", inside, shape=(16, 1))
        none = b.add("full", shape=(), value=Fraction(0))
        return b.add("all_reduce", b.add("where", mask, rows, none), mesh_dim="tp")

    return case(
        TP,
        {"ids": ((16,), "i64", {}), "table": ((3200, 8), "f32", {"tp": "S(0)"})},
        lambda b: b.add("take", "table", "ids"),
        masked,
    )


def padded() -> Case:
    """A softmax over classes that ranks hold padded to equal pieces, the padding masked off."""

    def total(b: Builder) -> str:
        wide = b.add("pad", "x", dim=0, lo=0, hi=96)
        mine = b.add("shard_slice", wide, mesh_dim="tp", dim=0)
        at = b.add("iota", shape=(512,), dim=0, offset=Affine.of(0, {"tp": 512}))
        real = b.add("lt", at, b.add("full", shape=(), value=Fraction(4000), dtype="i64"))
        zero = b.add("full", shape=(), value=Fraction(0))
        kept = b.add("where", real, b.add("exp", mine), zero)
        return b.add("all_reduce", b.add("sum", kept, dims=(0,)), mesh_dim="tp")

    return case(
        TP,
        {"x": ((4000,), "f32", {})},
        lambda b: b.add("sum", b.add("exp", "x"), dims=(0,)),
        total,
    )


def mean_of_means() -> Case:
    """Factors that multiply to the same number: 1/512, then the average of 8 ranks."""

    def mean(b: Builder, count: int) -> str:
        return b.add("mul_scalar", b.add("sum", "x", dims=(0,)), value=Fraction(1, count))

    return case(
        TP,
        {"x": ((4096,), "f32", {"tp": "S(0)"})},
        lambda b: mean(b, 4096),
        lambda b: b.add("all_reduce", mean(b, 512), mesh_dim="tp", reduce="avg"),
    )


def counted() -> Case:
    """One program divides by a number, the other by how many ones it adds up."""

    def ones(b: Builder) -> str:
        ones = b.add("sum", b.add("full", shape=(512,), value=Fraction(1)), dims=(0,))
        count = b.add("all_reduce", ones, mesh_dim="tp")
        total = b.add("all_reduce", b.add("sum", "x", dims=(0,)), mesh_dim="tp")
        return b.add("div", total, count)

    return case(
        TP,
        {"x": ((4096,), "f32", {"tp": "S(0)"})},
        lambda b: b.add("mul_scalar", b.add("sum", "x", dims=(0,)), value=Fraction(1, 4096)),
        ones,
    )


def positions() -> Case:
    """Causal masks by position: rows of a rank begin where its block does."""

    def masked(b: Builder, rows: int, offset: int | Affine) -> str:
        at = b.add("iota", shape=(rows, 1), dim=0, offset=offset)
        other = b.add("iota", shape=(1, 256), dim=1)
        low = b.add("full", shape=(), value=Fraction(0))
        return b.add("where", b.add("le", other, at), "x", low)

    return case(
        TP,
        {"x": ((256, 256), "f32", {"tp": "S(0)"})},
        lambda b: masked(b, 256, 0),
        lambda b: masked(b, 32, Affine.of(0, {"tp": 32})),
        tp="S(0)",
    )


def two_dims() -> Case:
    """Rows split over two mesh dims: one coefficient is the rows of a rank, one those of four."""
    mesh = Mesh.of(dp=2, tp=4)
    return case(
        mesh,
        {"x": ((4096,), "f32", {"dp": "S(0)", "tp": "S(0)"})},
        lambda b: b.add("mul", "x", b.add("iota", shape=(4096,), dim=0, dtype="f32")),
        lambda b: b.add(
            "mul",
            "x",
            b.add(
                "iota",
                shape=(512,),
                dim=0,
                offset=Affine.of(0, {"dp": 2048, "tp": 512}),
                dtype="f32",
            ),
        ),
        dp="S(0)",
        tp="S(0)",
    )


def placed() -> Case:
    """Rows added where their position says: as many rows as positions."""

    def rows(b: Builder, count: int, offset: int | Affine) -> str:
        at = b.add("iota", shape=(count,), dim=0, offset=offset)
        return b.add("index_add", b.add("relu", "x"), at, size=1024)

    return case(
        TP,
        {"x": ((1024, 64), "f32", {"tp": "S(0)"})},
        lambda b: rows(b, 1024, 0),
        lambda b: b.add("all_reduce", rows(b, 128, Affine.of(0, {"tp": 128})), mesh_dim="tp"),
    )


def twice() -> Case:
    """A dim split inside its halves, twice in a row: the halves are the inner ones."""
    mesh = Mesh.of(tp=3)
    inner = Layout(((Atom(12),), (Atom(2), Atom(3, "tp"), Atom(4))))
    outer = Layout(((Atom(12),), (Atom(4), Atom(3, "tp"), Atom(4))))
    s, d = Builder("one"), Builder("many", mesh)
    s.input("x", TensorType(inner.global_shape))
    d.input("x", TensorType(inner.local_shape))
    for b in (s, d):
        b.output(b.add("concat", "x", "x", dim=1), path="y")
    return s.build(), d.build(), Contract({"x": inner}, {"output:y": outer})


RIGHT = (twice, placed, blocks, halves, window, padded, mean_of_means, counted, positions, two_dims)
