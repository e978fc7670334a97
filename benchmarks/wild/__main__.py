"""`python -m benchmarks.wild [NAME ...]`: how far models come that nobody tuned shardproof for.

`listed.txt` holds models of packages of the Python index, written down before any of them was
tried; so many are drawn by a seed, of every package as many as its share, at least one. Each is
planned, proved, patched and run by the command as it is typed. What came of it the first time is
kept in `benchmarks/results/wild-first.jsonl` and never changed; `wild.jsonl` holds the newest rows,
and a run that was stopped goes on. `--packages` prints what is to be installed.

With `--drawn CLONES`, it is models of `drawn.txt`, on both meshes: sets that were named when those
of `listed.txt` were known, each before any of it was tried. CLONES holds the repositories.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.kept import RESULTS, go_on, options, read, write
from benchmarks.wild.listed import DRAWN, Listed, drawn, listed
from benchmarks.wild.page import draws, page
from benchmarks.wild.written import job

ENDS = ("-first.jsonl", ".jsonl", ".md")
COUNT, SEED = 70, 0
MESHES = ("tp=2", "dp=2,tp=2")
EVERY = 3
"""Of so many models one is also tried on the second mesh."""
ALONE = """
import sys, torch
sys.path.insert(0, {folder!r})
import {file} as m
model = m.Model().eval()
with torch.no_grad():
    model(**m.example_inputs())
"""
"""A model on one device."""


def unfit(one: Listed) -> str:
    """Why a model does not run on one device; '' if it does, or its command builds it."""
    if ":" in one.made:
        return ""
    file = Path(job(one, "tp=2").target.rpartition(":")[0])
    code = ALONE.format(folder=str(file.parent), file=file.stem)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return ran.stderr.strip().split("\n")[-1][:160] if ran.returncode else ""


def main() -> int:
    parser = options("benchmarks.wild")
    parser.add_argument("--count", type=int, default=COUNT, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--packages", action="store_true", help="print them, and stop")
    parser.add_argument("--drawn", type=Path, metavar="CLONES", help="models of drawn.txt")
    given = parser.parse_args()
    sets = drawn(listed(), given.count, given.seed) if given.drawn is None else listed(DRAWN)
    models = {one.name: one for one in sets}
    if given.packages:
        print(*sorted({p for one in models.values() for p in one.packages}))
        return 0
    few = list(models.values())[:: EVERY if given.drawn is None else 1]
    asked = [(mesh, models.values() if mesh == MESHES[0] else few) for mesh in given.mesh or MESHES]
    jobs = [(mesh, job(one, mesh, clones=given.drawn)) for mesh, some in asked for one in some]
    paths = (RESULTS / f"{'wild' if given.drawn is None else 'drawn'}{end}" for end in ENDS)
    first, now, shown = paths
    _keep_first(first, now)
    rows = go_on(given, now, jobs, lambda name: unfit(models[name]))
    _keep_first(first, now)
    began = [read(first)[r.name, r.mesh] for r in rows]
    text = page(began, rows) if given.drawn is None else draws(models.values(), began, rows)
    shown.write_text(text)
    return 0


def _keep_first(first: Path, now: Path) -> None:
    """What has no first row yet has one now."""
    write(first, {**read(now), **read(first)}.values())


if __name__ == "__main__":
    raise SystemExit(main())
