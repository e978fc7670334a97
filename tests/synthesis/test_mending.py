"""What no style can say is left whole, however often it comes, and the rest is split."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest

from shardproof.synthesis.planner.assign import PlanError
from shardproof.synthesis.planner.constraints import NO_CONSTRAINTS, Constraints, settle
from shardproof.synthesis.planner.narrowing import Narrowing, layered
from shardproof.synthesis.planner.plan import from_json, to_json
from shardproof.synthesis.planner.planner import Asked, Synthesis, synthesize
from shardproof.synthesis.planner.scoring import Candidate, Refusal, prepare
from shardproof.synthesis.planner.search import _Short
from shardproof.synthesis.planner.shares import left_whole
from shardproof.synthesis.planner.tactics import TACTICS
from shardproof.synthesis.planner.uses import multiplications
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program, live
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof
from tests.synthesis import decoder
from tests.synthesis.decoder import f64, linear, place

MESH = Mesh.of(tp=2)
WIDE = 8


def obstacles(count: int, hidden: int = 32) -> Program:
    """`count` times a linear and a norm of what it gives, then a pair of linears."""
    from shardproof.synthesis.autodiff.autodiff import grad

    b = Builder("obstacles")
    x = b.input("x", f64(2, 4, WIDE))
    for i in range(count):
        x = linear(b, x, b.param(f"pre.{i}.lin.weight", f64(WIDE, WIDE)), f"pre.{i}.lin")
        scale = b.param(f"pre.{i}.norm.weight", f64(WIDE))
        with b.at(place(f"pre.{i}.norm", 5)):
            x = b.add("rms_norm", x, scale, eps=Fraction(1, 1000))
    up = linear(b, x, b.param("up.weight", f64(hidden, WIDE)), "up")
    with b.at(place("", 7)):
        up = b.add("silu", up)
    down = linear(b, up, b.param("down.weight", f64(WIDE, hidden)), "down")
    with b.at(place("", 9)):
        b.output(b.add("sum", down, dims=(0, 1, 2), keepdim=False), "loss", "loss")
    return live(inline(grad(b.build())))


def made(count: int, hidden: int = 32, constraints: Constraints = NO_CONSTRAINTS) -> Synthesis:
    return synthesize(
        Asked(obstacles(count, hidden), MESH, decoder.CLUSTER, constraints=constraints)
    )


def aside(hidden: int = 32, *unread: str) -> Program:
    """A linear that is added to a part of the stream, and a pair of linears in modules apart."""
    from shardproof.synthesis.autodiff.autodiff import grad

    b = Builder("aside")
    for name in unread:
        b.param(name, f64(8 * WIDE, WIDE))
    x = b.input("x", f64(2, 4, WIDE))
    more = linear(b, x, b.param("layer.side.weight", f64(WIDE, WIDE)), "layer.side")
    with b.at(place("layer", 5)):
        some = b.add("slice", x, dim=1, start=1, stop=4, step=1)
        more = b.add("slice", more, dim=1, start=1, stop=4, step=1)
        x = b.add("add", some, more)
    up = linear(b, x, b.param("layer.one.up.weight", f64(hidden, WIDE)), "layer.one.up")
    with b.at(place("layer", 7)):
        up = b.add("silu", up)
    down = linear(b, up, b.param("layer.two.down.weight", f64(WIDE, hidden)), "layer.two.down")
    with b.at(place("layer", 9)):
        b.output(b.add("sum", down, dims=(0, 1, 2), keepdim=False), "loss", "loss")
    return live(inline(grad(b.build())))


def test_what_makes_a_split_operand_is_blamed_through_views() -> None:
    """The whole stream is split where it is cut, and meets the linear later."""
    found = synthesize(Asked(aside(), MESH, decoder.CLUSTER))
    styles = {m.path: m.style for m in found.plan.modules}
    assert (styles["layer.one.up"], styles["layer.two.down"]) == ("column", "row")
    assert found.found.refused[0].makers == {"layer.side"}


def test_a_pair_that_was_left_whole_is_split_together() -> None:
    program = aside()
    state = prepare(Asked(program, MESH, decoder.CLUSTER))
    rules = settle(NO_CONSTRAINTS, state.modules, 2, None)
    start = TACTICS["column_row"](state.modules, 2)
    whole = state.score(TACTICS["replicate"](state.modules, 2), "replicate")
    refused = state.score(start, "column_row")
    assert isinstance(whole, Candidate)
    assert isinstance(refused, Refusal)
    best = Narrowing(state, rules)._split_again(start, whole, refused)
    assert best.point.style("layer.one.up") == "column"
    assert best.point.style("layer.two.down") == "row"


def test_of_a_point_that_only_its_whole_pass_refuses_one_kind_stays_whole() -> None:
    state = prepare(Asked(aside(), MESH, decoder.CLUSTER))
    rules = settle(NO_CONSTRAINTS, state.modules, 2, None)
    start = TACTICS["column_row"](state.modules, 2)
    whole = state.score(TACTICS["replicate"](state.modules, 2), "replicate")
    refused = state.score(start, "column_row")
    assert isinstance(whole, Candidate)
    assert isinstance(refused, Refusal)
    narrowing = Narrowing(state, rules)
    best = narrowing._best(start, refused, whole, [["layer.one.up"], ["layer.side"]])
    assert best.point == start.styled({"layer.side": "replicate"})
    assert narrowing._best(start, refused, whole, [["layer.one.up"]]) is whole


@pytest.mark.parametrize("count", [1, 2, 5])
def test_any_number_of_obstacles_is_left_whole(count: int) -> None:
    found = made(count, 128)
    plan = found.plan
    assert {m.path: m.style for m in plan.modules} == {"up": "column", "down": "row"}
    verdict = verify(Problem(found.sequential, found.lowered.program, found.lowered.contract))
    assert isinstance(verdict, Proof)
    assert "all_gather over tp before it" in found.found.obstacles["pre.0.lin"]


def inner(residual: bool) -> Program:
    """A pair of linears with a norm between; with a `residual`, one that passes it by."""
    from shardproof.synthesis.autodiff.autodiff import grad

    b = Builder("inner")
    x = b.input("x", f64(2, 4, WIDE))
    up = linear(b, x, b.param("up.weight", f64(32, WIDE)), "up")
    with b.at(place("norm", 5)):
        h = b.add("rms_norm", up, b.param("norm.weight", f64(32)), eps=Fraction(1, 1000))
    with b.at(place("", 7)):
        h = b.add("add", h, up) if residual else h
    down = linear(b, h, b.param("down.weight", f64(WIDE, 32)), "down")
    with b.at(place("", 9)):
        b.output(b.add("sum", down, dims=(0, 1, 2), keepdim=False), "loss", "loss")
    return live(inline(grad(b.build())))


def test_a_norm_between_column_and_row_is_split_with_them() -> None:
    found = synthesize(Asked(inner(False), MESH, decoder.CLUSTER))
    plan = {m.path: (m.style, m.input, m.output) for m in found.plan.modules}
    split = ("S(-1)", "S(-1)")
    assert plan == {
        "up": ("column", "R", "S(-1)"),
        "norm": ("product", *split),
        "down": ("row", "S(-1)", "R"),
    }
    verdict = verify(Problem(found.sequential, found.lowered.program, found.lowered.contract))
    assert isinstance(verdict, Proof)
    inside = [n for n in found.lowered.program.nodes if n.source.module == "norm"]
    summed = next(n for n in inside if n.op == "all_reduce")
    local = {summed.outputs[0]: summed.inputs[0]}
    nodes = tuple(
        replace(n, inputs=tuple(local.get(v, v) for v in n.inputs))
        for n in found.lowered.program.nodes
        if n is not summed
    )
    wrong = replace(found.lowered.program, nodes=nodes)
    verdict = verify(Problem(found.sequential, wrong, found.lowered.contract))
    assert isinstance(verdict, Counterexample)


def test_a_linear_behind_a_norm_on_a_stream_is_no_row() -> None:
    state = prepare(Asked(inner(True), MESH, decoder.CLUSTER))
    assert all(not m.near for m in state.modules)


def test_a_transform_counts_as_a_fast_one() -> None:
    b = Builder("transform")
    x = b.input("x", f64(2, 4, WIDE))
    angle = b.add("iota", shape=(WIDE, WIDE), dim=0, offset=0, dtype="i64")
    with b.at(place("fft", 3)):
        table = b.add("cos", b.add("cast", angle, dtype="f64"))
        flat = b.add("reshape", x, shape=(8, WIDE))
        b.output(b.add("mm", flat, table), "output", "out")
    assert multiplications(b.build()) == {"fft": 8 * WIDE * 3.0}


def test_a_kind_costs_as_one_module() -> None:
    assert made(6).found.scored == made(12).found.scored


def test_less_than_half_of_what_could_be_split_is_no_useful_plan() -> None:
    whole = NO_CONSTRAINTS.with_constraint("ban", "pre.*.lin=gathered")
    few = made(5, 8, whole)
    useful, useless = made(1, 32).plan, few.plan
    assert (useful.useful, useless.useful) == (True, False)
    assert useful.estimates["split_share"] == pytest.approx(256 / (256 + 64))
    assert useless.estimates["split_share"] == pytest.approx(64 / (64 + 5 * 64))
    assert useful.estimates["compute_share"] == useful.estimates["split_share"]
    assert from_json(to_json(useless)).useful is False
    told = left_whole(few.found, "tp", 2)
    assert told is not None
    assert told[0].path == "pre.0.lin"
    assert "pre.1.lin as column needs all_gather over tp before it" in told[1]


def test_pins_switch_no_guard_off() -> None:
    constraints = NO_CONSTRAINTS
    for path in ("up", "down", "pre.0.lin"):
        constraints = constraints.with_constraint("pin", f"{path}=replicate")
    with pytest.raises(PlanError, match="no plan that splits the model over tp=2"):
        made(1, constraints=constraints)


def test_layers_are_told_from_places_in_a_sequence() -> None:
    assert layered("blocks.3.mlp.0") == "blocks.*.mlp.0"
    assert layered("layers.0.1.up") == "layers.*.*.up"
    assert layered("norm") == "norm"


def test_what_is_gathered_at_once_does_not_count() -> None:
    """Its parameters are split, but all that reads its result is computed on every rank."""
    plan = made(5, 8).plan
    gathered = [m for m in plan.modules if m.path.startswith("pre.")]
    assert gathered
    assert {m.output for m in gathered} == {"R"}
    assert plan.params["pre.0.lin.weight"]["tp"] == "S(0)"
    assert not plan.useful
    assert plan.estimates["split_share"] == pytest.approx(64 / (64 + 5 * 64))


def test_parameters_that_no_output_depends_on_do_not_count() -> None:
    some, more = (aside(32, *unread) for unread in ((), ("spare.weight",)))
    one, both = (synthesize(Asked(p, MESH, decoder.CLUSTER)).plan for p in (some, more))
    assert "spare.weight" in both.params
    assert both.estimates["split_share"] == one.estimates["split_share"]


PARTS = ("one", "two", "three")


def test_a_plan_that_shares_little_of_the_work_comes_after_others() -> None:
    b = Builder("chain")
    x = b.input("x", f64(2, 4096, 2 * WIDE))
    one = linear(b, x, b.param("one.weight", f64(WIDE, 2 * WIDE)), "one")
    two = linear(b, one, b.param("two.weight", f64(WIDE, WIDE)), "two")
    with b.at(place("", 7)):
        some = b.add("slice", two, dim=1, start=0, stop=4, step=1)
    three = linear(b, some, b.param("three.weight", f64(2 * WIDE, WIDE)), "three")
    scale = b.param("norm.weight", f64(2 * WIDE))
    with b.at(place("norm", 9)):
        normed = b.add("rms_norm", three, scale, eps=Fraction(1, 1000))
    with b.at(place("", 11)):
        b.output(b.add("sum", normed, dims=(0, 1, 2), keepdim=False), "loss", "loss")
    program = b.build()
    assert multiplications(program) == {"one": 1048576.0, "two": 524288.0, "three": 1024.0}
    state = prepare(Asked(program, MESH, decoder.CLUSTER))
    whole = TACTICS["replicate"](state.modules, 2)
    points = [whole.styled({up: "column", down: "row"}) for up, down in pairwise(PARTS)]
    assert [_Short(state).of(point) for point in points] == [False, True]
