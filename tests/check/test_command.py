"""The command, in a process of its own, on the examples of the docs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", "agent", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_a_wrong_module_is_refuted_at_its_line_and_mended(tmp_path):
    kept = tmp_path / "kept"
    done = run(
        *("check", "examples/check/wrong.py:WrongMLP", "--against", "examples/check/model.py:MLP"),
        *("--mesh", "tp=2", "--json", "--keep", str(kept)),
    )
    assert done.returncode == 1, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[-1]["event"] == "run.completed"
    found = next(e for e in events if e["event"] == "verdict")
    lines = (ROOT / "examples/check/wrong.py").read_text().splitlines()
    wrong = next(n for n, line in enumerate(lines, 1) if "self.down.bias)" in line)
    assert found["verdict"] == "refuted"
    assert found["where"].startswith(f"wrong.py:{wrong} ")
    assert "verified fixes: the all_reduce" in found["message"]
    contract = next(e for e in events if e["event"] == "contract")["lines"]
    assert "parameter up.weight [16, 8]: S(0)@tp (from its shape)" in contract
    files = ("--sequential", "one.txt"), ("--distributed", "ranks.txt")
    again = run(
        "verify",
        *(part for option, name in files for part in (option, str(kept / name))),
        *("--contract", str(kept / "contract.json")),
    )
    assert again.returncode == 1, again.stderr


def test_what_cannot_be_used_ends_in_one_error():
    done = run(
        "check", "examples/check/parallel.py:ParallelMLP", "--against", "no.py:MLP", "--mesh=x"
    )
    assert done.returncode == 2
    assert "cannot read the mesh dim 'x'" in done.stderr
    assert "Traceback" not in done.stderr
