"""What each module is for, read off the dataflow of a program."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from shardproof.synthesis.planner.assign import options, split
from shardproof.synthesis.planner.planner import can_emit
from shardproof.synthesis.planner.roles import UNREAD, Module, Param, heads, modules
from shardproof.synthesis.planner.scoring import Asked
from shardproof.synthesis.planner.search import prepare
from shardproof.synthesis.planner.tactics import TACTICS, tactic
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh
from tests.synthesis import decoder


def by_path(program: Program) -> dict[str, Module]:
    return {m.path: m for m in prepare(Asked(program, Mesh.of(tp=2), decoder.CLUSTER)).modules}


def test_modules_come_in_order_of_use_with_their_parameters() -> None:
    found = by_path(decoder.decoder(layers=2))
    assert list(found) == [
        "embed",
        "layers.*.norm1",
        *(f"layers.*.attn.{n}" for n in "qkvo"),
        "layers.*.norm2",
        "layers.*.mlp.up",
        "layers.*.mlp.down",
        "norm",
        "head",
    ]
    assert [p.path for p in found["layers.*.mlp.up"].params] == [
        "layers.*.mlp.up.weight",
        "layers.*.mlp.up.bias",
    ]
    assert found["layers.*.mlp.up"].weight.shape == (decoder.FFN, decoder.HIDDEN)


def test_linears_are_paired_by_what_they_read() -> None:
    found = by_path(decoder.decoder(layers=2))
    follows = {path.rpartition(".")[2] for path, m in found.items() if m.follows}
    assert follows == {"o", "down"}


def test_a_chain_of_linears_is_split_by_columns_and_rows_in_turn() -> None:
    b = Builder("chain")
    x = b.input("x", decoder.f64(4, 8))
    for name in "abcd":
        weight = b.param(f"{name}.weight", decoder.f64(8, 8))
        x = b.add("relu", b.add("mm", x, weight))
    b.output(x, "output", "out")
    found = modules(b.build())
    styles = dict(TACTICS["column_row"](found, 2).styles)
    assert styles == {"a": "column", "b": "row", "c": "column", "d": "row"}


def test_what_chooses_entries_is_not_followed() -> None:
    b = Builder("chosen")
    x, c = b.input("x", decoder.f64(4, 8)), b.param("choose.weight", decoder.f64(8, 8))
    scores = b.add("mul", b.add("mm", x, c), b.param("norm.weight", decoder.f64(8)))
    up = b.add("mm", x, b.param("up.weight", decoder.f64(8, 8)))
    zero = b.add("full", shape=(4, 8), value=Fraction(0), dtype="f64")
    kept = b.add("where", b.add("le", scores, x), up, zero)
    b.output(b.add("mm", kept, b.param("down.weight", decoder.f64(8, 8))), "output", "out")
    (down,) = [m for m in modules(b.build()) if m.path == "down"]
    assert down.follows == {"up.weight"}


@pytest.mark.parametrize(
    ("mask", "spread", "follows"),
    [
        ((2, 1, 1, 4), (2, 2, 1, 4), {"q.weight", "k.weight", "v.weight"}),
        ((1, 1, 1, 4), (2, 2, 1, 4), {"q.weight", "k.weight", "v.weight"}),
        ((2, 2, 1, 1), (2, 2, 1, 4), set[str]()),
        ((2, 2, 1, 4), (2, 2, 1, 4), set[str]()),
    ],
)
def test_a_mask_that_all_heads_share_is_no_obstacle_to_a_row(
    mask: tuple[int, ...], spread: tuple[int, ...], follows: set[str]
) -> None:
    """Where heads are joined with the batch; one that each head has its own of is an obstacle."""
    b = Builder("masked")
    x, held = b.input("x", decoder.f64(8, 8)), b.input("mask", decoder.f64(*mask))
    made: list[str] = []
    for name in "qkv":
        y = b.add("mm", x, b.param(f"{name}.weight", decoder.f64(8, 8)))
        y = b.add("permute", b.add("reshape", y, shape=(2, 4, 2, 4)), dims=(0, 2, 1, 3))
        made.append(b.add("reshape", y, shape=(4, 4, 4)))
    q, k, v = made
    scores = b.add("bmm", q, b.add("permute", k, dims=(0, 2, 1)))
    seen = b.add("expand", held, shape=spread) if mask != spread else held
    scores = b.add("add", scores, b.add("reshape", seen, shape=(4, 1, 4)))
    y = b.add(
        "permute", b.add("reshape", b.add("bmm", scores, v), shape=(2, 2, 4, 4)), dims=(0, 2, 1, 3)
    )
    y = b.add("mm", b.add("reshape", y, shape=(8, 8)), b.param("o.weight", decoder.f64(8, 8)))
    b.output(y, "output", "out")
    (o,) = [m for m in modules(b.build()) if m.path == "o"]
    assert o.follows == follows


def test_heads_are_read_off_the_reshape() -> None:
    found = by_path(decoder.decoder(layers=2, kv=2))
    assert [found[f"layers.*.attn.{n}"].heads for n in "qkvo"] == [4, 2, 2, 0]


def test_a_tied_table_is_an_embedding_that_knows_its_projection() -> None:
    found = by_path(decoder.decoder(layers=2, tied=True))
    assert found["embed"].use == "embedding"
    assert found["embed"].head == "head"
    assert heads(list(found.values())) == {"head"}


def test_the_output_projection_is_the_last_linear_outside_the_blocks() -> None:
    assert heads(list(by_path(decoder.decoder(layers=2)).values())) == {"head"}


def test_what_no_output_depends_on_is_no_output_projection() -> None:
    found = by_path(decoder.decoder(layers=2))
    unread = replace(found["head"], path="spare", order=UNREAD)
    assert heads([*found.values(), unread]) == {"head"}


def fused(parts: int) -> Program:
    """x [2, 6] -> a linear whose output is cut into equal parts that are added."""
    b = Builder("fused")
    x = b.input("x", decoder.f64(2, 6))
    w = b.param("qkv.weight", decoder.f64(12, 6))
    with b.at(decoder.place("qkv")):
        y = b.add("mm", x, b.add("permute", w, dims=(1, 0)))
    width = 12 // parts
    pieces = [
        b.add("slice", y, dim=1, start=i * width, stop=(i + 1) * width, step=1)
        for i in range(parts)
    ]
    total = pieces[0]
    for piece in pieces[1:]:
        total = b.add("add", total, piece)
    b.output(total, "output", "out")
    return b.build()


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_a_fused_weight_is_split_inside_each_part(parts: int) -> None:
    (module,) = modules(fused(parts))
    assert module.parts == parts
    fits = 12 % (parts * 2) == 0
    assert ("fused_column" in options(module, 2)) == fits
    if not fits:
        return
    layout = split(module, module.weight, "fused_column", "tp", 2)
    assert [a.size for a in layout.dims[0]] == [parts, 2, 6 // parts]
    assert layout.dims[0][1].mesh_dim == "tp"


def test_a_linear_that_heads_do_not_divide_is_not_split_by_columns() -> None:
    found = by_path(decoder.decoder(layers=2, kv=2))
    assert "column" not in options(found["layers.*.attn.k"], 4)
    assert "column" in options(found["layers.*.attn.q"], 4)


def test_column_row_pairs_the_modules() -> None:
    found = list(by_path(decoder.decoder(layers=2)).values())
    styles = dict(TACTICS["column_row"](found, 2).styles)
    assert styles["embed"] == "vocab"
    assert styles["layers.*.norm1"] == "replicate"
    assert {styles[f"layers.*.attn.{n}"] for n in "qkv"} == {"column"}
    assert styles["layers.*.attn.o"] == styles["layers.*.mlp.down"] == "row"
    assert styles["head"] == "column"


def test_sequence_parallel_differs_in_the_residual_stream_alone() -> None:
    found = list(by_path(decoder.decoder(layers=2)).values())
    column, sequence = (TACTICS[n](found, 2) for n in ("column_row", "sequence_parallel"))
    assert column.styles == sequence.styles
    assert (column.stream, sequence.stream) == ("R", "S(1)")


def test_a_tactic_registered_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="column_row is registered twice"):
        tactic(TACTICS["column_row"])


@pytest.mark.parametrize("style", ["column", "gathered"])
def test_what_is_no_bias_of_a_weight_stays_whole(style: str) -> None:
    weight, bias, scale = (
        Param(name, f"mix.{name}", shape, stacked=False)
        for name, shape in (("fn", (6, 4)), ("base", (6,)), ("scale", (3,)))
    )
    module = Module("mix", "Mix", "linear", params=[weight, bias, scale])
    shapes = [split(module, p, style, "tp", 2).local_shape for p in module.params]
    assert shapes == [(3, 4), (3,), (3,)]


def masked(*, second: bool = False, scale: str = "const") -> Program:
    """A product with a weight times a mask, which no nn.Linear has."""
    b = Builder("masked")
    x = b.input("x", decoder.f64(4, 8))
    w = b.param("up.weight", decoder.f64(16, 8))
    mask = b.input("mask", decoder.f64(16, 8), scale, "up.mask")
    bias = b.param("up.bias", decoder.f64(16))
    with b.at(decoder.place("up")):
        shown = b.add("mul_scalar", b.add("mul", w, mask), value=Fraction(2))
        y = b.add("add", b.add("mm", x, b.add("permute", shown, dims=(1, 0))), bias)
        if second:
            y = b.add("mul", y, b.add("mm", x, b.param("up.other", decoder.f64(8, 16))))
    b.output(y, "output", "y")
    return b.build()


def test_a_weight_that_is_masked_is_that_of_a_product() -> None:
    (found,) = modules(masked(), {"up": "Linear"})
    assert (found.use, found.out_dim, found.own) == ("linear", 0, True)
    assert [s for s in options(found, 2) if can_emit(found, s)] == [
        "replicate",
        "column",
        "row",
        "gathered",
    ]


def test_a_weight_of_another_dtype_is_no_other_weight() -> None:
    b = Builder("cast")
    shown = b.add("cast", b.param("up.weight", decoder.f64(8, 16)), dtype="f32")
    x = b.add("cast", b.input("x", decoder.f64(4, 8)), dtype="f32")
    with b.at(decoder.place("up")):
        b.output(b.add("mm", x, shown), "output", "y")
    (found,) = modules(b.build(), {"up": "Linear"})
    assert (found.use, found.own) == ("linear", False)


@pytest.mark.parametrize("how", [{"second": True}, {"scale": "param"}])
def test_a_weight_beside_another_matrix_stays_whole(how: dict[str, Any]) -> None:
    for kind in ("Linear", "Own"):
        (found,) = modules(masked(**how), {"up": kind})
        assert not found.own
        assert not [s for s in options(found, 2) if can_emit(found, s) and s != "replicate"]
