"""The lowered program is proved and simulated equal, and holds the collectives an expert writes."""

from __future__ import annotations

from collections import Counter

import pytest

from shardproof.synthesis.lower import Choices, LoweringError, lower
from shardproof.synthesis.planner.cost import walk
from shardproof.synthesis.planner.scoring import Asked
from shardproof.synthesis.planner.search import Search, prepare
from shardproof.synthesis.planner.tactics import TACTICS
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Proof
from tests.synthesis import decoder

MESHES = (Mesh.of(tp=2), Mesh.of(tp=4), Mesh.of(dp=2), Mesh.of(dp=2, tp=2), Mesh.of(tp=2, dp=2))
KEPT = 2
"""Heads of keys and values, fewer than those of queries; as many are one mesh's in every run."""
SETTINGS = [
    pytest.param(kv, mesh, marks=[] if kv == KEPT or mesh == MESHES[0] else [pytest.mark.campaign])
    for kv in (4, KEPT)
    for mesh in MESHES
]


def seconds(state: Search, tactic: str, paid: bool = False) -> float:
    point = TACTICS[tactic](state.modules, state.mesh["tp"])
    first = state.price(point)
    return (state.price(point, "", first.lowered.moved) if paid else first).estimate.comm_s


@pytest.mark.parametrize(("kv", "mesh"), SETTINGS, ids=str)
@pytest.mark.parametrize("tactic", sorted(TACTICS))
def test_every_tactic_is_proved_and_simulates_equal(mesh: Mesh, tactic: str, kv: int) -> None:
    program = decoder.decoder(layers=2, kv=kv)
    state = prepare(Asked(program, mesh, decoder.CLUSTER))
    point = TACTICS[tactic](state.modules, mesh[state.tp] if state.tp else 1)
    first = state.price(point)
    for lowered in (first.lowered, state.price(point, "", first.lowered.moved).lowered):
        verdict = verify(Problem(program, lowered.program, lowered.contract))
        assert isinstance(verdict, Proof), verdict
        assert decoder.largest_difference(program, lowered, mesh) < 1e-12
    accepted = check(verdict.certificate, Problem(program, lowered.program, lowered.contract))
    assert isinstance(accepted, Accepted)


def test_a_lowering_that_goes_on_from_one_before_is_the_same() -> None:
    state = prepare(Asked(decoder.decoder(layers=2), Mesh.of(tp=2), decoder.CLUSTER))
    points = [TACTICS[name](state.modules, 2) for name in sorted(TACTICS)]
    for point in (*points, *points):
        again = state.price(point).lowered
        state.priced.clear()
        fresh = prepare(Asked(decoder.decoder(layers=2), Mesh.of(tp=2), decoder.CLUSTER))
        assert again.program == fresh.price(point).lowered.program
        assert again.contract == fresh.price(point).lowered.contract


def test_a_tied_embedding_is_proved() -> None:
    mesh = Mesh.of(dp=2, tp=2)
    program = decoder.decoder(layers=2, tied=True)
    state = prepare(Asked(program, mesh, decoder.CLUSTER))
    lowered = state.price(TACTICS["column_row"](state.modules, 2)).lowered
    assert isinstance(verify(Problem(program, lowered.program, lowered.contract)), Proof)
    assert decoder.largest_difference(program, lowered, mesh) < 1e-12


def collectives(tactic: str) -> Counter[tuple[str, str]]:
    """(op, `block` or `rest`) of the collectives on activations, by how often a step runs each."""
    mesh, layers = Mesh.of(tp=2), 3
    state = prepare(Asked(decoder.decoder(layers), mesh, decoder.CLUSTER))
    point = TACTICS[tactic](state.modules, 2)
    first = state.price(point)
    program = state.price(point, "", first.lowered.moved).lowered.program
    found: Counter[tuple[str, str]] = Counter()
    for holder, node, times, _ in walk(program):
        moves = node.op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
        if moves and holder.types[node.inputs[0]].size > decoder.VOCAB:
            found[node.op, "block" if times == layers else "rest"] += 1
    return found


def test_column_row_has_the_reductions_of_megatron() -> None:
    """Two a layer forward, two backward, and the first again where a block is computed anew."""
    found = collectives("column_row")
    assert {op for op, _ in found} == {"all_reduce"}
    assert found["all_reduce", "block"] == 2 + 1 + 2


def test_sequence_parallel_gathers_and_scatters_what_column_row_reduces() -> None:
    """Each all-reduce becomes a reduce-scatter and the gather of what the next product reads; the
    inputs of a layer's products are gathered once for all their gradients."""
    found = collectives("sequence_parallel")
    assert {op for op, place in found if place == "block"} == {"all_gather", "reduce_scatter"}
    assert found["reduce_scatter", "block"] == 2 + 1 + 2
    assert found["all_gather", "block"] == 2 + 2 + 2


def test_a_second_lowering_shares_the_moves_of_the_first() -> None:
    state = prepare(Asked(decoder.decoder(), Mesh.of(tp=2), decoder.CLUSTER))
    once, twice = (seconds(state, "sequence_parallel", paid) for paid in (False, True))
    assert twice <= once


def test_no_weight_is_moved_over_tp() -> None:
    state = prepare(Asked(decoder.decoder(), Mesh.of(tp=2), decoder.CLUSTER))
    program = state.price(TACTICS["sequence_parallel"](state.modules, 2)).lowered.program
    for holder, node in program.walk():
        if node.op in ("all_gather", "all_to_all", "shard_slice"):
            assert node.inputs[0] not in {i.name for i in holder.inputs if i.role == "param"}
            assert not node.inputs[0].endswith(".weight")


def test_a_carry_that_becomes_split_over_the_batch_starts_so() -> None:
    """What is made of parameters for each sample, and then read with the samples."""
    body = Builder("body")
    carry = body.input("carry", decoder.f64(2, 4, 8), "carry")
    seen = body.input("x", decoder.f64(2, 4, 8), "const")
    body.output(body.add("mul", body.add("add", carry, seen), seen), "carry", "carry")
    b = Builder("latents")
    x, latents = b.input("x", decoder.f64(2, 4, 8)), b.param("latents", decoder.f64(1, 4, 8))
    start = b.add("expand", latents, shape=(2, 4, 8))
    attrs = {"length": 2, "carry": 1, "xs": 0, "reverse": False}
    (y,) = b.add_node("scan", [start, x], dict(attrs), body=body.build())
    b.output(y, "output", "y")
    state = prepare(Asked(b.build(), Mesh.of(dp=2), decoder.CLUSTER))
    lowered = state.price(TACTICS["replicate"](state.modules, 1)).lowered
    assert lowered.contract.outputs["output:y"].sharded == {"dp"}
    scan = lowered.program.producers()[lowered.program.outputs[0].value]
    assert [n.op for n in scan.block.nodes] == ["add", "mul"]
    assert isinstance(verify(Problem(state.program, lowered.program, lowered.contract)), Proof)


def test_what_cannot_be_had_is_named() -> None:
    mesh = Mesh.of(tp=2)
    state = prepare(Asked(decoder.decoder(layers=2), mesh, decoder.CLUSTER))
    contract = state.price(TACTICS["column_row"](state.modules, 2)).lowered.contract
    pending = Layout((), (("tp", "max"),))
    choices = Choices(contract.inputs, {}, {"loss:loss": pending}, tp="tp")
    with pytest.raises(LoweringError, match=r"mul_scalar at toy.py:9.*loss:loss is not to be had"):
        lower(state.program, mesh, choices, state.prices)
