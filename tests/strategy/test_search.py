"""The search finds what pricing every plan finds; its certificate says so and cannot be altered."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardproof.synthesis.price.step import price
from shardproof.synthesis.strategy.certificate import certificate
from shardproof.synthesis.strategy.check import refusal
from shardproof.synthesis.strategy.search import Search
from shardproof.synthesis.strategy.space import Space, divisors, fitted
from tests.strategy.models import DENSE, EXPERTS, LLAMA_8B, every, space

SPACES = {
    "dense": space(DENSE, 8, 16),
    "little memory": space(DENSE, 8, 16, memory=4.5e9),
    "heads that do not divide": space({**DENSE, "heads": 9, "kv_heads": 3}, 16, 16, memory=4e9),
    "layers that do not divide": space({**DENSE, "layers": 7}, 8, 16, memory=5e9),
    "experts": space(EXPERTS, 8, 16, memory=5e9),
    "a prime": space(DENSE, 7, 7),
    "only patches": replace(space(DENSE, 8, 16), reach="patch"),
    "whole steps": replace(space(DENSE, 8, 16), reach="step"),
    "degrees fixed": replace(space(DENSE, 8, 16), fixed=(("tp", 2), ("zero", 1))),
    "the rest fixed": replace(
        space(EXPERTS, 8, 16, memory=9e9), fixed=(("recompute", "full"), ("vp", 3))
    ),
    "groups fixed": replace(space(DENSE, 8, 16), fixed=(("zero", 3), ("shard", 2))),
    "a schedule fixed": replace(space(DENSE, 8, 16), fixed=(("schedule", "zb-1p"), ("cp", 1))),
}


def brute(whole: Space) -> list[tuple[float, bool]]:
    """Seconds of every plan, and whether it fits."""
    found = (price(whole.machine, fitted(whole.model, p.tp), p) for p in every(whole))
    return [(p.step_s, p.fits) for p in found]


@pytest.mark.parametrize("name", SPACES)
def test_first_plan_is_the_best_of_all(name: str) -> None:
    whole = SPACES[name]
    prices = brute(whole)
    best = next(Search(whole).plans())
    assert best.step_s == pytest.approx(min(step for step, fits in prices if fits), rel=1e-12)
    assert len(prices) == whole.count()


@pytest.mark.parametrize("name", ["little memory", "experts", "a prime"])
def test_plans_come_in_order_and_are_each_the_best_of_their_region(name: str) -> None:
    whole = SPACES[name]
    search = Search(whole)
    ranked = list(search.plans())
    assert [f.step_s for f in ranked] == sorted(f.step_s for f in ranked)
    best: dict[tuple[int, ...], float] = {}
    for plan in every(whole):
        found = price(whole.machine, fitted(whole.model, plan.tp), plan)
        key = plan.tp, plan.cp, plan.ep, plan.pp, plan.dp, plan.micro_batch
        if found.fits:
            best[key] = min(found.step_s, best.get(key, found.step_s))
    assert {tuple(r) for r in search.opened} == set(best)
    assert all(f.step_s == pytest.approx(best[tuple(f.region)], rel=1e-12) for f in ranked)
    assert not search.slower
    assert {tuple(r) for r in search.too_large} | set(best) == {tuple(r) for r in whole.regions}


@pytest.mark.parametrize("name", [n for n, s in SPACES.items() if s.reach == "all"])
def test_no_bound_exceeds_a_plan_of_its_region(name: str) -> None:
    whole = SPACES[name]
    search = Search(whole)
    next(search.plans())
    for plan in every(whole):
        region = (plan.tp, plan.cp, plan.ep, plan.pp, plan.dp, plan.micro_batch)
        bound = next((b for r, b in search.slower.items() if tuple(r) == region), 0.0)
        step = price(whole.machine, fitted(whole.model, plan.tp), plan).step_s
        assert bound <= step * (1 + 1e-12)


def proof(whole: Space) -> dict[str, Any]:
    search = Search(whole)
    return json.loads(json.dumps(certificate(search, next(search.plans()))))


@pytest.mark.parametrize("name", [n for n, s in SPACES.items() if s.reach == "all"])
def test_certificate_is_accepted(name: str) -> None:
    assert refusal(proof(SPACES[name])) == ""


def slower_best(data: dict[str, Any]) -> None:
    data["best"]["plan"]["recompute"] = "full"


def claimed_too_high(data: dict[str, Any]) -> None:
    data["best"]["step_s"] *= 1.01


def claimed_too_low(data: dict[str, Any]) -> None:
    data["best"]["step_s"] *= 0.99


def forgotten_degrees(data: dict[str, Any]) -> None:
    data["slower"].pop()


def forgotten_region(data: dict[str, Any]) -> None:
    data["opened"].pop()


def bound_too_high(data: dict[str, Any]) -> None:
    data["slower"][0][5] *= 2


def bound_below_the_best(data: dict[str, Any]) -> None:
    data["slower"][0][5] = data["best"]["step_s"] * 0.9


def not_too_large(data: dict[str, Any]) -> None:
    *region, _ = data["opened"].pop()
    data["too_large"].append([*region, 1e12])


def outside_the_space(data: dict[str, Any]) -> None:
    data["too_large"].append([3, 1, 1, 1, 1, 1, 1e12])


def less_memory(data: dict[str, Any]) -> None:
    data["space"]["machine"]["cluster"]["device"]["memory_bytes"] *= 0.5


def other_model(data: dict[str, Any]) -> None:
    data["space"]["model"]["layers"] += 1


def more_fixed(data: dict[str, Any]) -> None:
    data["space"]["fixed"]["zero"] = 0 if data["best"]["plan"]["zero"] else 1


def no_format(data: dict[str, Any]) -> None:
    del data["format"]


@pytest.mark.parametrize(
    "alter",
    [
        slower_best, claimed_too_high, claimed_too_low, forgotten_degrees, forgotten_region,
        bound_too_high, bound_below_the_best, not_too_large, outside_the_space, less_memory,
        other_model, more_fixed, no_format,
    ],
)  # fmt: skip
def test_altered_certificate_is_refused(alter: Callable[[dict[str, Any]], None]) -> None:
    data = proof(SPACES["little memory"])
    altered = copy.deepcopy(data)
    alter(altered)
    assert altered != data
    assert refusal(altered)


def test_the_checker_alone_exits_as_it_finds(tmp_path: Path) -> None:
    path, data = tmp_path / "strategy.json", copy.deepcopy(proof(SPACES["groups fixed"]))
    for share, code, said in ((2, 0, "accepted"), (4, 1, "the best plan is not in the space")):
        data["space"]["fixed"]["shard"] = share
        path.write_text(json.dumps({"certificate": data}))
        command = [sys.executable, "-m", "shardproof.synthesis.strategy.check", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.strip()) == (code, said)


@pytest.mark.parametrize("name", [n for n in SPACES if SPACES[n].fixed])
def test_what_is_fixed_leaves_the_plans_that_have_it(name: str) -> None:
    whole = SPACES[name]
    names = {"vp": "chunks"}
    held = [
        plan
        for plan in every(replace(whole, fixed=()))
        if all(getattr(plan, names.get(key, key)) == value for key, value in whole.fixed)
    ]
    assert held
    assert set(every(whole)) == set(held)


def test_degrees_cover_every_device() -> None:
    whole = space(LLAMA_8B, 48, 96)
    assert whole.regions
    assert all(r.tp * r.cp * r.pp * r.dp == 48 for r in whole.regions)
    assert len(set(whole.regions)) == len(whole.regions)


def test_divisors() -> None:
    assert divisors(1) == (1,)
    assert divisors(36) == (1, 2, 3, 4, 6, 9, 12, 18, 36)


def test_405b_on_16384_devices_takes_seconds() -> None:
    table = {**LLAMA_8B, "layers": 126, "hidden": 16384, "heads": 128, "ffn": 53248}
    began = time.process_time()
    whole = space(table, 16384, 2048, seq=8192)
    best = next(Search(whole).plans())
    assert time.process_time() - began < 10
    published = whole.plan(next(r for r in whole.regions if r.degrees == (8, 1, 1, 16, 128)))
    assert best.step_s < price(whole.machine, whole.model, published).step_s
