"""The search finds at least its best seed, and says what a mesh asks that a model cannot give."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.expert import EXPERTS, compare
from shardproof.synthesis.hardware import Cluster
from shardproof.synthesis.planner.assign import PlanError
from shardproof.synthesis.planner.constraints import show_bytes
from shardproof.synthesis.planner.judging import costs, passed_over
from shardproof.synthesis.planner.plan import PassedOver, Plan, from_json, table, to_json
from shardproof.synthesis.planner.planner import Asked, Synthesis, synthesize
from shardproof.synthesis.planner.roles import Module, Param
from shardproof.synthesis.planner.search import ROOM, check_heads, search
from shardproof.synthesis.planner.tactics import TACTICS
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Proof
from tests.synthesis import decoder

PROGRAM = decoder.decoder(layers=2)
NARROW = decoder.decoder(layers=2, kv=2)


def no_latency() -> Cluster:
    """A cluster on which volume alone counts, so that small tensors rank as large ones do."""
    cluster = decoder.CLUSTER
    still = {n: replace(getattr(cluster, n), latency_s=1e-15) for n in ("node", "network")}
    return replace(cluster, **still)


def scarce(memory: float) -> Cluster:
    """A cluster whose devices have room for a plan with a split stream alone."""
    cluster = decoder.CLUSTER
    return replace(cluster, device=replace(cluster.device, memory_bytes=memory))


def plan(mesh: Mesh, cluster: Cluster = decoder.CLUSTER) -> Plan:
    return synthesize(Asked(PROGRAM, mesh, cluster)).plan


@pytest.mark.parametrize("mesh", [Mesh.of(tp=2), Mesh.of(dp=2, tp=2)], ids=str)
@pytest.mark.parametrize("cluster", [decoder.CLUSTER, no_latency()], ids=["h100", "no latency"])
def test_the_plan_is_at_most_the_experts(mesh: Mesh, cluster: Cluster) -> None:
    row = compare(PROGRAM, mesh, cluster, {})
    assert row.proved
    assert set(row.experts) == set(EXPERTS)
    assert row.ratio <= 1.0


def test_the_best_seed_is_never_lost() -> None:
    found = search(Asked(PROGRAM, Mesh.of(tp=2), decoder.CLUSTER))
    seeds = [c for c in (found.best, *found.others) if c.origin in TACTICS]
    roomy = [c for c in seeds if c.estimate.parameters <= found.best.estimate.parameters * 1.02]
    assert found.best.score <= min(c.score for c in roomy)
    assert found.scored > len({point for _, point, _ in found.starts})


@pytest.mark.parametrize("cluster", [decoder.CLUSTER, no_latency()], ids=["h100", "no latency"])
def test_every_plan_that_was_not_chosen_has_a_reason(cluster: Cluster) -> None:
    """What is as good or better by time alone says what else it costs."""
    made = synthesize(Asked(PROGRAM, Mesh.of(tp=2), cluster))
    found, rows = made.found, passed_over(made, {})
    assert len(rows) >= len({point for _, point, _ in found.starts}) - 1
    best = found.best.estimate
    names = {c.origin: c for c in found.others}
    for row in rows:
        assert row.why
        if row.step_s is None:
            assert row.why.startswith(("refused by the emitter: ", "cannot be distributed: "))
            continue
        other = names[row.name].estimate
        assert (row.step_s, row.memory_bytes) == (other.step_s, other.memory_bytes)
        more = other.parameters > best.parameters * ROOM
        assert ("more of parameters on every rank" in row.why) == more
        assert more or other.step_s >= best.step_s * 0.999
    whole = next(row for row in rows if row.name == "replicate")
    assert "which the mesh is to split" in whole.why


def test_a_plan_that_failed_later_is_named_with_what_it_failed_at() -> None:
    made = synthesize(Asked(PROGRAM, Mesh.of(tp=2), decoder.CLUSTER))
    last = made.found.others[-1]
    gone = PassedOver("an idea", "refused by the emitter: no such line", 0.001, 7)
    rows = passed_over(made, {last.point: gone}, 1)
    priced = [row for row in rows if row.step_s is not None]
    assert priced == [gone, *passed_over(made, {}, 1)[:1]]


def test_memory_that_is_not_there_is_the_reason() -> None:
    made = synthesize(Asked(PROGRAM, Mesh.of(tp=2), decoder.CLUSTER))
    best, other = made.found.best, made.found.others[0]
    limit = other.estimate.memory_bytes - 1
    assert f"needs {show_bytes(limit + 1)} per rank" in costs(best, other, limit)
    assert "needs" not in costs(best, other, limit + 1)


def test_where_memory_is_scarce_the_stream_is_split_over_the_sequence() -> None:
    assert not plan(Mesh.of(tp=2)).sequence_parallel
    made = plan(Mesh.of(tp=2), scarce(21.5e3))
    assert made.sequence_parallel
    norms = [m for m in made.modules if m.style == "sequence"]
    assert {m.path for m in norms} == {"layers.*.norm1", "layers.*.norm2", "norm"}
    assert {(m.input, m.output) for m in norms} == {("S(1)", "S(1)")}


def test_fewer_key_value_heads_than_ranks_are_shared() -> None:
    made = synthesize(Asked(NARROW, Mesh.of(tp=4), decoder.CLUSTER))
    for name in ("k", "v"):
        module = made.plan.module(f"layers.*.attn.{name}")
        assert module is not None
        assert (module.style, module.parts, module.output) == ("kv_column", 2, "S(-1)")
        assert made.plan.params[f"layers.*.attn.{name}.weight"] == {"tp": "R"}
    verdict = verify(Problem(made.sequential, made.lowered.program, made.lowered.contract))
    assert isinstance(verdict, Proof)
    assert decoder.largest_difference(made.sequential, made.lowered, Mesh.of(tp=4)) < 1e-12


def test_heads_that_do_not_divide_are_named_with_what_does() -> None:
    message = r"layers\.\*\.attn\.q: 4 heads do not divide over tp=3; try tp in 1, 2, 4"
    with pytest.raises(PlanError, match=message):
        plan(Mesh.of(tp=3))


def test_a_batch_that_does_not_divide_is_named() -> None:
    with pytest.raises(PlanError, match=r"batch of 2 does not divide by dp=3.*--batch 3"):
        plan(Mesh.of(dp=3))


def test_a_mesh_dim_that_is_not_planned_is_named() -> None:
    with pytest.raises(PlanError, match=r"mesh dim pp=2: only tp and dp are planned"):
        plan(Mesh.of(pp=2, tp=2))


def test_a_plan_survives_json() -> None:
    for mesh in (Mesh.of(tp=2), Mesh.of(dp=2, tp=2), Mesh.of(dp=2)):
        made = plan(mesh)
        assert from_json(to_json(made)) == made


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"format": 1', '"format": 9', "plan format 9, expected 1"),
        ('"style": "row"', '"style": "diagonal"', "unknown style 'diagonal'"),
        ('"tp": "tp"', '"tensor": "tp"', "not a plan"),
    ],
)
def test_a_damaged_plan_is_refused(old: str, new: str, message: str) -> None:
    text = to_json(plan(Mesh.of(tp=2)))
    assert old in text
    with pytest.raises(ValueError, match=message):
        from_json(text.replace(old, new, 1))


def test_the_table_has_a_row_for_each_module() -> None:
    rows = {row[0]: row for row in table(plan(Mesh.of(dp=2, tp=2)))}
    assert rows["layers.*.attn.o"][2:] == ("row", "weight S(0)@dp S(1)@tp", "S(-1) -> R")
    assert rows["embed"][2] == "vocab"


@pytest.fixture(scope="module")
def made() -> Synthesis:
    return synthesize(Asked(PROGRAM, Mesh.of(dp=2, tp=2), scarce(13e3)))


def test_memory_is_divided_by_the_ranks_that_split_it(made: Synthesis) -> None:
    """Every weight splits over dp and tp; norms, biases of row layers only over dp."""
    estimates = made.plan.estimates
    before, after = (estimates[f"{when}_parameters"] for when in ("before", "after"))
    small = 8 * sum(
        item.type.size
        for item in made.sequential.inputs
        if item.role == "param" and "tp" not in made.lowered.contract.inputs[item.name].sharded
    )
    assert before == 8 * sum(i.type.size for i in made.sequential.inputs if i.role == "param")
    assert after == pytest.approx((before - small) / 4 + small / 2)
    assert estimates["after_gradients"] == after
    assert estimates["after_optimizer"] == 2 * after
    assert estimates["after_activations"] < estimates["before_activations"]
    parts = ("parameters", "gradients", "optimizer", "activations")
    total = sum(estimates[f"after_{part}"] for part in parts)
    assert estimates["memory_bytes_after"] == total


def test_collectives_say_where_when_and_why(made: Synthesis) -> None:
    uses = made.plan.collectives
    assert {u.phase for u in uses} == {"forward", "backward"}
    assert all(u.reason and u.count and u.bytes for u in uses)
    assert made.plan.estimates["comm_bytes"] == sum(u.bytes * u.count for u in uses)
    gradients = [u for u in uses if u.mesh_dim == "dp" and u.op == "reduce_scatter"]
    assert all(u.phase == "backward" for u in gradients)
    forward = {(u.op, u.where) for u in uses if u.mesh_dim == "tp" and u.phase == "forward"}
    assert ("reduce_scatter", "layers.*.attn.o") in forward
    assert ("reduce_scatter", "layers.*.mlp.down") in forward


def test_one_head_alone_does_not_speak_against_a_mesh() -> None:
    check_heads([Module("out", "Linear", "linear", heads=1)], "tp", 2)
    with pytest.raises(PlanError, match="3 heads do not divide"):
        check_heads([Module("out", "Linear", "linear", heads=3)], "tp", 2)


def test_heads_that_do_not_divide_stay_whole_where_half_of_the_model_is_split_besides() -> None:
    heads = Module("attn", "Linear", "linear", heads=3)
    heads.params.append(Param("w", "attn.weight", (12, 12), False))
    wide = Module("up", "Linear", "linear")
    wide.params.append(Param("u", "up.weight", (16, 12), False))
    check_heads([heads, wide], "tp", 2)
    with pytest.raises(PlanError, match="3 heads do not divide"):
        check_heads([heads, replace(heads, path="other"), wide], "tp", 2)
