"""Predictions against measurements: errors, order, regret, memory.

Pairs count inside ranking groups where measurements differ by more than 10 % and the group's tie
band. Regret is 1 - throughput of the row that is predicted fastest over the best throughput.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.cost.tables import device_bytes, groups, seconds

Said = Mapping[str, Mapping[str, Any]]
"""Answers by row id."""


@dataclass(frozen=True)
class Score:
    ran: int
    """Rows with a measured time."""
    priced: float
    mape: float
    median: float
    """Of predicted over measured seconds."""
    pairs: int
    ordered: float
    regret: float
    out_precision: float
    out_recall: float
    out_rows: int
    memory_rows: int
    memory_mape: float

    def __str__(self) -> str:
        return (
            f"{self.ran} rows, {self.priced:.1%} priced; step time: MAPE {self.mape:.1%}, median "
            f"ratio {self.median:.2f}; {self.pairs} pairs, {self.ordered:.1%} ordered right, "
            f"regret {self.regret:.1%}; memory: {self.memory_rows} rows, MAPE "
            f"{self.memory_mape:.1%}; does not fit: precision {self.out_precision:.2f}, recall "
            f"{self.out_recall:.2f} of {self.out_rows}"
        )


def score(rows: Iterable[dict[str, Any]], said: Said) -> Score:
    """The score of answers on rows."""
    rows = list(rows)
    took = {r["id"]: s for r in rows if _ran(r) and (s := seconds(r))}
    priced = [r for r in rows if r["id"] in took and said.get(r["id"], {}).get("step_s")]
    ratios = [said[r["id"]]["step_s"] / took[r["id"]] for r in priced]
    right, pairs, regrets = _ranking(priced, took, said)
    true, wrong, missed = _overflow(rows, said)
    peaks = [(r, float(p)) for r in priced if (p := r["measured"].get("memory_gb"))]
    errors = [abs(said[r["id"]]["memory_bytes"] / (p * 1e9) - 1) for r, p in peaks]
    return Score(
        ran=len(took),
        priced=len(priced) / max(len(took), 1),
        mape=_mean([abs(x - 1) for x in ratios]),
        median=statistics.median(ratios) if ratios else 0.0,
        pairs=pairs,
        ordered=right / max(pairs, 1),
        regret=_mean(regrets),
        out_precision=true / max(true + wrong, 1),
        out_recall=true / max(true + missed, 1),
        out_rows=true + missed,
        memory_rows=len(errors),
        memory_mape=_mean(errors),
    )


def _ran(row: dict[str, Any]) -> bool:
    return row["status"] == "ok" and not row.get("suspect")


def _mean(values: list[float]) -> float:
    return statistics.mean(values) if values else 0.0


def _ranking(
    rows: list[dict[str, Any]], took: Mapping[str, float], said: Said
) -> tuple[int, int, list[float]]:
    """Pairs ordered right, pairs, and the regret of each ranking group."""
    by: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for row in rows:
        group = groups()["groups"][row["group"]]
        if group["ranking"]:
            hold = group.get("hold") or ()
            hold = [hold] if isinstance(hold, str) else hold
            by[(row["group"], *(str(row["plan"].get(h)) for h in hold))].append(row["id"])
    right = pairs = 0
    regrets: list[float] = []
    for key, ids in by.items():
        band = max(groups()["groups"][key[0]]["tie_band"], 0.10)
        for at, a in enumerate(ids):
            for b in ids[:at]:
                fast, slow = sorted((a, b), key=lambda i: took[i])
                if took[slow] / took[fast] - 1 > band:
                    pairs += 1
                    right += said[fast]["step_s"] < said[slow]["step_s"]
        if len(ids) > 1:
            chosen = min(ids, key=lambda i: said[i]["step_s"])
            regrets.append(1 - min(took[i] for i in ids) / took[chosen])
    return right, pairs, regrets


def _overflow(rows: list[dict[str, Any]], said: Said) -> tuple[int, int, int]:
    """Rows that ran out of memory as said, that ran though said not to, that were not foreseen."""
    true = wrong = missed = 0
    for row in rows:
        have, need = device_bytes(row), said.get(row["id"], {}).get("memory_bytes")
        if row["status"] not in ("ok", "oom") or row.get("suspect") or not have or not need:
            continue
        out = row["status"] == "oom"
        true += out and need > have
        wrong += not out and need > have
        missed += out and need <= have
    return true, wrong, missed
