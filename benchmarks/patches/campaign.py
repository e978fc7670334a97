"""Models, what is said of them, and what is true of them: one row for each model and mesh."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import torch.distributed.fsdp  # noqa: F401  (imported once, before processes are forked)
import torch.distributed.tensor.parallel  # noqa: F401

from benchmarks.patches.models import Generated, generate
from benchmarks.patches.truth import Truth, judge
from benchmarks.patches.verdicts import Said, Tool


@dataclass(frozen=True, slots=True)
class Row:
    """One model on one mesh."""

    seed: int
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
        right = self.truth == "right"
        if self.verdict == "proved":
            return "proved" if right else "WRONG"
        return "lost" if right else "stopped"


ENDS = {
    "proved": "proved, and right",
    "WRONG": "proved, and wrong",
    "lost": "not proved, and right",
    "stopped": "not proved, and wrong",
    "refused": "refused before there was a patch",
    "fault": "a fault of ours: crash, or no truth",
}


def row_of(model: Generated, mesh: str, said: Said, truth: Truth | None) -> Row:
    excused = [c for c in truth.draws if not c.binding and c.difference > 1e-8] if truth else []
    return Row(
        model.seed,
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
        folder = keep / str(model.seed) if keep else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"model_{model.seed}.py"
        file.write_text(model.source)
        tool = Tool(file)
        for mesh in meshes:
            out = folder / mesh.replace("=", "").replace(",", "_")
            shutil.rmtree(out, ignore_errors=True)
            said, truth = tool.say(mesh, out), None
            if said.patch is not None and said.plan is not None:
                try:
                    truth = judge(tool.request, said.patch, said.plan, said.loss)
                except Exception as error:  # noqa: BLE001  (each ends as a row)
                    last = traceback.extract_tb(error.__traceback__)[-1]
                    place = f"{Path(last.filename).name}:{last.lineno}"
                    truth = Truth("unjudged", f"{type(error).__name__} at {place}: {error}")
            yield row_of(model, mesh, said, truth)


def work(seed: int, meshes: Sequence[str], keep: Path | None) -> list[Row]:
    return list(rows_of(generate(seed), meshes, keep))


def run(seeds: Sequence[int], results: Path, keep: Path | None = None, jobs: int = 1) -> list[Row]:
    """Rows of all seeds; those that `results` holds are not worked out again."""
    rows = read(results)
    known = {(row.seed, row.mesh) for row in rows if row.seed in set(seeds)}
    left = {seed: [m for m in generate(seed).meshes if (seed, m) not in known] for seed in seeds}
    todo = [(seed, meshes) for seed, meshes in left.items() if meshes]
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("a") as out:
        for number, found in enumerate(_all(todo, keep, jobs), 1):
            for row in found:
                rows.append(row)
                out.write(json.dumps(asdict(row)) + "\n")
                out.flush()
                taken = f"{row.tool_s:.1f} + {row.truth_s:.1f} s"
                line = f"{number}/{len(todo)}  {row.seed} {row.mesh}: {row.end}  {taken}"
                if row.end in ("WRONG", "fault", "lost"):
                    line += f"  {row.message[:150]}  {row.found}"
                print(line, file=sys.stderr, flush=True)
    return [row for row in rows if row.seed in set(seeds)]


def _all(
    todo: Sequence[tuple[int, list[str]]], keep: Path | None, jobs: int
) -> Iterator[list[Row]]:
    if jobs == 1:
        for seed, meshes in todo:
            yield work(seed, meshes, keep)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        waiting = [pool.submit(work, seed, meshes, keep) for seed, meshes in todo]
        for future in waiting:
            yield future.result()


def read(results: Path) -> list[Row]:
    """The rows of a file of JSON lines; none where there is no file."""
    if not results.exists():
        return []
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    return [Row(**{**row, "features": tuple(row["features"])}) for row in rows]
