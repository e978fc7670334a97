"""Small spaces that can be searched one plan after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from shardproof.synthesis.hardware import load
from shardproof.synthesis.price.constants import Machine, constants_of
from shardproof.synthesis.price.model import read_model
from shardproof.synthesis.price.plan import Plan
from shardproof.synthesis.strategy.space import Space

DENSE: dict[str, Any] = {
    "layers": 6, "hidden": 1024, "heads": 12, "kv_heads": 4, "ffn": 4096, "vocab": 32000,
    "head_dim": 128,
}  # fmt: skip
EXPERTS = {**DENSE, "experts": 4, "experts_active": 2, "moe_ffn": 2048, "shared_experts": 1}
LLAMA_8B: dict[str, Any] = {
    "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256,
}  # fmt: skip


def space(
    table: dict[str, Any], gpus: int, batch: int, memory: float = 80e9, seq: int = 2048
) -> Space:
    cluster = load("h100")
    cluster = replace(cluster, device=replace(cluster.device, memory_bytes=memory))
    machine = Machine(cluster, constants_of("h100", "default"))
    return Space(machine, read_model(table), gpus, batch, seq)


def every(whole: Space) -> Iterator[Plan]:
    for region in whole.regions:
        for recompute in whole.recomputes():
            for zero in whole.zeros(region):
                for schedule in whole.schedules(region, recompute):
                    yield whole.plan(region, recompute, zero, schedule)
