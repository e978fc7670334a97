"""`python -m benchmarks.titan_specs [ROW ...]`: plans of ours in the words of torchtitan, trained.

`shardproof parallelize FILE:MODEL --dialect torchtitan` writes a `parallelize_fn` with its
`TrainSpec` and a job config. What is proved is trained for three steps by torchtitan's entry point
on gloo processes, and on one, in float32; then `shardproof check torchtitan:NAME` proves the step
of its trainer with that file. Rows are kept as they come; those that are named are tried again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

FILES = Path(__file__).with_name("published")
ROWS = Path(__file__).with_name("results") / "titan_specs.jsonl"
PAGE = ROWS.with_suffix(".md")
STEPS, SECONDS, BATCH = 3, 600, 4
MODELS = {"TitanLlama": "titan_llama", "llama3": "transformer"}
"""Of `published/titan_models.py`, with the name of the `TrainSpec`."""
MESHES = ("tp=2", "dp=2", "dp=2,tp=2", "dp_replicate=2,dp_shard=2")
HEAD = (
    "# Plans in the words of torchtitan",
    "",
    "Written by `python -m benchmarks.titan_specs`; do not edit.",
    "",
    "`shardproof parallelize titan_models.py:MODEL --mesh MESH --dialect torchtitan`, with",
    "torchtitan 0.2.2. What is proved is trained by its entry point for three steps in float32, on",
    "a gloo process for each rank and on one. Last, `shardproof check torchtitan:NAME` of the step",
    "of its trainer with the written file.",
    "",
    "| model | mesh | written | losses of 3 steps | apart from one process | the trainer's step |",
    "|---|---|---|---|---|---|",
)


def sizes(mesh: str) -> dict[str, int]:
    return {n: int(k) for n, _, k in (part.partition("=") for part in mesh.split(","))}


def shardproof(folder: Path, *words: str) -> str:
    """The verdict of a command, else its first words on an error."""
    command = [sys.executable, "-m", "shardproof", *words, "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    ends = [e for e in events if e["event"] in ("verdict", "error")]
    end = ends[-1] if ends else {"message": done.stderr[-200:]}
    return str(end.get("verdict") or end.get("message"))


def losses(folder: Path, job: str, ranks: int, *words: str) -> list[float]:
    """Of the first steps, as the trainer tells them."""
    out = folder / f"losses-{ranks}.jsonl"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += [str(FILES / "titan_cpu.py"), "--job.config_file", job, "--debug.seed", "7"]
    command += ["--training.steps", str(STEPS), "--metrics.log_freq", "1", *words]
    paths = (str(folder), os.environ.get("PYTHONPATH", ""))
    env = os.environ | {"LOSSES": str(out), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return [json.loads(line)[1] for line in out.read_text().splitlines()]


def row(model: str, mesh: str) -> dict[str, object]:
    """What is written for a model, and what becomes of it."""
    name, ranks = MODELS[model], prod(sizes(mesh).values())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        shutil.copy(FILES / "titan_models.py", folder)
        words = ("--mesh", mesh, "--dialect", "torchtitan", "--no-run", "--out", "out")
        written = shardproof(folder, "parallelize", f"titan_models.py:{model}", *words)
        found: dict[str, object] = {"model": model, "mesh": mesh, "written": written}
        if written != "proved":
            return found
        patch = folder / "out" / "patch.diff"
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        subprocess.run(["git", "apply", str(patch)], cwd=folder, check=True)
        job = f"titan_{name}.toml"
        many = losses(folder, job, ranks)
        degrees = ("data_parallel_replicate", "data_parallel_shard", "tensor_parallel")
        alone = [w for d in degrees for w in (f"--parallelism.{d}_degree", "1")]
        one = losses(folder, job, 1, *alone, "--training.local_batch_size", str(BATCH))
        apart = max(abs(a - b) / abs(b) for a, b in zip(many, one, strict=True))
        step = ("--job-config", job, "--mesh", _called(mesh), "--no-run", "--repair-seconds", "0")
        said = shardproof(folder, "check", f"torchtitan:{name}", *step)
    return {**found, "losses": many, "apart": apart, "step": said}


def _called(mesh: str) -> str:
    """The mesh as `check torchtitan:` calls its dims."""
    return mesh.replace("dp_replicate", "rep").replace("dp_shard", "dp")


def page(rows: Sequence[dict[str, Any]]) -> str:
    lines = list(HEAD)
    for r in rows:
        many = [f"{loss:.6f}" for loss in r.get("losses", [])]
        apart = f"{r['apart']:.1e}" if "apart" in r else ""
        cells = [r["model"], r["mesh"], r["written"], " ".join(many), apart, r.get("step", "")]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def main(names: Sequence[str]) -> int:
    """1 where what is proved trains to other losses, or is not proved."""
    kept = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    rows = {f"{r['model']} {r['mesh']}": r for r in kept}
    for name in [f"{model} {mesh}" for model in MODELS for mesh in MESHES]:
        if name in names or (not names and name not in rows):
            rows[name] = row(*name.split())
            print(rows[name], flush=True)
            ROWS.write_text("".join(json.dumps(r) + "\n" for r in rows.values()))
            PAGE.write_text(page(list(rows.values())))
    wrong = [r for r in rows.values() if r.get("step") != "proved" or r["apart"] > 1e-5]
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
