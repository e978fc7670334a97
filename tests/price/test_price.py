"""Prices move as the formulas say, memory adds up by kind, and bad rows are named."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from shardproof.synthesis.hardware import load, shipped
from shardproof.synthesis.price.compute import Group, bandwidth, ring
from shardproof.synthesis.price.constants import (
    BOUNDS,
    Constants,
    Machine,
    constants_of,
    device_of,
    link_speed,
    overlay,
    stack_of,
    stacks,
)
from shardproof.synthesis.price.memory import Memory, in_flight
from shardproof.synthesis.price.model import Model, read_model
from shardproof.synthesis.price.plan import Plan, read_plan
from shardproof.synthesis.price.reading import PriceError
from shardproof.synthesis.price.rows import read_row
from shardproof.synthesis.price.step import Price, price
from shardproof.synthesis.strategy.answers import answer, answers

LLAMA: dict[str, Any] = {
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "ffn": 14336,
    "vocab": 128256,
    "seq": 8192,
    "mlp": "swiglu",
}
MIXTRAL = {**LLAMA, "vocab": 32000, "experts": 8, "experts_active": 2, "moe_ffn": 14336}
PLAN: dict[str, Any] = {
    "n_gpus": 8,
    "micro_batch": 1,
    "global_batch": 8,
    "zero": 0,
    "recompute": "none",
}
CONSTANTS = Constants()


def priced(model: dict[str, Any] = LLAMA, hardware: str = "h100", **plan: Any) -> Price:
    machine, shape, read = read_row(
        {"model": model, "hardware": hardware, "plan": {**PLAN, **plan}}, {}
    )
    return price(machine, shape, read)


def row(**changes: Any) -> dict[str, Any]:
    return {"id": "x", "model": LLAMA, "hardware": "h100", "plan": PLAN, **changes}


def test_parameters_are_those_of_published_models() -> None:
    assert read_model(LLAMA).parameters == pytest.approx(8.03e9, rel=0.002)
    assert read_model(MIXTRAL).parameters == pytest.approx(46.7e9, rel=0.002)
    small = {"layers": 48, "hidden": 1600, "heads": 25, "vocab": 50257, "mlp": "gelu"}
    assert read_model({**small, "tied_embeddings": True}).parameters == pytest.approx(
        1.55e9, rel=0.01
    )
    latent = {
        "layers": 61,
        "hidden": 7168,
        "heads": 128,
        "vocab": 129280,
        "attention": "MLA",
        "ffn": 18432,
        "experts": 256,
        "experts_active": 8,
        "moe_ffn": 2048,
        "shared_experts": 1,
        "dense_layers": 3,
    }
    assert read_model(latent).parameters == pytest.approx(671e9, rel=0.01)
    assert read_model(latent).active == pytest.approx(37e9, rel=0.03)


def test_flops_are_six_a_parameter_and_token_and_half_of_the_scores() -> None:
    model = read_model(LLAMA)
    scores = 6 * 32 * 8192 * 4096
    assert model.flops(8192) == pytest.approx(6 * (8.03e9 - 128256 * 4096) + scores, rel=0.002)


def test_a_shape_follows_from_the_number_of_parameters() -> None:
    model = read_model({"params_b": 34, "seq": 4096})
    assert model.parameters == pytest.approx(34e9, rel=0.1)
    assert any("params_b" in said for said in model.assumed)


def test_memory_adds_up_by_kind() -> None:
    found = priced(zero=1, tp=2).memory
    names = list(Memory.__dataclass_fields__)
    assert found.total == pytest.approx(sum(getattr(found, name) for name in names))
    assert found.largest in names
    assert all(getattr(found, name) >= 0 for name in names)


@pytest.mark.parametrize("kind", ["parameters", "gradients", "optimizer"])
def test_states_shrink_with_the_zero_stage(kind: str) -> None:
    stages = [getattr(priced(zero=stage).memory, kind) for stage in range(4)]
    assert stages == sorted(stages, reverse=True)
    assert stages[3] == pytest.approx(stages[0] / 8, rel=0.01)


def test_what_does_not_fit_is_said_by_kind() -> None:
    found = answer(row(plan={**PLAN, "tp": 1, "zero": 0}), {})
    assert found["does_not_fit"] == "optimizer"
    assert "does_not_fit" not in answer(row(plan={**PLAN, "zero": 3, "recompute": "full"}), {})


def test_recomputation_costs_time_and_saves_memory() -> None:
    none, full = priced(recompute="none"), priced(recompute="full")
    assert full.memory.activations < none.memory.activations / 4
    assert 1.1 < full.step_s / none.step_s < 1.45


def test_a_later_release_of_a_stack_is_faster_and_an_unnamed_one_is_the_middle() -> None:
    rows = [row(stack="megatron", plan={**PLAN, "release": r}) for r in ("25.09", "", "26.04.01")]
    old, unnamed, new = (answer(r, {})["step_s"] for r in rows)
    assert old > unnamed > new > 0.9 * old


def test_what_is_left_open_is_the_least_that_fits() -> None:
    plan = {k: v for k, v in PLAN.items() if k not in ("zero", "recompute")}
    machine, shape, read = read_row(row(plan=plan), {})
    assert set(read.open) == {"zero", "recompute"}
    assert price(machine, shape, read).fits
    assert not priced().fits


def test_a_row_without_degrees_takes_the_fastest_that_fit() -> None:
    free = {"n_gpus": 64, "seq": 131072, "global_batch": 64}
    alone, stated = (
        answer(row(plan={**free, **more}), {})
        for more in ({}, {"dp": 64, "zero": 3, "recompute": "full"})
    )
    assert stated["does_not_fit"] == "activations"
    assert "does_not_fit" not in alone
    assert alone["step_s"] > 0
    assert "tp" in alone["assumed"][-1] or "cp" in alone["assumed"][-1]
    wide = answer(row(plan={**free, "n_gpus": 2, "global_batch": 3}), {})
    assert wide["does_not_fit"]
    assert "each layer computed again" in wide["assumed"][-1]
    assert (
        "no degrees" in answer(row(plan={**free, "n_gpus": 7919, "global_batch": 3}), {})["error"]
    )
    again = answer(row(plan={**free, "cp": 1, "recompute": "full"}), {})
    assert "cp" not in again["assumed"][-1]
    assert "computed again" in again["assumed"][-1]


@given(
    st.sampled_from([1, 2, 4, 8, 16, 32]),
    st.sampled_from([2, 4, 8]),
    st.sampled_from(["1f1b", "zb-1p", "gpipe"]),
)
@settings(max_examples=25, deadline=None)
def test_more_micro_batches_lower_the_bubble(m: int, pp: int, schedule: str) -> None:
    plan: dict[str, Any] = {"pp": pp, "schedule": schedule}
    few = priced(n_gpus=pp, global_batch=m, **plan)
    many = priced(n_gpus=pp, global_batch=2 * m, **plan)
    assert many.bubble < few.bubble < 1
    assert many.step_s > few.step_s
    assert many.mfu > few.mfu


@given(st.sampled_from([2, 4, 8]), st.sampled_from([2, 4]))
@settings(max_examples=10, deadline=None)
def test_interleaving_and_zero_bubble_lower_the_bubble(pp: int, chunks: int) -> None:
    plain = priced(n_gpus=pp, pp=pp, global_batch=16)
    interleaved = priced(n_gpus=pp, pp=pp, vp=chunks, global_batch=16)
    assert interleaved.bubble < plain.bubble
    assert interleaved.memory.activations > plain.memory.activations
    assert priced(n_gpus=pp, pp=pp, schedule="zb-2p").bubble == 0


def test_the_bubble_of_equal_stages_is_the_published_one() -> None:
    shape = {**LLAMA, "vocab": 16}
    found = priced(shape, n_gpus=4, pp=4, global_batch=12)
    assert found.bubble == pytest.approx(3 / 15, rel=0.1)


@given(st.sampled_from(["h100", "a100", "b200"]), st.integers(1, 6), st.booleans())
@settings(max_examples=25, deadline=None)
def test_prices_are_finite_and_below_peak(hardware: str, power: int, moe: bool) -> None:
    found = priced(MIXTRAL if moe else LLAMA, hardware, n_gpus=2**power, global_batch=64, zero=3)
    assert 0 < found.mfu < 1
    assert 0 <= found.exposed_comm_s < found.step_s
    assert math.isfinite(found.memory.total)


def test_rings_between_nodes_are_slower_and_share_links() -> None:
    machine = Machine(load("h100"), CONSTANTS)
    assert bandwidth(machine, Group(8)) > bandwidth(machine, Group(16))
    assert bandwidth(machine, Group(16)) > bandwidth(machine, Group(2, 8))
    assert ring(machine, Group(1), 1e9) == 0
    assert ring(machine, Group(4), 2e9) > ring(machine, Group(4), 1e9)


def test_micro_batches_in_flight_are_those_of_the_schedule() -> None:
    plan = read_plan({**PLAN, "n_gpus": 4, "pp": 4, "global_batch": 16}, read_model(LLAMA))
    assert in_flight(plan) == 4
    assert in_flight(replace(plan, micro_batches=2)) == 2
    assert in_flight(replace(plan, schedule="zb-2p")) == 7
    assert in_flight(replace(plan, chunks=2)) == pytest.approx(4 * (1 + 3 / 8))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hardware": "tpu-v9"}, "unknown hardware 'tpu-v9'"),
        ({"hardware": None}, "hardware is missing"),
        ({"model": "nobody"}, "unknown model 'nobody'"),
        ({"model": {k: v for k, v in LLAMA.items() if k != "hidden"}}, "hidden of the model is"),
        ({"model": {**LLAMA, "heads": 33}}, "heads 33 is not divisible by kv_heads 8"),
        ({"model": {**MIXTRAL, "experts_active": None}}, "experts_active is missing"),
        ({"model": {**LLAMA, "layers": -2}}, "layers is -2, expected 0 to 1e+12"),
        ({"model": {**LLAMA, "layers": 2.5}}, "layers is 2.5, expected a whole number"),
        ({"plan": None}, "plan is missing"),
        ({"plan": [1]}, "plan is not a table"),
        ({"plan": {**PLAN, "n_gpus": None}}, "n_gpus of the plan is missing"),
        ({"plan": {**PLAN, "tp": 3}}, "n_gpus 8 is not divisible by tp 3"),
        ({"plan": {**PLAN, "tp": 0}}, "tp is 0, expected at least 1"),
        ({"plan": {**PLAN, "dp": 2, "tp": 2}}, "dp 2 x tp 2 x pp 1 x cp 1 is not n_gpus 8"),
        ({"plan": {**PLAN, "global_batch": 9}}, "global_batch 9 is not divisible by dp 8"),
        ({"plan": {**PLAN, "n_gpus": 64, "pp": 64}}, "pp 64 exceeds the 32 layers"),
        ({"plan": {**PLAN, "ep": 2}}, "ep is 2, and the model has no experts"),
        ({"plan": {**PLAN, "zero": 7}}, "zero is 7, expected 0, 1, 2 or 3"),
        ({"plan": {**PLAN, "schedule": "wild"}}, "schedule is 'wild', expected one of"),
        ({"plan": {**PLAN, "seq": 4095, "cp": 2}}, "seq 4095 is not divisible by cp 2"),
    ],
)
def test_what_is_wrong_with_a_row_is_named(change: dict[str, Any], says: str) -> None:
    found = answer({**row(), **change}, {})
    assert set(found) == {"id", "error"}
    assert says in found["error"]


def test_lines_that_are_no_rows_are_errors_of_their_own() -> None:
    found = list(answers(["{", "", "[1]", json.dumps(row())], {}))
    assert [("error" in line) for line in found] == [True, True, False]
    assert "line 1" in found[0]["error"]
    assert "line 3: not an object" in found[1]["error"]


VALUES = st.one_of(
    *(st.none(), st.booleans(), st.integers(-3, 9), st.floats(), st.text(max_size=8)),
    st.lists(st.integers(), max_size=2),
    st.integers(10**11, 10**20),
)


def test_a_digit_that_is_no_number_is_no_zero_stage() -> None:
    found = answer(row(model=LLAMA, plan={**PLAN, "zero": "\N{SUPERSCRIPT TWO}"}), {})
    assert "error" in found or found["step_s"] > 0


@given(
    st.dictionaries(st.sampled_from(sorted(LLAMA)), VALUES, max_size=3),
    st.dictionaries(
        st.sampled_from(["tp", "pp", "cp", "vp", "dp", "seq", "zero", "recompute", *PLAN]),
        VALUES,
        max_size=4,
    ),
)
@settings(max_examples=60, deadline=None)
def test_no_row_is_answered_by_a_traceback(model: dict[str, Any], plan: dict[str, Any]) -> None:
    found = answer(row(model={**LLAMA, **model}, plan={**PLAN, **plan}), {})
    assert "error" in found or found["step_s"] > 0
    json.dumps(found)


@pytest.mark.parametrize("device", shipped())
def test_constants_of_every_device_and_stack_are_in_bounds(device: str) -> None:
    for stack in stacks():
        found = constants_of(device, stack)
        assert all(low <= getattr(found, n) <= high for n, (low, high) in BOUNDS.items())
    assert set(BOUNDS) == set(Constants.__dataclass_fields__)


def test_a_constant_out_of_bounds_is_refused() -> None:
    with pytest.raises(PriceError, match="gemm is 2"):
        overlay(CONSTANTS, {"gemm": 2}, "here")
    with pytest.raises(PriceError, match="unknown constant"):
        overlay(CONSTANTS, {"gem": 1}, "here")


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("h100 80gb sxm", "h100"),
        ("a100 40gb", "a100-40"),
        ("a100-sxm4 80gb", "a100"),
        ("dgx-gb200", "gb200"),
        ("tpu v4", None),
    ],
)
def test_devices_are_found_in_words(text: str, device: str | None) -> None:
    assert device_of(text) == device


def test_links_and_stacks_are_found_in_words() -> None:
    assert link_speed("8x200 Gb/s HDR InfiniBand per node", 8) == 25e9
    assert link_speed("400 Gb/s RDMA per GPU", 8) == 50e9
    assert link_speed("IB 50 GB/s per GPU", 8) == 50e9
    assert link_speed("not stated", 8) is None
    assert stack_of("", "H100-nanotron") == "nanotron"
    assert stack_of("nobody knows") == "default"


def test_hardware_of_a_table_has_the_memory_and_links_that_it_states() -> None:
    known = {"hardware": {"ours": {"gpu": "H100 96GB HBM2e 2.4 TB/s", "inter": "100 Gb/s per GPU"}}}
    machine, _, _ = read_row(row(hardware="ours"), known)
    assert machine.cluster.device.memory_bytes == 96e9
    assert machine.cluster.device.memory_bandwidth == 2.4e12
    assert machine.cluster.network.bandwidth == 12.5e9


def test_types_are_what_the_package_says() -> None:
    machine, model, plan = read_row(row(), {})
    assert isinstance(machine, Machine)
    assert isinstance(model, Model)
    assert isinstance(plan, Plan)
