"""`python -m benchmarks.repositories CLONES [NAME ...]`: from a clone to three training steps.

CLONES is a folder of clones, each under the name of its repository. A clone is copied, a file of
`targets/` put into it that builds the model small, and `parallelize --launcher` run as it is typed.
Then `git apply` applies the patch, and the launcher takes three steps under torchrun and on one
device: both must print the same losses and norms. Nothing else of a clone is changed.

Of those that `DRAWN` lists, `parallelize --run` is tried alone: they were named before any was
tried, and `first` says on which meshes a useful patch was proved and run before anything of
shardproof was changed for them.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

TARGETS = Path(__file__).parent / "targets"
MESHES = {"tp=2": 2, "dp=2,tp=2": 4}
IDS = "i64[4,32]<64"
STEPS = 3
CLOSE = 1e-5
"""By how much, relative, the losses and norms of both may differ."""


@dataclass(frozen=True)
class Repository:
    """A repository, the target that is added to it, and what its model is given."""

    name: str
    target: str
    inputs: tuple[str, ...]
    first: tuple[str, ...] = ()
    """Of a drawn one: the meshes on which it went well the first time."""


TRIED = (
    Repository("nanoGPT", "small", (f"idx={IDS}", f"targets={IDS}")),
    Repository("minGPT", "small", (f"idx={IDS}", f"targets={IDS}")),
    Repository("llama2.c", "Loss", (f"tokens={IDS}", f"targets={IDS}")),
    Repository(
        "whisper", "Loss", ("mel=f32[4,8,32]", "tokens=i64[4,16]<64", "targets=i64[4,16]<64")
    ),
    Repository(
        "DiT", "Loss", ("x=f32[4,4,8,8]", "t=i64[4]<1000", "y=i64[4]<10", "noise=f32[4,4,8,8]")
    ),
)

BOTH = tuple(MESHES)
SERIES = (
    *("x_enc=f32[4,16,6]", "x_mark_enc=f32[4,16,4]"),
    *("x_dec=f32[4,16,6]", "x_mark_dec=f32[4,16,4]"),
)
TOKENS = "i64[4,16]<64"
DRAWN = (
    Repository("dino", "small", ("x=f32[4,3,32,32]",), BOTH),
    Repository("litgpt", "small", (f"idx={TOKENS}",), BOTH),
    Repository("gemma_pytorch", "Net", (f"ids={TOKENS}",)),
    Repository("mamba-minimal", "small", (f"input_ids={TOKENS}",)),
    Repository("guided-diffusion", "small", ("x=f32[4,3,8,8]", "timesteps=f32[4]")),
    Repository("segment-anything", "small", ("x=f32[4,3,32,32]",)),
    Repository("Time-Series-Library", "transformer", SERIES, BOTH),
    Repository("Time-Series-Library", "itransformer", SERIES, BOTH),
    Repository("Time-Series-Library", "patchtst", SERIES, ("tp=2",)),
    Repository("U-ViT", "small", ("x=f32[4,3,8,8]", "timesteps=f32[4]", "y=i64[4]<10"), BOTH),
    Repository("vits", "small", ("x=f32[4,64,16]", "x_mask=f32[4,1,16]"), ("tp=2",)),
    Repository("taming-transformers", "small", (f"idx={TOKENS}",), BOTH),
)


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder)}
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)


def steps(words: list[str], folder: Path) -> list[str]:
    """What a launcher prints of each step."""
    ran = run([*words, "--steps", str(STEPS)], folder)
    return [line for line in ran.stdout.splitlines() if line.startswith("step ")]


def alike(ranks: list[str], alone: list[str]) -> bool:
    """Whether the numbers of all steps agree, as far as float32 holds them."""
    both = [[float(n) for n in re.findall(r"\d+\.\d+", " ".join(s))] for s in (ranks, alone)]
    return len(both[0]) == len(both[1]) and all(
        math.isclose(a, b, rel_tol=CLOSE) for a, b in zip(*both, strict=True)
    )


def tried(one: Repository, clone: Path, mesh: str) -> str:
    """What came of a repository on a mesh, in words."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, out = Path(scratch) / one.name, Path(scratch) / "out"
        shutil.copytree(clone, folder, ignore=shutil.ignore_patterns(".git"))
        shutil.copy(TARGETS / f"{one.name}.py", folder / "train_target.py")
        given = [word for item in one.inputs for word in ("--input", item)]
        words = ["parallelize", f"train_target.py:{one.target}", *given, "--mesh", mesh]
        launched = ["--launcher"] if one in TRIED else []
        words += ["--run", *launched, "--require-useful", "--out", str(out)]
        print("$ shardproof", shlex.join(words), file=sys.stderr)
        ran = run([sys.executable, "-m", "shardproof", *words], folder)
        if ran.returncode:
            return f"exit code {ran.returncode}: {(ran.stdout + ran.stderr).splitlines()[-1]}"
        run(["git", "init", "-q", "."], folder)
        applied = run(["git", "apply", str(out / "patch.diff")], folder)
        if applied.returncode:
            return f"git apply: {applied.stderr.splitlines()[-1]}"
        if not launched:
            return f"proved and run{'' if mesh in one.first else ' (not the first time)'}"
        launcher = str(out / "train_parallel.py")
        ranks = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node"]
        found = steps([*ranks, str(MESHES[mesh]), launcher], folder)
        alone = steps([sys.executable, launcher], folder)
        if len(alone) != STEPS or not alike(found, alone):
            return f"ranks: {found}; one device: {alone}"
        return f"proved, {STEPS} steps equal: {alone[-1].partition(': ')[2]}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.repositories")
    parser.add_argument("clones", type=Path, help="a folder of clones")
    parser.add_argument("names", nargs="*", help="of these alone")
    parser.add_argument("--mesh", choices=MESHES, action="append")
    asked = parser.parse_args()
    wrong = 0
    for one in (*TRIED, *DRAWN):
        if asked.names and one.name not in asked.names:
            continue
        for mesh in asked.mesh or MESHES:
            start = time.monotonic()
            came = tried(one, asked.clones / one.name, mesh)
            wrong += not came.startswith("proved")
            took = f"{time.monotonic() - start:.0f} s"
            print(f"| {one.name} | {one.target} | {mesh} | {came} | {took} |", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
