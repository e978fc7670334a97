"""Full-size training steps measured, each in a fresh process, and curves around a base plan.

python -m benchmarks.scale                        every plan and every curve
python -m benchmarks.scale L1 D1 --out scale/     two plans: results, page, picture and tables
python -m benchmarks.scale plans --unrolled       micro-batches written out, as scheduled
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks.charts import draw
from benchmarks.machine import described
from benchmarks.steps import scale
from benchmarks.steps.scale import CURVES, PLANS, Point, Row
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.run import Outcome, Run, conduct

HEADS = (
    "plan", "what", "ranks", "nodes", "verdict", "write", "structure", "time", "relations",
    "certificate", "schedule", "total", "cpu", "check", "memory GB", "target", "published",
)  # fmt: skip
TEMPLATES = Path(__file__).parent / "templates"
RESULTS, PAGE, PICTURE, TABLE = "scale.json", "scale.html", "scale.png", "scale.md"


@dataclass(frozen=True)
class Choice:
    """What is to be measured."""

    names: tuple[str, ...] = ()
    """Names of plans or of curves; all if empty."""
    repeat: int = 3
    """Runs of every point of a curve, of which the fastest counts."""
    unrolled: bool = False
    """Plans with their micro-batches written out."""

    def plans(self) -> list[Point]:
        chosen = [p for p in PLANS if not self.names or p.name in self.names]
        return [p.unrolled for p in chosen] if self.unrolled else chosen

    def curves(self) -> list[str]:
        return [c for c in CURVES if not self.names or c in self.names or "curves" in self.names]


def run(run: Run, choice: Choice, out: Path | None) -> Outcome:
    """Measure, and write results, page, picture and tables where `out` is given.

    Raises:
        InputError: a name that is neither a plan nor a curve, or an `out` that cannot be written.
    """
    known = [*(p.name for p in PLANS), *CURVES, "plans", "curves"]
    unknown = [n for n in choice.names if n not in known]
    if unknown:
        raise InputError("no such plan or curve", expected=", ".join(known), got=unknown[0])
    if "plans" in choice.names:
        every = (*choice.names, *(p.name for p in PLANS))
        choice = Choice(every, choice.repeat, choice.unrolled)
    about = described()
    plans = [_measured(run, point) for point in choice.plans()]
    curves = {name: _curve(run, name, choice.repeat) for name in choice.curves()}
    text = _markdown(plans, curves)
    if out is not None:
        write(run, out, about, plans, curves)
    rows = [*plans, *(row for line in curves.values() for row in line)]
    bad = [row.name for row in rows if not row.good]
    for name in bad:
        run.warn(f"{name} is not proved, or its certificate is not accepted")
    where = "" if out is None else str(out)
    if bad:
        return Outcome(Exit.NOT_PROVED, "unknown", where, answer=text)
    return Outcome(Exit.PROVED, "proved", where, answer=text)


def _measured(run: Run, point: Point, *, plain: bool = False) -> Row:
    """One point in a process of its own; a plain one is proved once and not checked."""
    with run.phase(point.name) as phase:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            work = partial(scale.measured, point, checked=not plain)
            row = pool.submit(work).result()
        phase.summary = f"{row.verdict}, {row.total_s:.2f} s, {row.cpu_s:.2f} s of the processor"
        phase.facts.update({k: v for k, v in asdict(row).items() if isinstance(v, int | float)})
    return row


def _curve(run: Run, name: str, repeat: int) -> list[Row]:
    rows: list[Row] = []
    for point in scale.curve(name):
        tried = [_measured(run, point, plain=True) for _ in range(max(repeat, 1))]
        rows.append(min(tried, key=lambda row: row.cpu_s))
    return rows


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _cells(row: Row) -> list[str]:
    word = {None: "", True: ", accepted", False: ", certificate rejected"}[row.accepted]
    seconds = (
        row.write_s, row.structure_s, row.time_s, row.relate_s, row.certificate_s, row.schedule_s,
        row.total_s, row.cpu_s, row.check_s, row.memory_gb,
    )  # fmt: skip
    constrained = (f"{v:g}" if v is not None else "-" for v in (row.target_s, row.published_s))
    return [
        row.name, row.plan, f"{row.ranks:,}", f"{row.nodes:,}", row.verdict + word,
        *map(_number, seconds), *constrained,
    ]  # fmt: skip


def _points(name: str, rows: Sequence[Row]) -> list[tuple[int, float]]:
    return [(x, row.cpu_s) for x, row in zip(CURVES[name], rows, strict=True)]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _markdown(plans: Sequence[Row], curves: dict[str, list[Row]]) -> str:
    parts: list[str] = []
    if plans:
        parts.append(_table(HEADS, [_cells(row) for row in plans]))
    lines: list[list[str]] = []
    for name, rows in curves.items():
        points = _points(name, rows)
        ratio, fine = scale.flatness(name, [s for _, s in points])
        shown = ", ".join(f"{x}: {s:.2f}" for x, s in points)
        lines.append([name, shown, f"{ratio:.2f}", "yes" if fine else "no"])
    if lines:
        heads = ("varied", "at: seconds of the processor", "largest / smallest", "as constrained")
        parts.append(_table(heads, lines))
    return "\n".join(parts).rstrip("\n")


def _fine(row: Row) -> bool:
    return row.good and (row.target_s is None or row.total_s <= row.target_s)


def write(
    run: Run,
    out: Path,
    about: dict[str, str],
    plans: Sequence[Row],
    curves: dict[str, list[Row]],
) -> None:
    """Results, tables, page and picture into a directory; without matplotlib no picture.

    Raises:
        InputError: the directory cannot be written.
    """
    results = {
        "machine": about,
        "plans": [asdict(row) for row in plans],
        "curves": {name: [asdict(row) for row in rows] for name, rows in curves.items()},
    }
    picture = ""
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / RESULTS).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        (out / TABLE).write_text(_markdown(plans, curves) + "\n", encoding="utf-8")
        if curves:
            try:
                png, picture = draw({name: _points(name, rows) for name, rows in curves.items()})
                (out / PICTURE).write_bytes(png)
            except InputError as error:
                run.warn(f"{error.what}: tables without pictures; {error.hint}")
        lines = [
            (n, p, *scale.flatness(n, [s for _, s in p]))
            for n, p in ((n, _points(n, rows)) for n, rows in curves.items())
        ]
        pages = Environment(
            loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined
        )
        page = pages.get_template("scale.html.j2").render(
            machine=about,
            heads=HEADS,
            plans=[(_cells(row), _fine(row)) for row in plans],
            curves=lines,
            picture=picture,
        )
        (out / PAGE).write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError("cannot be written", where=str(out), got=str(error)) from None
    run.emit(events.Written(directory=str(out), report=str(out / PAGE)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale")
    known = [*(p.name for p in PLANS), "plans", *CURVES, "curves"]
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--out", type=Path, help="folder for results, page, picture and tables")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of a point")
    parser.add_argument("--unrolled", action="store_true", help="write micro-batches out")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    given = parser.parse_args()
    choice = Choice(tuple(given.names), max(given.repeat, 1), given.unrolled)

    def work(current: Run) -> Outcome:
        return run(current, choice, given.out)

    return conduct("benchmarks.scale", sys.argv[1:], work, json=given.json)


if __name__ == "__main__":
    sys.exit(main())
