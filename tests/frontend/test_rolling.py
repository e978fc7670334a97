"""Rolled programs compute what the flat ones do."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from shardproof.synthesis.frontends.torch.prune import prune
from shardproof.synthesis.frontends.torch.rolling.between import with_entries
from shardproof.synthesis.frontends.torch.rolling.depth import Depth
from shardproof.synthesis.frontends.torch.rolling.owned import rolled
from shardproof.synthesis.frontends.torch.rolling.paths import Group, members
from shardproof.synthesis.frontends.torch.rolling.recompute import compute_once, recompute_views
from shardproof.synthesis.frontends.torch.rolling.roll import NotRolledError, Stretch, roll
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import Mesh, Source, TensorType
from shardproof.verifier.refute.evaluate import evaluate

X = TensorType((2, 3), "f64")
W = TensorType((3, 3), "f64")


def layered(scales, *, taps=(), shared=False, around=None):
    """x -> for each layer: x + scale * (x @ w), with a backward that reads each x and w. The module
    `around` the list adds, where one is named."""
    b = Builder("layers")
    x = b.input("x", X)
    ct = b.input("ct", X, "cotangent")
    shift = b.input("shift", X)
    params = [b.param(f"net.{i}.w", W) for i in range(len(scales))]
    kept = []
    for i, scale in enumerate(scales):
        with b.at(Source("m.py", 1, f"net.{i}.lin")):
            y = b.add("mul_scalar", b.add("mm", x, params[i]), value=Fraction(scale))
            if shared:
                y = b.add("add", y, shift)
        kept.append(x)
        with b.at(Source("m.py", 2, f"net.{i}" if around is None else around)):
            x = b.add("add", x, y)
    b.output(x, "output", "y")
    backward = set()
    for i in reversed(range(len(scales))):
        with b.at(Source("m.py", 1, f"net.{i}.lin")):
            g = b.add("mul_scalar", ct, value=Fraction(scales[i]))
            t = b.add("permute", kept[i], dims=(1, 0))
            grad = b.add("mm", t, g)
            wt = b.add("permute", params[i], dims=(1, 0))
            back = b.add("mm", g, wt)
        with b.at(Source("m.py", 2, f"net.{i}" if around is None else around)):
            total = b.add("add", ct, back)
        backward |= {g, t, grad, wt, back, total}
        ct = total
        b.output(grad, "grad", f"net.{i}.w")
    b.output(ct, "output", "gx")
    for i in taps:
        b.output(kept[i], "output", f"tap{i}")
    return b.build(), frozenset(backward)


def compare(flat, rolled):
    rng = np.random.default_rng(1)
    values = {i.name: rng.standard_normal(i.type.shape) for i in flat.inputs}
    expected = evaluate(flat, values)
    want = {o.path: expected[o.value] for o in flat.outputs}
    given = dict(values)
    for item in rolled.program.inputs:
        if item.name not in given:
            given[item.name] = np.stack([values[p] for p in members(item.path, rolled.groups)])
    got = evaluate(rolled.program, given)
    for out in rolled.program.outputs:
        paths = members(out.path, rolled.groups)
        whole = want[out.path] if out.path in want else np.stack([want[p] for p in paths])
        assert np.array_equal(got[out.value], whole), out.path


@pytest.mark.parametrize(
    ("scales", "patterns"),
    [
        ((2, 2, 2, 2), ["net.*"]),
        ((2, 3, 2, 3, 2, 3), ["net.[0:6:2]", "net.[1:6:2]"]),
        ((5, 2, 2, 2), ["net.[1:4:1]"]),
        ((2, 2, 2, 5), ["net.[0:3:1]"]),
        ((2, 2, 7, 3, 3, 3), ["net.[3:6:1]", "net.[0:2:1]"]),
        ((2, 3, 5), []),
    ],
)
@pytest.mark.parametrize("shared", [False, True])
def test_equal_layers_become_scans_that_compute_the_same(scales, patterns, shared):
    flat, backward = layered(scales, shared=shared)
    rolled = roll(flat, backward, ["net"])
    assert [p for g in rolled.groups for p in g.patterns] == patterns
    compare(flat, rolled)


@pytest.mark.parametrize("taps", [(0,), (1, 3), (0, 1, 2, 3)])
def test_values_of_single_layers_read_outside_are_picked_from_a_stack(taps):
    flat, backward = layered((2, 2, 2, 2), taps=taps)
    rolled = roll(flat, backward, ["net"])
    assert rolled.groups
    compare(flat, rolled)


def test_one_different_constant_stays_outside():
    flat, backward = layered((2, 2, Fraction(2000001, 1000000), 2, 2))
    rolled = roll(flat, backward, ["net"])
    assert all(g.count == 2 for g in rolled.groups)
    compare(flat, rolled)


def test_a_stretched_run_computes_what_all_layers_do():
    short, backward = layered((2, 2, 2))
    whole, whole_backward = layered((2,) * 7)
    rolled = roll(short, backward, ["net"], {"net": Stretch(0, 1, 3, 7)})
    full = roll(whole, whole_backward, ["net"])
    assert rolled.groups == (Group("net", 0, 1, 7, 7, 3),)
    assert [i.type for i in rolled.program.inputs] == [i.type for i in full.program.inputs]
    compare(whole, rolled)


def test_kinds_that_do_the_same_at_these_extents_are_one_block():
    short, backward = layered((2,) * 6)
    whole, _ = layered((2,) * 14)
    rolled = roll(short, backward, ["net"], {"net": Stretch(0, 2, 3, 7)})
    assert rolled.groups == (Group("net", 0, 1, 14, 14, 6),)
    compare(whole, rolled)


def biased(layers, swapped=False):
    """x -> x + a + b for each layer: a and b have one gradient; or, swapped, each layer's a has
    twice what comes from the next."""
    b = Builder("biased")
    x = b.input("x", X)
    ct = b.input("ct", X, "cotangent")
    params = [[b.param(f"net.{i}.{n}", X) for n in "ab"] for i in range(layers)]
    for i, (left, right) in enumerate(params):
        with b.at(Source("m.py", 1, f"net.{i}.sub")):
            x = b.add("add", b.add("add", x, left), right)
    b.output(x, "output", "y")
    grads = []
    for i in reversed(range(layers)):
        with b.at(Source("m.py", 1, f"net.{i}.sub")):
            ct = b.add("mul_scalar", ct, value=Fraction(2))
        grads.insert(0, ct)
    for i, grad in enumerate(grads):
        b.output(grads[(i + 1) % layers] if swapped else grad, "grad", f"net.{i}.a")
        b.output(grad, "grad", f"net.{i}.b")
    return b.build(), frozenset(grads)


def test_parameters_with_one_gradient_roll():
    flat, backward = biased(4)
    rolled = roll(flat, backward, ["net"])
    assert [g.pattern() for g in rolled.groups] == ["net.*"]
    compare(flat, rolled)


def test_gradients_that_are_those_of_another_layer_do_not_roll():
    flat, backward = biased(4, swapped=True)
    assert not roll(flat, backward, ["net"]).groups


def test_layers_that_differ_cannot_stand_for_others():
    flat, backward = layered((2, 3, 2))
    with pytest.raises(NotRolledError, match="not alike"):
        roll(flat, backward, ["net"], {"net": Stretch(0, 1, 3, 7)})


def test_patterns_name_their_members():
    groups = (Group("a.layers", 0, 1, 3, 3, 3),)
    assert members("a.layers.*.w", groups) == ["a.layers.0.w", "a.layers.1.w", "a.layers.2.w"]
    assert members("a.layers.[1:6:2].w") == ["a.layers.1.w", "a.layers.3.w", "a.layers.5.w"]
    assert members("a.norm.w", groups) == ["a.norm.w"]


def test_the_last_layers_of_a_short_model_have_the_names_of_the_whole_one():
    depth = Depth(("encoder.layers",), head=1, period=1, traced=3, count=30, tail=1)
    names = [f"encoder.layers.{i}.fc.weight" for i in (0, 3, 4)] + ["encoder.layers.4", "head.4.w"]
    assert [*map(depth.whole_path, names)] == [
        "encoder.layers.0.fc.weight",
        "encoder.layers.3.fc.weight",
        "encoder.layers.31.fc.weight",
        "encoder.layers.31",
        "head.4.w",
    ]


@pytest.mark.parametrize("where", ["net.0", "net.1"])
def test_what_the_backward_computes_again_is_the_forwards(where):
    b = Builder("checkpointed")
    x = b.input("x", X)
    made = {}
    for block in ("net.0", "net.1"):
        with b.at(Source("m.py", 1, block)):
            flat = b.add("reshape", b.add("sin", x), shape=(6,))
            made[block] = b.add("reshape", flat, shape=(1, 6))
    b.output(b.add("add", *made.values()), "output", "y")
    with b.at(Source("m.py", 1, where)):
        again = b.add("sin", x)
        other = b.add("cos", x)
        row = b.add("reshape", again, shape=(1, 6))
        total = b.add("mul", row, b.add("reshape", other, shape=(1, 6)))
    b.output(total, "output", "g")
    backward = frozenset({again, other, row, total})
    once = prune(compute_once(b.build(), backward))
    assert [n.op for n in once.nodes if n.outputs[0] in backward] == ["cos", "mul"]
    assert once.producers()[total].inputs[0] == made[where]
    values = {"x": np.random.default_rng(1).standard_normal(X.shape)}
    np.testing.assert_array_equal(evaluate(once, values)[total], evaluate(b.build(), values)[total])


@pytest.mark.parametrize("split", [False, True])
def test_what_ranks_gather_of_a_reshaped_value_is_saved_as_one_device_saves_it(split):
    b = Builder("gathered", Mesh.of(tp=2) if split else Mesh())
    x, w = b.input("x", TensorType((4, 3), "f64")), b.param("w", TensorType((3, 2), "f64"))
    y = b.add("reshape", b.add("mm", x, w), shape=(2, 2, 2))
    saved = b.add("all_gather", y, dim=2, mesh_dim="tp") if split else y
    rows = b.add("reshape", saved, shape=(8 * (1 + split), 1))
    b.output(b.add("sin", rows), "output", "y")
    back = b.add("cos", rows)
    b.output(back, "output", "g")
    program, backward = recompute_views(b.build(), frozenset({back}))
    maker = program.producers()
    read = maker[back].inputs[0]
    assert read in backward
    assert maker[read].inputs == (saved,)


def test_what_the_backward_reshapes_to_and_fro_is_what_it_was():
    b = Builder("buckets")
    x = b.input("x", X)
    y = b.add("sin", x)
    flat = b.add("reshape", y, shape=(6,))
    whole = b.add("reshape", flat, shape=X.shape)
    other = b.add("reshape", flat, shape=(3, 2))
    ends = [b.add("cos", v) for v in (whole, other)]
    for end in ends:
        b.output(end, "output", end)
    once = compute_once(b.build(), frozenset({flat, whole, other, *ends}))
    assert [once.producers()[end].inputs for end in ends] == [(y,), (other,)]


def test_a_piece_of_a_table_is_taken_again_and_not_saved():
    b = Builder("pieces", Mesh.of(tp=2))
    x, table = b.input("x", X), b.input("table", TensorType((4, 3), "f64"), "const", "table")
    piece = b.add("shard_slice", table, dim=0, mesh_dim="tp")
    b.output(b.add("mul", x, piece), "output", "y")
    back = b.add("sin", piece)
    b.output(back, "output", "g")
    program, backward = recompute_views(b.build(), frozenset({back}))
    read = program.producers()[back].inputs[0]
    assert read != piece
    assert read in backward
    assert program.producers()[read].inputs == (table,)


def chain(layers, around=False):
    """x -> relu(x @ w) for each layer, or x + relu(x @ w)."""
    b = Builder("chain")
    x = b.input("x", X)
    params = [b.param(f"net.{i}.w", W) for i in range(layers)]
    for i, w in enumerate(params):
        with b.at(Source("m.py", 1, f"net.{i}")):
            y = b.add("relu", b.add("mm", x, w))
            x = b.add("add", x, y) if around else y
    b.output(x, "output", "y")
    return b.build()


@pytest.mark.parametrize(
    ("layers", "around", "patterns"),
    [
        (5, False, ["net.[0:4:2]", "net.[1:4:2]"]),
        (3, False, []),
        (5, True, ["net.*"]),
    ],
)
def test_a_chain_of_single_products_is_rolled_by_pairs(layers, around, patterns):
    flat = chain(layers, around)
    rolled = roll(flat, frozenset(), ["net"])
    assert [p for g in rolled.groups for p in g.patterns] == patterns
    compare(flat, rolled)


@pytest.mark.parametrize("owner", ["", "net"])
def test_shares_of_a_gradient_add_up_in_the_blocks_that_they_are_of(owner):
    b = Builder("conditioned")
    x, c, ct = b.input("x", X), b.input("c", X), b.input("ct", X, "cotangent")
    params = [b.param(f"net.{i}.w", W) for i in range(4)]
    for i, w in enumerate(params):
        with b.at(Source("m.py", 1, f"net.{i}")):
            x = b.add("add", x, b.add("mm", c, w))
    b.output(b.add("mul", x, c), "output", "y")
    first = len(b.build().nodes)
    total = b.add("mul", ct, x)
    back = b.add("mul", ct, c)
    for i in reversed(range(4)):
        with b.at(Source("m.py", 1, f"net.{i}")):
            share = b.add("mm", back, b.add("permute", params[i], dims=(1, 0)))
            grad = b.add("mm", b.add("permute", c, dims=(1, 0)), back)
        with b.at(Source("m.py", 2, owner)):
            total = b.add("add", total, share)
        b.output(grad, "grad", f"net.{i}.w")
    b.output(total, "output", "gc")
    flat = b.build()
    whole = rolled(flat, first, ["net"], None)
    assert [n.op for n in whole.program.nodes].count("scan") == 2
    assert not any(n.op == "slice" for n in whole.program.nodes)
    compare(flat, whole)


@pytest.mark.parametrize(
    ("scales", "around", "pattern"),
    [
        ([2] * 5, "", "net.*"),
        ([2, 2, 2, 2, 3], "", "net.[0:4:1]"),
        ([2] * 5, "net.0.lin", None),
    ],
)
def test_a_residual_around_a_list_is_of_the_layer_before_it(scales, around, pattern):
    flat, backward = layered(scales, around=around)
    given = with_entries(flat, backward, ["net"])
    whole = roll(given, backward, ["net"])
    assert [p for g in whole.groups for p in g.patterns] == ([pattern] if pattern else [])
    compare(flat, whole)


def test_what_comes_after_a_list_is_in_no_layer():
    b = Builder("ended")
    x = b.input("x", X)
    for i in range(3):
        with b.at(Source("m.py", 1, f"net.{i}")):
            y = b.add("tanh", x)
        with b.at(Source("m.py", 2, "")):
            x = b.add("add", x, y)
    with b.at(Source("m.py", 3, "")):
        b.output(b.add("add", x, y), "output", "y")
    found = with_entries(b.build(), frozenset(), ["net"])
    adds = [n.source.module for n in found.nodes if n.op == "add"]
    assert adds == ["net.0", "net.1", "net.2", ""]
