"""`python -m benchmarks.entered [ROOT ...]`: what `parallelize` of a small model costs.

For each checkout (by default this one) one command is run twice: once to measure the processor
seconds of all its processes, once with a hook that notes each file of ours of which a named
function was entered, in whatever process. Class bodies, lambdas and comprehensions do not count.
"""

from __future__ import annotations

import compileall
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("shardproof", "agent", "prompts", "synthesis", "verifier")
WORDS = ("parallelize", str(ROOT / "examples" / "mlp.py") + ":MLP", "--mesh", "tp=2", "--no-run")
RUNS = 3
HOOK = """
import os, sys, threading
_seen = set()
def _entered(frame, event, arg):
    code = frame.f_code
    name = code.co_filename
    named = code.co_flags & 1 and code.co_name[:1] != "<"
    if event != "call" or name in _seen or not named or not name.startswith(HERE):
        return
    _seen.add(name)
    with open(os.path.join(NOTED, str(os.getpid())), "a") as file:
        file.write(name[len(HERE):] + "\\n")
sys.setprofile(_entered)
threading.setprofile(_entered)
"""


def copied(root: Path, scratch: Path) -> Path:
    """The packages of a checkout alone, each module once."""
    place = scratch / "code"
    place.mkdir()
    skipped = shutil.ignore_patterns("__pycache__")
    for name in PACKAGES:
        if (root / name).is_dir() and not (root / "shardproof" / name).is_dir():
            shutil.copytree(root / name, place / name, ignore=skipped)
    compileall.compile_dir(place, quiet=1)
    return place


def run(root: Path, place: Path, scratch: Path) -> float:
    """Processor seconds of one run and all its processes."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    module, _, name = project["scripts"]["shardproof"].partition(":")
    code = f"import sys; from {module} import {name}; sys.exit({name}())"
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env |= {"PYTHONPATH": str(place), "OMP_NUM_THREADS": "1"}
    out = scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", code, *WORDS, "--out", str(out)],
        env=env,
        cwd=scratch,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(root: Path) -> dict[str, object]:
    """Seconds and entered files of one checkout."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        place, noted = copied(root, scratch), scratch / "noted"
        noted.mkdir()
        run(root, place, scratch)
        seconds = sorted(run(root, place, scratch) for _ in range(RUNS))
        head = f"HERE = {str(place) + os.sep!r}\nNOTED = {str(noted)!r}\n"
        (place / "sitecustomize.py").write_text(head + HOOK)
        run(root, place, scratch)
        by_process = [
            {name for name in p.read_text().split() if name.endswith(".py")} - {"sitecustomize.py"}
            for p in noted.iterdir()
        ]
        entered = set[str]().union(*by_process)
        return {
            "root": str(root),
            "seconds": round(seconds[RUNS // 2], 2),
            "all_seconds": [round(s, 2) for s in seconds],
            "processes": len(by_process),
            "files": len(entered),
            "files_of_the_main_process": max(map(len, by_process)),
            "entered": sorted(entered),
        }


if __name__ == "__main__":
    for root in map(Path, sys.argv[1:] or [ROOT]):
        print(json.dumps(measured(root.resolve())))
