"""Models, what is said of them, and what is true of them: one row for each model and mesh."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.patches.models import Generated
from benchmarks.patches.truth import TOLERANCE, Truth, judge
from benchmarks.patches.verdicts import Said, Tool
from shardproof.agent.batch.keys import ours

ENDS = {
    "proved": "proved, and right",
    "WRONG": "proved, and computes something else",
    "BROKEN": "proved, and does not run",
    "lost": "not proved, and right",
    "stopped": "not proved, and wrong or broken",
    "refused": "refused before there was a patch",
    "fault": "a fault of ours: crash, or no truth",
}
BAD = ("WRONG", "BROKEN")


@dataclass(frozen=True, slots=True)
class Row:
    """One model on one mesh."""

    name: str
    """Of the model: its seed, or its file."""
    mesh: str
    features: tuple[str, ...]
    verdict: str
    message: str
    truth: str
    """`right`, `wrong`, `broken`, `unjudged`; empty where there is no patch."""
    found: str
    """What the truth rests on."""
    excused: str
    """What else differs, on draws that break an obligation of the patch."""
    tool_s: float
    truth_s: float

    @property
    def end(self) -> str:
        """How the case ended: see `ENDS`."""
        if self.verdict == "crash" or self.truth == "unjudged":
            return "fault"
        if not self.truth:
            return "refused" if self.verdict != "proved" else "fault"
        if self.verdict == "proved":
            return {"right": "proved", "wrong": "WRONG", "broken": "BROKEN"}[self.truth]
        return "lost" if self.truth == "right" else "stopped"


def code() -> str:
    """A hash of this program and of the campaign: rows of other code say nothing."""
    here = sorted(Path(__file__).parent.glob("*.py"))
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in here}
    return hashlib.sha256(json.dumps({**ours(), **files}).encode()).hexdigest()[:12]


def row_of(model: Generated, mesh: str, said: Said, truth: Truth | None) -> Row:
    excused = (
        [c for c in truth.draws if not c.binding and c.difference > TOLERANCE] if truth else []
    )
    return Row(
        model.name,
        mesh,
        model.features,
        said.word,
        said.message,
        truth.word if truth else "",
        truth.said if truth else "",
        "; ".join(f"{c.where} {c.difference:.1e}, labels {c.draw.labels}" for c in excused),
        round(said.seconds, 2),
        round(truth.seconds, 2) if truth else 0.0,
    )


def rows_of(model: Generated, meshes: Sequence[str], keep: Path | None = None) -> Iterator[Row]:
    """The rows of one model. With `keep`, its file and directories stay there."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = keep / model.name if keep else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "model.py"
        file.write_text(model.source)
        tool = Tool(file)
        for mesh in meshes:
            out = folder / mesh.replace("=", "").replace(",", "_")
            shutil.rmtree(out, ignore_errors=True)
            said, truth = tool.say(mesh, out), None
            if said.patch is not None and said.plan is not None:
                try:
                    truth = judge(tool.asked(mesh).request(), said.patch, said.plan, said.loss)
                except Exception as error:  # noqa: BLE001  (each ends as a row)
                    last = traceback.extract_tb(error.__traceback__)[-1]
                    place = f"{Path(last.filename).name}:{last.lineno}"
                    truth = Truth("unjudged", f"{type(error).__name__} at {place}: {error}")
            yield row_of(model, mesh, said, truth)


def _work(model: Generated, keep: Path | None) -> list[Row]:
    return list(rows_of(model, model.meshes, keep))


def run(
    models: Iterable[Generated], results: Path, keep: Path | None = None, jobs: int = 1
) -> list[Row]:
    """Rows of all models; those that `results` holds are not worked out again."""
    models = list(models)
    names = {model.name for model in models}
    rows = [row for row in read(results) if row.name in names]
    known = {(row.name, row.mesh) for row in rows}
    left = [
        replace(model, meshes=tuple(m for m in model.meshes if (model.name, m) not in known))
        for model in models
    ]
    todo = [model for model in left if model.meshes]
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("a") as out:
        for number, found in enumerate(_all(todo, keep, jobs), 1):
            for row in found:
                rows.append(row)
                out.write(json.dumps(asdict(row)) + "\n")
                out.flush()
                print(f"{number}/{len(todo)}  {line(row)}", file=sys.stderr, flush=True)
    return rows


def line(row: Row) -> str:
    """A row on one line; where it did not end as hoped, with what was said and found."""
    short = f"{row.name} {row.mesh}: {row.end}  {row.tool_s:.1f} + {row.truth_s:.1f} s"
    return short if row.end in ("proved", "stopped") else f"{short}  {row.found or row.message}"


def _all(todo: Sequence[Generated], keep: Path | None, jobs: int) -> Iterator[list[Row]]:
    if jobs == 1:
        yield from (_work(model, keep) for model in todo)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        for future in [pool.submit(_work, model, keep) for model in todo]:
            yield future.result()


def read(results: Path) -> list[Row]:
    """The rows of a file of JSON lines; none where there is no file."""
    if not results.exists():
        return []
    rows: list[dict[str, Any]] = [json.loads(line) for line in results.read_text().splitlines()]
    for row in rows:
        row["features"] = tuple(row["features"])
    return [Row(**row) for row in rows]
