"""`python -m benchmarks.kinds`: what becomes of models of 48 kinds, as people write them.

Runs the manifest `tests/kinds/kinds.toml` as a batch, each model on two ranks of tp and of dp, and
keeps a line a job in `benchmarks/results/kinds.json`; docs/kinds.md is written from that. A plan is
useful where it splits at least half of what the mesh could split.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MANIFEST = ROOT / "tests" / "kinds" / "kinds.toml"
RESULTS = Path(__file__).parent / "results" / "kinds.json"
PAGE = ROOT / "docs" / "kinds.md"
HEAD = """# Models as people write them

Written by `python -m benchmarks.kinds`; do not edit. The models are in `tests/kinds/models`.

*Proved* is said of the patch, *run* of two processes against one; a plan is *useful* where it
splits at least half of what the mesh could split.

"""


def split_share(folder: Path, mesh: str) -> float:
    """The share of what the mesh could split of which each rank has its own piece; over dp that of
    all parameters."""
    estimates = json.loads((folder / "plan.json").read_text())["estimates"]
    if mesh.startswith("tp"):
        return round(estimates.get("split_share", 0.0), 3)
    return round(2 * (1 - estimates["after_parameters"] / estimates["before_parameters"]), 3)


def row(out: Path, job: dict[str, Any]) -> dict[str, Any]:
    """A job of a batch in few words."""
    cause = job["cause"] or {}
    done = job["status"] == "proved"
    return {
        "target": job["target"].removeprefix(f"{MANIFEST.parent}/"),
        "mesh": job["mesh"],
        "proved": done,
        "run": bool(job["agrees"]),
        "split": split_share(out / job["directory"], job["mesh"]) if done else 0.0,
        "plan": job["strategy"] if done else "",
        "cause": "" if done else cause.get("message", job["status"]).split("\n")[0],
    }


def page(rows: list[dict[str, Any]]) -> str:
    """Markdown: how many of each mesh, then a line a job."""
    lines = ["| mesh | models | proved | run | useful |", "|---|---|---|---|---|"]
    for mesh in dict.fromkeys(r["mesh"] for r in rows):
        mine = [r for r in rows if r["mesh"] == mesh]
        count = Counter[str]()
        for r in mine:
            count.update(proved=r["proved"], run=r["run"], useful=r["run"] and r["split"] >= 0.5)
        numbers = (len(mine), count["proved"], count["run"], count["useful"])
        lines.append(f"| {mesh} | " + " | ".join(map(str, numbers)) + " |")
    lines += ["", "| model | mesh | split | plan, or why there is none |", "|---|---|---|---|"]
    for r in rows:
        share = f"{r['split']:.0%}" if r["run"] else "no"
        said = (r["plan"] or r["cause"]).replace("|", "\\|")
        lines.append(f"| {r['target']} | {r['mesh']} | {share} | {said} |")
    return HEAD + "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.kinds")
    parser.add_argument("--read", type=Path, help="the folder of a batch that ran before")
    parser.add_argument("--jobs", default="1")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = given.read or Path(scratch) / "runs"
        if given.read is None:
            order = ["batch", str(MANIFEST), "--jobs", given.jobs, "--out", str(out)]
            subprocess.run([sys.executable, "-m", "agent", *order], cwd=ROOT, check=False)
        jobs = json.loads((out / "summary.json").read_text())["jobs"]
        rows = [row(out, job) for job in jobs]
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    PAGE.write_text(page(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
