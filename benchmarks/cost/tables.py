"""Published measurements, and what each row says of one training step."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from shardproof.synthesis.hardware import Cluster
from shardproof.synthesis.price.constants import Constants, find, stack_of
from shardproof.synthesis.price.model import Model
from shardproof.synthesis.price.plan import Plan
from shardproof.synthesis.price.reading import PriceError
from shardproof.synthesis.price.rows import read_row

FOLDER = Path(__file__).parents[1] / "tables"


@cache
def groups() -> dict[str, Any]:
    """Models, hardware and groups by name."""
    return json.loads((FOLDER / "groups.json").read_text("utf-8"))


def rows() -> Iterator[dict[str, Any]]:
    """Every row as its source has it: id, group, model, hardware, plan, status, measured."""
    for line in (FOLDER / "measured.jsonl").read_text("utf-8").splitlines():
        table = json.loads(line)
        for values in table["rows"]:
            flat = {**table["same"], **dict(zip(table["columns"], values, strict=True))}
            yield _row(table["group"], {k: v for k, v in flat.items() if v is not None})


def _row(group: str, flat: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"group": group, "plan": {}, "measured": {}}
    for name, value in flat.items():
        part, _, key = name.rpartition(".")
        (row[part] if part else row)[key] = value
    return {**row, "id": f"{group}#{flat['id']}"}


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def seconds(row: dict[str, Any]) -> float | None:
    """Measured seconds of one optimizer step, or None."""
    plan = {key: _number(value) for key, value in row["plan"].items()}
    found = {key: _number(value) for key, value in row["measured"].items()}
    if found.get("iter_s"):
        return found["iter_s"]
    seq = plan.get("seq") or _number(groups()["models"].get(row["model"], {}).get("seq"))
    batch = plan.get("global_batch")
    if not batch and plan.get("micro_batch") and plan.get("dp"):
        count = plan.get("grad_acc") or plan.get("num_microbatches") or 1
        batch = plan["micro_batch"] * plan["dp"] * count
    gpus = plan.get("n_gpus")
    if not (seq and batch and gpus):
        return None
    if rate := found.get("tokens_per_s_per_gpu"):
        return seq * batch / (rate * gpus)
    if rate := found.get("samples_per_s_per_gpu"):
        return batch / (rate * gpus)
    return None


def device_bytes(row: dict[str, Any]) -> float | None:
    """Memory of the row's device, where its description says enough."""
    name = groups()["hardware"].get(row["hardware"], {}).get("gpu", "")
    if found := re.search(r"(\d+) ?GB", name):
        return float(found[1]) * 1e9
    return 80e9 if re.search("A100|H100|H800", name) else None


@dataclass(frozen=True)
class Measured:
    """A row that can be priced, and what was measured."""

    row: dict[str, Any]
    source: str
    device: str
    stack: str
    cluster: Cluster
    model: Model
    plan: Plan
    step_s: float | None
    memory: float | None


def measured() -> list[Measured]:
    """Rows that ran or ran out of memory, are not suspect, and can be priced."""
    out: list[Measured] = []
    for row in rows():
        if row.get("suspect") or row["status"] not in ("ok", "oom"):
            continue
        try:
            machine, model, plan = read_row(row, groups())
        except PriceError:
            continue
        source = groups()["groups"][row["group"]].get("source", "")
        precision = str(row["plan"].get("precision") or "").lower()
        device = find(row["hardware"], groups()["hardware"].get(row["hardware"], {}), precision)[0]
        stack = stack_of("", row["hardware"], str(row["plan"].get("system") or ""), source)
        took = seconds(row) if row["status"] == "ok" else None
        peak = _number(row["measured"].get("memory_gb")) if row["status"] == "ok" else None
        out.append(
            Measured(
                row, row["group"].split("-")[0], device, stack, machine.cluster, model, plan,
                took, peak * 1e9 if peak else None,
            )
        )  # fmt: skip
    return out


def plain(constants: Constants) -> dict[str, float]:
    """Constants by name."""
    return {name: getattr(constants, name) for name in Constants.__dataclass_fields__}
