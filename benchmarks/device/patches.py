"""`python -m benchmarks.device.patches FOLDER`: patches run on GPUs, against one process.

`--make` writes them first, on any machine with all of shardproof: for each target the patched tree
and the job, as `shardproof parallelize` runs it on processors. Then every rank is a process with
NCCL; ranks share the GPUs there are. Prints the largest relative difference in float64.
"""

# pyright: basic

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from shardproof.synthesis.execute.job import Job
from shardproof.synthesis.frontends.torch.captured import dump, load

ROOT = Path(__file__).resolve().parents[2]
KINDS = "tests/kinds/models"
LLAMA = ("hf:LlamaForCausalLM", "--config", "examples/llama-small.json")
TARGETS = {
    "nanogpt tp=2": ("examples/nanogpt.py:GPT", "--mesh", "tp=2"),
    "nanogpt dp=2,tp=2": ("examples/nanogpt.py:GPT", "--mesh", "dp=2,tp=2"),
    "llama tp=2": (*LLAMA, "--mesh", "tp=2"),
    "llama dp=4": (*LLAMA, "--mesh", "dp=4"),
    "experts tp=2": (f"{KINDS}/language.py:Experts", "--mesh", "tp=2"),
    "resnet dp=2": (f"{KINDS}/resnet.py:ResNet", "--mesh", "dp=2"),
    "resnet tp=2": (f"{KINDS}/resnet.py:ResNet", "--mesh", "tp=2"),
    "unet tp=2": (f"{KINDS}/unet.py:UNet", "--mesh", "tp=2"),
    "recommender tp=2": (f"{KINDS}/recommender.py:DLRM", "--mesh", "tp=2"),
    "vision tp=2": (f"{KINDS}/images.py:ViT", "--mesh", "tp=2"),
    "diffusion tp=2": (f"{KINDS}/diffusion.py:DiT", "--mesh", "tp=2"),
}
LIMIT = 120.0
"""Seconds of a run."""
RUN = "import sys, pathlib, benchmarks.patches.compare as c; c.run(pathlib.Path(sys.argv[1]))"


def make(folder: Path) -> None:
    """Plan each target, and keep what its run needs: the same job that the command runs."""
    import shardproof.agent.pipeline.finishing as finishing
    from shardproof.agent.cli.main import app

    for name, words in TARGETS.items():
        kept: list[tuple[Job, Path]] = []

        def keep(request, patch, plan, train=False, kept=kept, name=name, **_):
            from shardproof.synthesis.execute.job import patched_folder, place_of
            from shardproof.synthesis.execute.run.running import Ran

            at = folder / name.replace(" ", "_").replace("=", "")
            file, root = place_of(request, patch)
            with patched_folder(patch, root) as made:
                shutil.copytree(made, at, symlinks=True)
            job = Job(request, plan, "float64", file, str(root or ""), patch.function, train=train)
            (at / "job.json").write_text(dump(Job, job))
            kept.append((job, at))
            return Ran(ranks=plan.mesh.size)

        finishing.execute = keep
        out = folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        app(["parallelize", *words, "--run", "--out", str(out)], standalone_mode=False)
        print(f"{name}: {'made' if kept else 'no patch'}", flush=True)


def run(folder: Path, device: str) -> bool:
    """Run each job there; whether all agree to 1e-9."""
    good = True
    os.environ |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    for at in sorted(path.parent for path in folder.glob("*/job.json")):
        job = replace(load(Job, (at / "job.json").read_text()), device=device)
        start = time.perf_counter()
        row = {"kind": "patch", "patch": at.name, "ranks": job.plan.mesh.size, "device": device}
        (at / "job.json").write_text(dump(Job, job))
        (at / "rendezvous").unlink(missing_ok=True)
        command = [sys.executable, "-c", RUN, str(at.resolve())]
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)
            if done.returncode:
                row["error"] = (done.stdout + done.stderr)[-600:]
            else:
                found = json.loads((at / "result.json").read_text())["differences"]
                row |= {"tensors": len(found), "difference": max(d["relative"] for d in found)}
        except subprocess.TimeoutExpired:
            row["error"] = f"no result after {LIMIT:.0f} s"
        good = good and row.get("difference", 1.0) <= 1e-9
        print(json.dumps({**row, "seconds": round(time.perf_counter() - start, 1)}), flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    if args.make:
        args.folder.mkdir(parents=True, exist_ok=True)
        make(args.folder)
        return 0
    return int(not run(args.folder, args.device))


if __name__ == "__main__":
    sys.exit(main())
