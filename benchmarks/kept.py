"""Rows of models, one a job, kept as they come: a run that was stopped goes on where it was.

A row says how far the command came with a model on a mesh: planned, proved, patched, run on two
processes against one, and whether at least half of what the mesh could split is split.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks.parallelize import Job, Row, measure

RESULTS = Path(__file__).parent / "results"
HALF = 0.5
NOT_TRIED = "not tried"
NOT_USEFUL = 5
"""What the command ends with under `--require-useful`."""


@dataclass(frozen=True)
class Kept:
    """What came of one model on one mesh."""

    name: str
    mesh: str
    verdict: str
    """`crash` where the command ended without one, `not tried` where it was not asked."""
    run: bool
    """On two processes, with the numbers of one."""
    split: float
    """The share of what the mesh could split of which each rank has its own piece; over dp that of
    all parameters."""
    said: str
    """The plan, or why there is none, with its place and the way on."""
    seconds: float
    """Of the processor."""
    code: int = 0
    """What the command ended with, where that was kept."""

    @property
    def useful(self) -> bool:
        return self.run and self.split >= HALF and self.code != NOT_USEFUL


def kept(name: str, mesh: str, row: Row) -> Kept:
    """A row in few words."""
    done, sizes = row.verdict == "proved", row.estimates
    ran = row.code in (0, NOT_USEFUL) and row.difference is not None
    share = 0.0
    if done and "tp" in mesh:
        share = sizes.get("split_share", 0.0)
    elif done:
        share = 2 * (1 - sizes["after_parameters"] / sizes["before_parameters"])
    said = row.plan if ran else row.error
    seconds = round(row.processor, 1)
    return Kept(name, mesh, row.verdict, ran, round(share, 3), said, seconds, row.code)


def read(path: Path) -> dict[tuple[str, str], Kept]:
    """The rows of earlier runs."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {(r.name, r.mesh): r for r in (Kept(**json.loads(line)) for line in lines)}


def write(path: Path, rows: Iterable[Kept]) -> None:
    path.write_text("".join(json.dumps(asdict(r)) + "\n" for r in rows))


def options(prog: str) -> argparse.ArgumentParser:
    """What such a benchmark is told."""
    parser = argparse.ArgumentParser(prog=prog)
    parser.add_argument("names", nargs="*", help="patterns of names; all if none is given")
    parser.add_argument("--mesh", action="append", help="repeatable")
    parser.add_argument("--again", action="store_true", help="also those that have a row")
    parser.add_argument("--page", action="store_true", help="write the page alone; run nothing")
    return parser


def anything(name: str) -> str:
    """Nothing speaks against a job."""
    del name
    return ""


def go_on(
    given: argparse.Namespace,
    path: Path,
    jobs: Sequence[tuple[str, Job]],
    unfit: Callable[[str], str] = anything,
) -> list[Kept]:
    """Run what was asked for, has no row yet and is not unfit, as that says why; all rows, in the
    order of the jobs."""
    order = [(job.name, mesh) for mesh, job in jobs]
    for mesh, job in jobs:
        asked = not given.names or any(fnmatchcase(job.name, n) for n in given.names)
        if given.page or not asked or ((job.name, mesh) in read(path) and not given.again):
            continue
        why = unfit(job.name)
        left = Kept(job.name, mesh, NOT_TRIED, False, 0.0, why, 0.0)
        row = left if why else kept(job.name, mesh, measure(job))
        rows = read(path) | {(job.name, mesh): row}
        write(path, (rows[key] for key in sorted(rows, key=lambda k: _place(order, k))))
        print(f"{row.name} {mesh}: {row.verdict}, {row.seconds} s  {row.said}", file=sys.stderr)
    found = read(path)
    return [found[key] for key in order if key in found]


def _place(order: Sequence[tuple[str, str]], key: tuple[str, str]) -> int:
    return order.index(key) if key in order else len(order)


def counts(rows: Sequence[Kept]) -> list[int]:
    """How many there are, proved, run, and useful."""
    proved = [r for r in rows if r.verdict == "proved"]
    return [len(rows), len(proved), sum(r.run for r in rows), sum(r.useful for r in rows)]


def lines(rows: Iterable[Kept]) -> list[str]:
    """A table of markdown: a line a row."""
    out = ["| model | mesh | split | plan, or why there is none |", "|---|---|---|---|"]
    for r in rows:
        share = f"{r.split:.0%}" if r.run else "no"
        said = r.said.replace("|", "\\|").replace("*", "\\*")
        out.append(f"| {r.name} | {r.mesh} | {share} | {said} |")
    return out
