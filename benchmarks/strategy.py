"""Plans of whole clusters, against what was published for them: `python -m benchmarks.strategy`.

Each row is what `shardproof plan` chooses, the certificate checked, and beside it the published
configuration of that model and number of devices, under the same price.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardproof.agent.actions.models import Plan
from shardproof.agent.training.strategy import space_of
from shardproof.synthesis.frontends.torch.request import read_config_file
from shardproof.synthesis.price.plan import read_plan
from shardproof.synthesis.price.step import price
from shardproof.synthesis.strategy import words
from shardproof.synthesis.strategy.check import refusal
from shardproof.synthesis.strategy.choice import choose
from shardproof.synthesis.strategy.shape import of_config

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Case:
    """A model on a cluster, and the configuration that was published for it."""

    name: str
    wanted: Plan
    published: dict[str, Any]
    source: str

    @property
    def command(self) -> str:
        return " ".join(("shardproof", *self.wanted.words()))


def planned(config: str, target: str, gpus: int, **more: Any) -> Plan:
    return Plan(target=f"hf:{target}", config=(f"examples/{config}",), gpus=gpus, **more)


LLAMA = "LlamaForCausalLM"
CASES = (
    Case(
        "Llama 3 8B",
        planned("llama3-8b.json", LLAMA, 64, global_batch=96),
        {"tp": 8, "zero": 3, "micro_batch": 12, "recompute": "selective"},
        "torchtitan, asynchronous TP",
    ),
    Case(
        "Llama 3 70B",
        planned("llama3-70b.json", LLAMA, 512, global_batch=1024),
        {"tp": 8, "zero": 3, "micro_batch": 16, "recompute": "full"},
        "torchtitan, 256 devices and 512 sequences there",
    ),
    Case(
        "Llama 3 405B",
        planned("llama3-405b.json", LLAMA, 16384, global_batch=2048, seq=8192),
        {"tp": 8, "pp": 16, "zero": 1, "schedule": "interleaved", "vp": 4, "recompute": "none"},
        "arXiv 2407.21783, table 4; ZeRO and virtual stages as we read it",
    ),
    Case(
        "Mixtral 8x7B",
        planned("mixtral-8x7b.json", "MixtralForCausalLM", 64, global_batch=256, seq=4096),
        {"pp": 4, "vp": 8, "ep": 8, "zero": 1},
        "Megatron-Core's page on experts",
    ),
    Case(
        "DeepSeek-V3",
        planned(
            "deepseek-v3.json", "DeepseekV3ForCausalLM", 2048,
            hardware="h800", global_batch=15360, seq=4096, dtype="fp8",
        ),
        {"pp": 16, "ep": 64, "zero": 1, "schedule": "dualpipe"},
        "arXiv 2412.19437",
    ),
)  # fmt: skip


def row(case: Case) -> str:
    """One line of the table, and what led to it."""
    began = time.process_time()
    shape = of_config(
        read_config_file(str(ROOT / case.wanted.config[0])), case.wanted.target.removeprefix("hf:")
    )
    space, _ = space_of(shape, case.wanted, case.wanted.gpus)
    chosen = choose(space)
    spent = time.process_time() - began
    assert chosen.proof is not None
    checking = time.process_time()
    refused = refusal(chosen.proof)
    checked = time.process_time() - checking
    assert not refused, refused
    batch = {"n_gpus": space.gpus, "global_batch": space.global_batch, "seq": space.seq}
    stated = {"micro_batch": 1, "precision": space.precision, **batch, **case.published}
    theirs = read_plan(stated, space.model)
    published = price(space.machine, space.model, theirs)
    best, patch = chosen.best, chosen.emitted
    return (
        f"{case.command}\n"
        f"  {chosen.plans:,} plans, {spent:.1f} s of the processor; checked in {checked:.1f} s\n"
        f"  best: {words.short(best.plan)}: {best.step_s:.2f} s, MFU {best.price.mfu:.0%}, "
        f"{best.price.memory.total / 1e9:.0f} GB\n"
        f"  published ({case.source}): {words.short(theirs)}: {published.step_s:.2f} s, "
        f"MFU {published.mfu:.0%}, {published.memory.total / 1e9:.0f} GB, "
        f"{published.step_s / best.step_s - 1:+.1%}\n"
        + "".join(
            f"    {name}: {getattr(best.terms, key):.2f} s, published "
            f"{getattr(_terms(space, theirs), key):.2f} s\n"
            for key, name in words.TERMS.items()
        )
        + (
            f"  patch: {words.short(patch.plan)}: {patch.step_s:.2f} s, {chosen.gap:+.1%}"
            if patch
            else "  patch: none fits"
        )
    )


def _terms(space: Any, plan: Any) -> Any:
    from shardproof.synthesis.price.memory import settled
    from shardproof.synthesis.price.step import terms

    return terms(space.machine, space.model, settled(space.machine, space.model, plan))


if __name__ == "__main__":
    for case in CASES:
        print(row(case), flush=True)
