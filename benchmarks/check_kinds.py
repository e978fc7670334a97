"""`python -m benchmarks.check_kinds`: what `check` costs for a deep model on a large mesh.

A Llama is made parallel by `parallelize`, and its patched class is given to `check`: 4 layers on
dp=2,tp=2, then 48 layers on dp=64,tp=8. Prints the verdict and the processor seconds of each, and
their ratio.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.parallelize import ROOT

SIZES = ((4, "dp=2,tp=2"), (48, "dp=64,tp=8"))
CONFIG = {
    "vocab_size": 4096,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "max_position_embeddings": 64,
    "use_cache": False,
}
BATCH, SEQ = 128, 16
ON_RANKS = """

def on_ranks(mesh, **config):
    return parallelize(build_model(**config), mesh)
"""


def _run(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "shardproof", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    return done.stdout.splitlines()[-1] if done.stdout else done.stderr


def measured(layers: int, mesh: str, folder: Path) -> tuple[str, float]:
    """The verdict of `check`, and its processor seconds, those of its processes too."""
    config, tree = folder / "config.json", folder / "tree"
    config.write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}))
    model, shape = ("hf:LlamaForCausalLM", "--config", str(config)), f"[{BATCH},{SEQ}]"
    sizes = ("--batch", str(BATCH), "--seq", str(SEQ), "--no-run", "--out", str(folder / "out"))
    _run(folder, "parallelize", *model, "--mesh", mesh, *sizes)
    tree.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    subprocess.run(["git", "apply", str(folder / "out" / "patch.diff")], cwd=tree, check=True)
    (file,) = tree.glob("*.py")
    with file.open("a") as patched:
        patched.write(ON_RANKS)
    words = [f"{file}:on_ranks", "--against", *model, "--mesh", mesh, "--no-run"]
    for name in ("input_ids", "labels"):
        words += ["--input", f"{name}=i64{shape}<{CONFIG['vocab_size']}"]
        words += ["--input-layout", f"{name}=S(0)@dp"]
    words += [
        "--output-layout",
        "logits=S(0)@dp,S(2)@tp",
        "--repair-seconds",
        "0",
        "--no-full-depth",
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    verdict = _run(folder, "check", *words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return verdict, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    rows: list[tuple[str, float]] = []
    for layers, mesh in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measured(layers, mesh, Path(folder)))
        print(f"{layers} layers on {mesh}: {rows[-1][0]}, {rows[-1][1]:.1f} s", flush=True)
    (first, small), (second, large) = rows
    print(f"ratio {large / small:.2f}")
    return int((first, second) != ("proved", "proved"))


if __name__ == "__main__":
    sys.exit(main())
