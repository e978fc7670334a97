"""`python -m benchmarks.device.page`: what one GPU did, from the committed rows.

Rows are what `benchmarks.device.kernels`, `rank` and `patches` print.
"""

# pyright: basic

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shardproof.synthesis.hardware import Link, load
from shardproof.synthesis.price.compute import head, layer, matmul
from shardproof.synthesis.price.constants import Machine, constants_of
from shardproof.synthesis.price.memory import memory
from shardproof.synthesis.price.model import Model, read_model
from shardproof.synthesis.price.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "device.jsonl"
TABLE = RESULTS.with_suffix(".md")
HEAD = """# Patches on a GPU

Written by `python -m benchmarks.device.page`; do not edit.

"""
DEVICE, RANKS = "h200", 8
CONFIGS = {"8b": "llama3-8b", "8bdp": "llama3-8b", "70b": "llama3-70b", "mixtral": "mixtral-8x7b"}


def model_of(name: str) -> Model:
    d = json.loads((ROOT / "examples" / f"{CONFIGS[name]}.json").read_text("utf-8"))
    table = {
        "layers": d["num_hidden_layers"], "hidden": d["hidden_size"], "mlp": "swiglu",
        "heads": d["num_attention_heads"], "kv_heads": d["num_key_value_heads"],
        "ffn": d["intermediate_size"], "vocab": d["vocab_size"],
    }  # fmt: skip
    if "num_local_experts" in d:
        table |= {"experts": d["num_local_experts"], "top_k": d["num_experts_per_tok"]}
        table |= {"moe_ffn": d["intermediate_size"]}
    return read_model(table)


def foretold(row: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds of a step whose exchange takes none, and peak bytes beside parameters: what is kept
    for backward, or gradients, where these are more."""
    batch, seq = map(int, row["tokens"].split("x"))
    tp = RANKS if row["mesh"].startswith("tp") else 1
    model, dp = model_of(row["model"]), RANKS // tp
    plan = Plan(
        gpus=RANKS, dp=dp, tp=tp, pp=1, cp=1, ep=tp if model.experts else 1, micro_batch=batch,
        micro_batches=1, seq=seq, chunks=1, schedule="1f1b", zero=3 if dp > 1 else 0, shard=dp,
        sequence_parallel=tp > 1, recompute="none", precision="bf16", async_tp=False,
        trained=True, flash=None,
    )  # fmt: skip
    free = Link(1e18, 0.0)
    cluster = replace(load(DEVICE), node=free, network=free)
    machine = Machine(cluster, constants_of(DEVICE, "patched"))
    used = memory(machine, model, plan)
    step = model.layers * layer(machine, model, plan, moe=bool(model.experts)).total
    step += head(machine, model, plan)
    return step, max(used.activations + used.logits + used.transient, row["gradients"])


def kernels(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Products, attention and chains, as shares of what the device can do."""
    cluster = load(DEVICE)
    peak, copied = cluster.device.flops["bf16"], next(r for r in rows if r["kind"] == "copy")
    speed = copied["bytes"] / copied["seconds"]
    products = [r for r in rows if r["kind"] == "product"]
    machine = Machine(cluster, constants_of(DEVICE, "patched"))
    told = [matmul(machine, r["m"], r["k"], r["n"], "bf16") / r["seconds"] for r in products]
    off = statistics.mean(abs(t - 1) for t in told)
    lines = ["| kernel | runs at |", "|---|---|", f"| copy | {speed / 1e12:.2f} TB/s |"]
    for m in sorted({r["m"] for r in products}):
        of = [2 * m * r["k"] * r["n"] / r["seconds"] / peak for r in products if r["m"] == m]
        lines.append(f"| products of {m:,} rows | {_span(of)} of the bf16 peak |")
    for seq in sorted({r["seq"] for r in rows if r["kind"] == "attention"}):
        of = [r for r in rows if r["kind"] == "attention" and r["seq"] == seq]
        work = [2 * r["heads"] * seq**2 * r["head_dim"] / peak for r in of]
        first = _span([w / r["seconds"] for w, r in zip(work, of, strict=True)])
        back = _span([2.5 * w / r["backward"] for w, r in zip(work, of, strict=True)])
        lines.append(f"| causal attention, {seq:,} tokens | {first}, backward {back} |")
    for name in ("gated", "norm"):
        of = [r for r in rows if r["kind"] == "chain" and r["name"] == name]
        fused = _span([r["bytes"] / r["seconds"] / speed for r in of])
        eager = _span([r["bytes"] / r["eager"] / speed for r in of])
        lines.append(f"| {name}, one read and write | {fused} of the copy, eager {eager} |")
    said = f"The formula for products is off by {off:.0%} on the mean of {len(products)} shapes."
    return [*lines, "", said]


def _span(shares: Sequence[float]) -> str:
    return f"{min(shares):.0%} to {max(shares):.0%}"


def ranks(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = ["| model | mesh | tokens | step s | priced | beside parameters GB | priced |"]
    lines.append("|---|---|---|---|---|---|---|")
    for r in rows:
        step, beside = foretold(r)
        cells = [CONFIGS[r["model"]], r["mesh"], r["tokens"].replace("x", " x ")]
        cells += [f"{r['seconds']:.2f}", f"{step:.2f}"]
        cells += [f"{(r['peak'] - r['parameters']) / 1e9:.1f}", f"{beside / 1e9:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def text() -> str:
    rows = [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()]
    card = next(r for r in rows if r["kind"] == "device")
    patches = [r for r in rows if r["kind"] == "patch"]
    worst = max(r["difference"] for r in patches)
    said = (
        f"On NCCL, ranks sharing the card, {len(patches)} patches compute what one process does: "
        f"{', '.join(r['patch'].replace('_', ' ') for r in patches)}; in float64 the largest "
        f"relative difference is {worst:.1e}."
    )
    parts = [
        f"One {card['name']}, PyTorch {card['torch']}.",
        "",
        *ranks([r for r in rows if r["kind"] == "rank"]),
        "",
        *kernels(rows),
        "",
        said,
    ]
    return "\n".join(parts) + "\n"


def main() -> None:
    TABLE.write_text(HEAD + text(), "utf-8")


if __name__ == "__main__":
    main()
