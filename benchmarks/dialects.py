"""`python -m benchmarks.dialects [CLASS ...]`: plans of ours in the words of transformers.

Causal language models of the installed transformers, drawn by a seed from those that it publishes
with a tensor-parallel plan, are planned with `--dialect transformers` on tp=2. What is proved is
then loaded by the library's own `from_pretrained` on two gloo processes in float64, and compared
with one process: weights, logits, the loss, every gradient. Rows are kept as they come; classes
that are named are tried again.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.tp_plan_run import run
from benchmarks.tp_plans import fields, planned

ROWS = Path(__file__).with_name("results") / "dialects.jsonl"
PAGE = ROWS.with_suffix(".md")
COUNT, SEED, SECONDS = 16, 5, 300
HEAD = (
    "# Plans in the words of transformers",
    "",
    "Written by `python -m benchmarks.dialects`; do not edit.",
    "",
    "`shardproof parallelize hf:CLASS --mesh tp=2 --dialect transformers`, of classes drawn by a",
    "seed. What is proved is loaded by `from_pretrained` on two processes and compared with one.",
    "First: the first time that a class was tried.",
    "",
    "| class | first | now | loaded and run by the library | rules | shards | what is said |",
    "|---|---|---|---|---|---|---|",
)


def row(name: str) -> dict[str, object]:
    """What came of a class: the verdict, what differs on processes, the last words."""
    with tempfile.TemporaryDirectory() as scratch:
        config, out = Path(scratch, "config.json"), Path(scratch, "out")
        config.write_text(json.dumps(fields(name, 2)))
        words = ["--mesh", "tp=2", "--dialect", "transformers", "--batch", "2", "--seq", "8"]
        command = ["shardproof", "parallelize", f"hf:{name}", "--config", str(config), *words]
        command += ["--no-run", "--timeout", str(SECONDS), "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True)
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        patch, made = out / "patch.diff", out / "plan.json"
        text = re.sub(r"^\+", "", patch.read_text(), flags=re.MULTILINE) if patch.exists() else ""
        shares = json.loads(made.read_text())["estimates"] if made.exists() else {}
    found = re.search(r"^TP_PLAN = (\{.*?^\})", text, re.MULTILINE | re.DOTALL)
    rules = ast.literal_eval(found[1]) if found else {}
    ends = {0: "proved", 1: "not proved", 2: "refused", 4: "not proved"}
    end = ends.get(done.returncode, f"exit {done.returncode}")
    lines = [
        x for x in said if x.startswith(("unknown", "error", "refuted", "warning     not use"))
    ]
    return {
        "name": name,
        "end": end,
        "differs": run(name, 2, plan=rules) if rules else None,
        "rules": rules,
        "shares": {n: round(shares.get(n, 1.0), 3) for n in ("split_share", "compute_share")},
        "said": lines[0][:200] if lines else "",
    }


def kept() -> dict[str, dict[str, object]]:
    rows = ROWS.read_text().splitlines() if ROWS.exists() else []
    return {r["name"]: r for r in map(json.loads, rows)}


def page(rows: dict[str, dict[str, object]]) -> str:
    lines = list(HEAD)
    for r in rows.values():
        ran = "" if r["differs"] is None else "; ".join(map(str, r["differs"])) or "equal"
        shares = " / ".join(f"{share:.0%}" for share in dict(r["shares"]).values())
        cells = [r["name"], r["first"], r["end"], ran, len(r["rules"]), shares, r["said"]]
        lines.append(f"| {' | '.join(str(c).replace('|', '/') for c in cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """1 where what was proved differs on processes."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("names", nargs="*")
    names, rows = asked.parse_args().names, kept()
    drawn = random.Random(SEED).sample(planned(), COUNT)
    for name in names or [n for n in drawn if n not in rows]:
        found = row(name)
        first = rows[name]["first"] if name in rows else found["end"]
        rows[name] = {**found, "first": first}
        print(name, found["end"], found["differs"], found["said"], flush=True)
        ROWS.write_text("".join(json.dumps(r) + "\n" for r in rows.values()))
        PAGE.write_text(page(rows))
    return int(any(r["end"] == "proved" and r["differs"] for r in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
