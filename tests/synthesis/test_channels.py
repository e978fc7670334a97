"""Convolutions and what works on their channels: which are split, and how."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from shardproof.synthesis.autodiff.autodiff import grad
from shardproof.synthesis.planner.assign import PlanError, misfit, options, split
from shardproof.synthesis.planner.constraints import NO_CONSTRAINTS
from shardproof.synthesis.planner.roles import Module, Param, heads, modules
from shardproof.synthesis.planner.scoring import Asked
from shardproof.synthesis.planner.search import Found, search
from shardproof.synthesis.planner.shares import shares
from shardproof.synthesis.planner.tactics import TACTICS
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Output, Program, live
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof
from shardproof.verifier.verification import verify
from tests.synthesis import decoder


def convolved(b: Builder, x: str, name: str, out: int, groups: int = 1) -> str:
    """x: [4, C, 9] -> [4, out, 8] by a kernel of two places, as torch's Conv1d is captured."""
    channels = b.types[x].shape[1]
    w = b.param(f"{name}.weight", decoder.f64(out, channels // groups, 2))
    with b.at(decoder.place(name)):
        return _places(b, x, w, groups)


def _places(b: Builder, x: str, w: str, groups: int) -> str:
    (out, *_), (_, channels, n) = b.types[w].shape, b.types[x].shape
    wide = channels // groups * 2
    k = b.add("reshape", w, shape=(groups, out // groups, wide))
    k = b.add("permute", k, dims=(0, 2, 1))
    seen: list[str] = []
    for at in range(2):
        part = b.add("slice", x, dim=2, start=at, stop=at + n - 1, step=1)
        seen.append(b.add("reshape", part, shape=(4, channels, 1, n - 1)))
    rows = b.add("reshape", b.add("concat", *seen, dim=2), shape=(4, groups, wide, n - 1))
    rows = b.add("permute", rows, dims=(1, 0, 3, 2))
    rows = b.add("reshape", rows, shape=(groups, 4 * (n - 1), wide))
    made = b.add("reshape", b.add("bmm", rows, k), shape=(groups, 4, n - 1, out // groups))
    made = b.add("permute", made, dims=(1, 0, 3, 2))
    return b.add("reshape", made, shape=(4, out, n - 1))


def scaled(b: Builder, x: str, name: str) -> str:
    channels = b.types[x].shape[1]
    w = b.param(f"{name}.weight", decoder.f64(channels))
    with b.at(decoder.place(name)):
        x = b.add("mul", x, b.add("reshape", w, shape=(1, channels, 1)))
    with b.at(decoder.place("")):
        return b.add("relu", x)


def styles(b: Builder, value: str) -> tuple[dict[str, Module], dict[str, str]]:
    b.output(value, "output", "out")
    found = modules(b.build())
    return {m.path: m for m in found}, dict(TACTICS["column_row"](found, 2).styles)


def test_a_pair_of_convolutions_is_split_with_the_norm_between() -> None:
    b = Builder("pair")
    x = scaled(b, convolved(b, b.input("x", decoder.f64(4, 6, 9)), "a", 8), "n")
    found, chosen = styles(b, convolved(b, x, "c", 6))
    assert chosen == {"a": "column", "n": "channels", "c": "row"}
    assert found["c"].follows == {"a.weight"}
    layouts = [split(m, m.weight, chosen[m.path], "tp", 2) for m in found.values()]
    assert [layout.placement("tp") for layout in layouts] == ["Shard(0)", "Shard(0)", "Shard(1)"]


def test_a_depthwise_convolution_between_keeps_the_split() -> None:
    b = Builder("depthwise")
    x = convolved(b, b.input("x", decoder.f64(4, 6, 9)), "a", 8)
    x = convolved(b, scaled(b, x, "n"), "d", 8, groups=8)
    found, chosen = styles(b, convolved(b, x, "c", 6))
    assert chosen == {"a": "column", "n": "channels", "d": "channels", "c": "row"}
    assert found["d"].parts == 8
    assert misfit(found["d"], "column", 2) == "it works channel by channel (channels), not column"
    assert misfit(found["d"], "channels", 3) == "8 channels do not divide by 3"


def test_channels_that_are_read_along_two_ways_stay_whole() -> None:
    b = Builder("residual")
    x = convolved(b, b.input("x", decoder.f64(4, 6, 9)), "stem", 6)
    short = b.add("slice", x, dim=2, start=0, stop=7, step=1)
    x = b.add("add", short, convolved(b, x, "a", 6))
    _, chosen = styles(b, convolved(b, x, "c", 6))
    assert set(chosen.values()) == {"replicate"}


def test_a_block_behind_a_whole_convolution_is_a_pair() -> None:
    b = Builder("block")
    stem = convolved(b, b.input("x", decoder.f64(4, 6, 9)), "stem", 6)
    x = convolved(b, scaled(b, convolved(b, stem, "a", 8), "n"), "c", 6)
    short = b.add("slice", stem, dim=2, start=0, stop=6, step=1)
    _, chosen = styles(b, convolved(b, b.add("add", short, x), "d", 6))
    assert {name for name, style in chosen.items() if style == "replicate"} == {"stem", "d"}
    assert (chosen["a"], chosen["n"], chosen["c"]) == ("column", "channels", "row")


def test_a_block_behind_a_norm_over_all_channels_is_a_pair_of_its_own() -> None:
    b = Builder("over all")
    stem = convolved(b, b.input("x", decoder.f64(4, 6, 9)), "stem", 6)
    flat = b.add("reshape", stem, shape=(4, 1, 48))
    total = b.add("sum", flat, dims=(2,), keepdim=True)
    x = scaled(b, b.add("sub", stem, b.add("mul_scalar", total, value=Fraction(1, 48))), "n")
    found, chosen = styles(b, convolved(b, convolved(b, x, "a", 8), "c", 6))
    assert chosen == {"stem": "replicate", "n": "replicate", "a": "column", "c": "row"}
    assert not found["a"].follows


def test_joined_channels_are_no_pair() -> None:
    b = Builder("joined")
    x = b.input("x", decoder.f64(4, 6, 9))
    both = b.add("concat", convolved(b, x, "a", 6), convolved(b, x, "b", 6), dim=1)
    found, chosen = styles(b, convolved(b, both, "c", 6))
    assert set(chosen.values()) == {"replicate"}
    assert options(found["c"], 2) == ["replicate", "column", "row", "gathered"]


def test_a_convolution_that_is_read_in_part_or_with_more_is_whole() -> None:
    """Cross-stage blocks: one half goes through a pair and is joined with the other."""
    b = Builder("cross stage")
    x = scaled(b, convolved(b, b.input("x", decoder.f64(4, 6, 9)), "expand", 8), "n")
    half, rest = (b.add("slice", x, dim=1, start=at, stop=at + 4, step=1) for at in (0, 4))
    inner = convolved(b, scaled(b, convolved(b, half, "a", 8), "m"), "c", 4)
    short = b.add("slice", rest, dim=2, start=0, stop=6, step=1)
    both = b.add("concat", inner, short, dim=1)
    found, chosen = styles(b, convolved(b, convolved(b, both, "t", 8), "d", 6))
    assert found["a"].beside == {"expand.weight"}
    assert found["t"].beside == {"expand.weight", "c.weight"}
    assert {name for name, style in chosen.items() if style == "replicate"} == {"expand", "n"}
    assert [chosen[name] for name in "acmtd"] == ["column", "row", "channels", "column", "row"]


def test_a_convolution_between_gathers_channels_that_another_takes_up() -> None:
    b = Builder("between")
    wide = convolved(b, b.input("x", decoder.f64(4, 6, 9)), "a", 8)
    short = b.add("slice", wide, dim=2, start=0, stop=7, step=1)
    both = b.add("add", short, convolved(b, wide, "m", 8))
    b.output(convolved(b, both, "c", 6), "output", "out")
    found = modules(b.build())
    gathers, plain = (dict(TACTICS[t](found, 2).styles) for t in ("gather_between", "column_row"))
    assert gathers == {"a": "column", "m": "column", "c": "row"}
    assert set(plain.values()) == {"replicate"}


def test_channels_that_all_readers_gather_do_not_count() -> None:
    """Of three in a row the first is computed in pieces that nothing works on."""
    b = Builder("row")
    x = b.input("x", decoder.f64(4, 6, 9))
    for name, wide in (("a", 8), ("m", 8), ("c", 6)):
        x = convolved(b, x, name, wide)
    with b.at(decoder.place("")):
        b.output(b.add("sum", x, dims=(0, 1, 2), keepdim=False), "loss", "loss")
    program = live(inline(grad(b.build())))
    kinds = {"": "Net"} | dict.fromkeys(("a", "m", "c"), "Conv1d")
    constraints = NO_CONSTRAINTS
    for pin in ("a=column", "m=column", "c=row"):
        constraints = constraints.with_constraint("pin", pin)
    mesh = Mesh.of(tp=2)
    found = search(Asked(program, mesh, decoder.CLUSTER, kinds, constraints=constraints))
    assert decoder.largest_difference(found.program, found.best.lowered, mesh) < 1e-10
    a, m, c = 8 * 6 * 2, 8 * 8 * 2, 6 * 8 * 2
    assert shares(found, "tp", 2)["split_share"] == pytest.approx((m + c) / (a + m + c))


def planned(*pins: tuple[str, str]) -> tuple[Found, float]:
    """The plan of two convolutions with a norm between, and how far ranks are from one device."""
    b = Builder("pair")
    x = scaled(b, convolved(b, b.input("x", decoder.f64(4, 6, 9)), "a", 8), "n")
    x = convolved(b, x, "c", 6)
    with b.at(decoder.place("")):
        total = b.add("sum", b.add("mul", x, x), dims=(0, 1, 2), keepdim=False)
        b.output(b.add("mul_scalar", total, value=Fraction(1, 4)), "loss", "loss")
    program = live(inline(grad(b.build())))
    kinds = {"": "Net", "a": "Conv1d", "n": "Norm", "c": "Conv1d"}
    constraints = NO_CONSTRAINTS
    for path, style in pins:
        constraints = constraints.with_constraint("pin", f"{path}={style}")
    mesh = Mesh.of(tp=2)
    found = search(Asked(program, mesh, decoder.CLUSTER, kinds, constraints=constraints))
    return found, decoder.largest_difference(found.program, found.best.lowered, mesh)


def test_a_pair_computes_what_one_device_does() -> None:
    found, far = planned()
    assert dict(found.best.point.styles) == {"a": "column", "n": "channels", "c": "row"}
    assert far < 1e-10


def test_the_result_of_a_gathered_convolution_is_whole() -> None:
    found, far = planned(("a", "gathered"), ("n", "replicate"))
    assert found.best.point.style("a") == "gathered"
    forward = [n for n in found.best.lowered.program.nodes if n.op == "all_gather"]
    assert forward[0].source.module == "a"
    assert far < 1e-10


@pytest.mark.parametrize("style", ["column", "row"])
def test_a_whole_norm_does_not_take_split_channels(style: str) -> None:
    with pytest.raises(PlanError, match=r"needs (shard_slice|all_gather) over tp inside toy"):
        planned(("a", style), ("n", "replicate"))


def test_a_plan_that_splits_too_little_splits_and_gathers_more() -> None:
    found, far = planned(("n", "replicate"))
    assert found.best.point.style("a") == "gathered"
    assert far < 1e-10


def test_a_pair_is_proved_and_without_its_reduction_refuted() -> None:
    found, _ = planned()
    lowered = found.best.lowered
    assert isinstance(verify(Problem(found.program, lowered.program, lowered.contract)), Proof)
    nodes = lowered.program.nodes
    last = next(n for n in nodes if n.op == "all_reduce" and n.source.module == "c")
    wrong = replace(
        lowered.program,
        nodes=tuple(
            replace(
                n, inputs=tuple(last.inputs[0] if v == last.outputs[0] else v for v in n.inputs)
            )
            for n in nodes
            if n is not last
        ),
    )
    verdict = verify(Problem(found.program, wrong, lowered.contract))
    assert isinstance(verdict, Counterexample)


def test_what_no_output_depends_on_is_split_as_its_like_in_another_layer() -> None:
    b = Builder("skips")
    x, total = b.input("x", decoder.f64(4, 6, 9)), ""
    for layer in range(2):
        h = convolved(b, x, f"up.{layer}", 8)
        x = b.add("pad", convolved(b, b.add("pad", h, dim=2, lo=1, hi=0), f"down.{layer}", 6),
                  dim=2, lo=1, hi=0)  # fmt: skip
        s = convolved(b, h, f"skip.{layer}", 6)
        total = b.add("add", total, s) if total else s
    b.output(total, "output", "out")
    found = {m.path: m for m in modules(live(b.build()))}
    like, unread = found["down.0"], found["down.1"]
    assert (unread.use, unread.out_dim, unread.follows) == ("conv", like.out_dim, like.follows)
    chosen = dict(TACTICS["column_row"](list(found.values()), 2).styles)
    assert chosen["down.1"] == chosen["down.0"]


@pytest.mark.parametrize("shape", [(8, 8), (8, 1, 1)])
def test_weights_that_the_model_itself_holds_are_named(shape: tuple[int, ...]) -> None:
    b = Builder("raw")
    x, w = b.input("x", decoder.f64(4, 8)), b.param("w", decoder.f64(*shape))
    with b.at(decoder.place("")):
        flat = b.add("reshape", w, shape=(8, shape[-1])) if len(shape) > 2 else w
        b.output(b.add("mm", x, flat), "output", "out")
    with pytest.raises(PlanError, match="works with w itself, and styles are for modules"):
        search(Asked(b.build(), Mesh.of(tp=2), decoder.CLUSTER), lambda m, s: s == "replicate")


def test_a_kernel_that_is_reshaped_otherwise_is_for_no_channel() -> None:
    b = Builder("kernel")
    x, w = b.input("x", decoder.f64(1, 16)), b.param("c.weight", decoder.f64(4, 2, 2))
    with b.at(decoder.place("c")):
        x = b.add("mul", x, b.add("reshape", w, shape=(1, 16)))
    found, chosen = styles(b, x)
    assert (found["c"].use, chosen["c"]) == ("other", "replicate")


def test_a_linear_before_the_last_convolution_is_no_output_projection() -> None:
    b = Builder("time")
    x, t = convolved(b, b.input("x", decoder.f64(4, 6, 9)), "a", 8), b.input("t", decoder.f64(4, 6))
    w = b.param("time.weight", decoder.f64(8, 6))
    with b.at(decoder.place("time")):
        t = b.add("mm", t, b.add("permute", w, dims=(1, 0)))
    assert heads(modules(live(_given(b, t)))) == {"time"}
    x = b.add("add", x, b.add("reshape", t, shape=(4, 8, 1)))
    assert heads(modules(live(_given(b, x)))) == set()
    assert heads(modules(live(_given(b, convolved(b, b.add("relu", x), "c", 6))))) == set()


def _given(b: Builder, value: str) -> Program:
    return replace(b.build(), outputs=(Output(value, "output", "out"),))


def test_a_gate_on_the_channels_of_groups_is_a_pair_of_its_own() -> None:
    """Squeeze and excite: the second reads what the first gives, the last both."""

    def conv(name: str, shape: tuple[int, ...], *follows: str, groups: int = 1) -> Module:
        param = Param(f"{name}.weight", f"{name}.weight", shape, False)
        sources = frozenset(f"{f}.weight" for f in follows)
        return Module(name, "Conv2d", "conv", 0, groups, follows=sources, params=[param])

    block = [
        conv("expand", (8, 4, 1, 1)),
        conv("depthwise", (8, 1, 3, 3), "expand", groups=8),
        conv("squeeze", (2, 8, 1, 1), "depthwise"),
        conv("excite", (8, 2, 1, 1), "squeeze"),
        conv("project", (4, 8, 1, 1), "depthwise", "excite"),
    ]
    styles = dict(TACTICS["column_row"](block, 2).styles)
    assert list(styles.values()) == ["column", "channels", "row", "column", "row"]


def test_a_convolution_of_heads_is_a_column_whatever_it_reads() -> None:
    """Queries, keys and values are cut apart: a sum would make them whole."""

    def conv(name: str, shape: tuple[int, ...], *follows: str, pieces: int = 1) -> Module:
        param = Param(f"{name}.weight", f"{name}.weight", shape, False)
        sources = frozenset(f"{f}.weight" for f in follows)
        return Module(name, "Conv2d", "conv", 0, 1, pieces, follows=sources, params=[param])

    block = [
        conv("narrow", (8, 16, 1, 1)),
        conv("qkv", (24, 8, 1, 1), "narrow", pieces=3),
        conv("wide", (16, 8, 1, 1), "qkv"),
    ]
    styles = dict(TACTICS["column_row"](block, 2).styles)
    assert list(styles.values()) == ["replicate", "fused_column", "row"]
