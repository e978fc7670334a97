"""`python -m benchmarks.torchtitan [NAME ...]`: the parallelisms that torchtitan's maintainers
compare with one device by hand, each as a training step of torchtitan's own parts.

Its debug models are made smaller, so that a row takes seconds. Rows are kept in
`benchmarks/results/torchtitan.json`, a table of them goes to `benchmarks/results/torchtitan.md`.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.parallelize import ROOT

RESULTS = ROOT / "benchmarks" / "results" / "torchtitan.json"
PAGE = RESULTS.with_suffix(".md")
WALL_S = 400
SEQ = 24
"""Tokens of a row: as many as nothing else has, so that small extents stay apart."""
JOB = """
[model]
flavor = "debugmodel"
[training]
local_batch_size = {rows}
seq_len = {seq}
mixed_precision_param = "float32"
[parallelism]
pipeline_parallel_microbatch_size = 1
pipeline_parallel_schedule = "1F1B"
[activation_checkpoint]
mode = "none"
"""
DENSE = {"dim": 40, "n_heads": 4, "vocab_size": 56}
EXPERTS = {"dim": 40, "n_heads": 4, "vocab_size": 56}
MESHES = (
    "dp=2", "pp=2", "cp=2", "tp=2", "pp=2,dp=2,tp=2", "dp=2,cp=2,tp=2", "pp=2,cp=2,tp=2",
    "pp=2,dp=2,cp=2", "pp=4", "pp=8", "tp=4", "cp=4", "rep=2", "rep=2,dp=2",
)  # fmt: skip
MENDED = "llama3, mended"
"""Pipelines divide gradients by the tokens, DDP adds them up (`published/titan_mended.py`)."""
WITH_EXPERTS = (
    "dp=2,ep=2", "pp=2,dp=2,tp=2,ep=2", "dp=2,cp=2,tp=2,ep=2", "pp=2,dp=2,cp=2,ep=2", "dp=8,ep=8",
)  # fmt: skip
HEAD = """# Steps of torchtitan

`make torchtitan`: `shardproof check torchtitan:MODEL --mesh MESH` of torchtitan 0.2.2, against one
device. Each step is `Trainer.train_step`, on debug models of a few layers; with pp, of 1F1B.
Seconds are of the processor.

Two faults show, and `python -m benchmarks.published.titan_norms` confirms them by torchtitan alone:
of one step on 32 tokens, the gradients have norm 0.036769 on one process, 0.018385 under DDP (it
averages gradients of a loss that is divided by the tokens of all ranks) and 1.176613 in a pipeline
(nothing divides by the tokens). Clipping and Adam hide both. Mended, both are proved. torchtitan's
context parallelism and its experts use ops that PyTorch does not have on CPUs.

"""


@dataclass(frozen=True)
class Row:
    model: str
    mesh: str
    verdict: str
    seconds: float
    said: str
    """Why it is not proved, in a line."""

    @property
    def name(self) -> str:
        return f"{self.model} {self.mesh}"


def jobs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(model, mesh, what is changed of its debug model) of every row."""
    for mesh in MESHES:
        yield "llama3", mesh, {**DENSE, "n_layers": max(2, dict(_dims(mesh)).get("pp", 1))}
    for mesh in (m for m in MESHES if m == "rep=2" or ("pp" in m and "cp" not in m)):
        yield MENDED, mesh, {**DENSE, "n_layers": max(2, dict(_dims(mesh)).get("pp", 1))}
    yield "qwen3", "dp=2", {**DENSE, "n_layers": 2, "n_kv_heads": 2, "enable_weight_tying": "false"}
    for mesh in WITH_EXPERTS:
        yield "llama4", mesh, {**EXPERTS, "n_layers": 2}


def _dims(mesh: str) -> Iterator[tuple[str, int]]:
    for item in mesh.split(","):
        name, _, size = item.partition("=")
        yield name, int(size)


def check(model: str, mesh: str, changes: dict[str, Any]) -> Row:
    """Run the command of a row."""
    rows = max(2, dict(_dims(mesh)).get("pp", 1))
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.toml"
        job.write_text(JOB.format(rows=rows, seq=SEQ))
        command = [sys.executable, "-W", "ignore", "-m", "shardproof", "check"]
        command += ["--mesh", mesh, "--json"]
        if model == MENDED:
            command += _mended(job, rows, mesh, changes)
        else:
            command += [f"torchtitan:{model}", "--job-config", str(job)]
            command += [w for k, v in changes.items() for w in ("--config", f"{k}={v}")]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            done = subprocess.run(
                [*command, "--no-run", "--repair-seconds", "0"],
                cwd=ROOT, capture_output=True, text=True, timeout=WALL_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Row(model, mesh, "no verdict", WALL_S, f"more than {WALL_S} s")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    lines = (json.loads(x) for x in done.stdout.splitlines() if x.startswith("{"))
    ends = [e for e in lines if e["event"] in ("verdict", "error")]
    end = ends[-1] if ends else {"message": done.stderr[-200:]}
    verdict = end.get("verdict", "refused")
    said = "" if verdict == "proved" else end.get("message") or end.get("reason") or ""
    return Row(model, mesh, verdict, round(seconds, 1), str(said).split("\n")[0][:200])


def _mended(job: Path, rows: int, mesh: str, changes: dict[str, Any]) -> list[str]:
    given = job.with_suffix(".json")
    given.write_text(json.dumps({"model": "llama3", "job_config": str(job), "changes": changes}))
    over = [name for name, _ in _dims(mesh) if name in ("rep", "dp")]
    for name in over:
        rows *= dict(_dims(mesh))[name]
    file = ROOT / "benchmarks" / "published" / "titan_mended.py"
    words = [f"{file}:ranks", "--against", f"{file}:one", "--step", "train_step"]
    words += ["--config", str(given)]
    for name in ("tokens", "labels"):
        words += ["--input", f"{name}=i64[{rows},{SEQ}]"]
        words += [w for d in over for w in ("--input-layout", f"{name}=S(0)@{d}")]
    return words


def kept() -> dict[str, Row]:
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    return {row.name: row for row in (Row(**r) for r in rows)}


def page(rows: Sequence[Row]) -> str:
    table = ["| model | mesh | verdict | s | why |", "|---|---|---|---|---|"]
    table += [f"| {r.model} | {r.mesh} | {r.verdict} | {r.seconds} | {r.said} |" for r in rows]
    return HEAD + "\n".join(table) + "\n"


def main(names: Sequence[str]) -> int:
    held = kept()
    for model, mesh, changes in jobs():
        name = f"{model} {mesh}"
        if (names and name not in names) or (not names and name in held):
            continue
        held[name] = row = check(model, mesh, changes)
        print(f"{name:<32} {row.verdict:<10} {row.seconds:>6} {row.said[:110]}", flush=True)
        rows = [held[n] for n in (f"{m} {d}" for m, d, _ in jobs()) if n in held]
        RESULTS.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n")
    PAGE.write_text(page([held[n] for n in (f"{m} {d}" for m, d, _ in jobs()) if n in held]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
