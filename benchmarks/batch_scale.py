"""`python -m benchmarks.batch_scale`: a batch of 100 jobs against 100 commands of one job.

25 models, as files and as classes of transformers with two layers, each on four meshes, planned,
proved and patched, not run. The batch is run whole, two jobs at once. Of the single commands every
model's is run on one mesh, the meshes in turn, and their seconds are taken four times. Seconds are
of the processor, with all processes that a command starts. docs/batch.md shows the result.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.blocks import DOCS, write
from benchmarks.machine import described
from benchmarks.parallelize import ROOT

RESULTS = ROOT / "benchmarks" / "results" / "batch_scale.json"
MESHES = ("tp=2", "dp=2", "dp=2,tp=2", "tp=4")
KINDS = "tests/kinds/models"
FILES = (
    "examples/mlp.py:MLP",
    "examples/nanogpt.py:GPT",
    f"{KINDS}/gpt.py:GPT",
    f"{KINDS}/gpt.py:Checkpointed",
    f"{KINDS}/encoder.py:Encoder",
    f"{KINDS}/experts.py:Biased",
    f"{KINDS}/heads.py:Sinks",
    f"{KINDS}/language.py:Perceiver",
    f"{KINDS}/recommender.py:DLRM",
    f"{KINDS}/tagger.py:Tagger",
)
CLASSES = (
    *("Arcee", "BertLMHeadModel", "Bloom", "Cohere", "Emu3", "Ernie4_5", "GPTNeoX", "Gemma"),
    *("Glm", "Granite", "Helium", "Llama", "Mistral", "Mixtral", "Qwen3"),
)


def jobs() -> list[dict[str, Any]]:
    """Entries of the manifest, of one mesh each."""
    from benchmarks.zoo import fields

    out: list[dict[str, Any]] = [{"target": str(ROOT / file)} for file in FILES]
    for short in CLASSES:
        name = short if short.endswith("Model") else f"{short}ForCausalLM"
        out.append({"target": f"hf:{name}", "config": fields(name), "batch": 4, "seq": 8})
    return out


def seconds(command: Sequence[str], folder: Path) -> tuple[float, int]:
    """Of the processor, and the exit code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "shardproof", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, done.returncode


def alone(job: dict[str, Any], mesh: str) -> list[str]:
    """The command of one job."""
    words = ["parallelize", job["target"], "--mesh", mesh, "--no-run", "--out", "out", "--force"]
    for key, value in job.get("config", {}).items():
        words += ["--config", f"{key}={json.dumps(value)}"]
    for key in ("batch", "seq"):
        words += [f"--{key}", str(job[key])] if key in job else []
    return words


def measured() -> dict[str, Any]:
    """The batch, then the single commands."""
    asked = jobs()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        manifest = {"defaults": {"mesh": MESHES, "run": False}, "job": asked}
        (folder / "batch.json").write_text(json.dumps(manifest))
        whole, _ = seconds(("batch", "batch.json", "--out", "runs", "--jobs", "2"), folder)
        summary = json.loads((folder / "runs" / "summary.json").read_text())
        rows = {f"{row['target']} {row['mesh']}": row["status"] for row in summary["jobs"]}
        print(f"batch: {whole:.0f} s, {len(rows)} jobs", file=sys.stderr)
        single: dict[str, float] = {}
        for i, job in enumerate(asked):
            mesh = MESHES[i % len(MESHES)]
            spent, code = seconds(alone(job, mesh), folder)
            single[f"{Path(job['target']).name} {mesh}"] = round(spent, 1)
            print(f"{job['target']} {mesh}: {spent:.1f} s, exit code {code}", file=sys.stderr)
    proved = sum(status == "proved" for status in rows.values())
    return {
        "machine": described(),
        "jobs": len(rows),
        "proved": proved,
        "batch_s": round(whole, 1),
        "single": single,
        "single_s": round(sum(single.values()) * len(rows) / len(single), 1),
    }


def text(found: dict[str, Any]) -> str:
    ratio, machine = found["batch_s"] / found["single_s"], found["machine"]
    return (
        f"A batch of {found['jobs']} jobs (25 models on four meshes, {found['proved']} proved) "
        f"takes {found['batch_s']:.0f} processor seconds on {machine['cores']} cores. Single "
        f"commands would take {found['single_s']:.0f}, extrapolated from {len(found['single'])} "
        f"of them: a batch takes {ratio:.0%} (`python -m benchmarks.batch_scale`).\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.batch_scale")
    parser.add_argument("--page", action="store_true", help="write the page alone; run nothing")
    if not parser.parse_args().page:
        RESULTS.write_text(json.dumps(measured(), indent=1) + "\n")
    write(DOCS / "batch.md", "scale", text(json.loads(RESULTS.read_text())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
