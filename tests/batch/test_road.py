"""Real jobs: captured once, each proved in a process of its own, one of them shot down."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.commands import COMMAND, Command

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = """
[defaults]
mesh = ["tp=2", "dp=2"]
run = false
[[job]]
name = "mlp"
target = "mlp.py:MLP"
[[job]]
name = "shot"
target = "mlp.py:MLP"
mesh = "tp=4"
[[job]]
name = "branches"
target = "branches.py:Net"
"""
BRANCHES = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 4)
    def forward(self, x):
        y = self.up(x)
        return y if y.sum() > 0 else -y

def example_inputs():
    return {"x": torch.randn(2, 4)}
"""
SHOT = """
import os, sys

def shoot(event, args):
    if event == "os.mkdir" and "jobs/.shot." in str(args[0]):
        os.kill(os.getpid(), 9)

if "batch.toml" not in sys.orig_argv:
    sys.addaudithook(shoot)
"""
"""What a job's process does at the first folder that it makes."""


@pytest.mark.torch
@pytest.mark.slow
def test_models_times_meshes_with_a_crash_and_a_refusal(here: Command, tmp_path: Path) -> None:
    (tmp_path / "mlp.py").write_text((ROOT / "examples" / "mlp.py").read_text())
    (tmp_path / "branches.py").write_text(BRANCHES)
    (tmp_path / "batch.toml").write_text(MANIFEST)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SHOT)
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT)])

    done = subprocess.run(
        [*COMMAND, "batch", "batch.toml", "--out", "runs", "--jobs", "2", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 1, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["event"], last["exit_code"]) == ("run.completed", 1)
    summary = json.loads((tmp_path / "runs" / "summary.json").read_text())
    rows = {row["name"]: row for row in summary["jobs"]}
    assert {name: row["status"] for name, row in rows.items()} == {
        "mlp-tp2": "proved",
        "mlp-dp2": "proved",
        "shot": "failed",
        "branches-tp2": "refused",
        "branches-dp2": "refused",
    }
    assert rows["shot"]["exit_code"] == -9
    assert (summary["models"], summary["captures"], summary["reused"]) == (2, 2, 2)
    assert [sorted(g["jobs"]) for g in summary["causes"] if g["status"] == "refused"] == [
        ["branches-dp2", "branches-tp2"]
    ]
    assert sum(row["seconds"] == 0 for row in rows.values() if row["status"] == "refused") == 1
    checked = here("verify", "runs", cwd=tmp_path)
    assert checked.code == 1, checked.err
    assert sorted(checked.out.splitlines()) == [
        "accepted    mlp-dp2",
        "accepted    mlp-tp2",
        "failed      shot",
        "refused     branches-dp2",
        "refused     branches-tp2",
    ]
    shown = here("diff", "runs", cwd=tmp_path)
    assert (shown.code, "runs/jobs/NAME" in shown.err) == (2, True)
    assert here("verify", "runs/jobs/mlp-tp2", cwd=tmp_path).code == 0
    certificate = tmp_path / "runs" / "jobs" / "mlp-tp2" / "certificate.json"
    certificate.write_text(certificate.read_text() + " ")
    assert "no longer proved  mlp-tp2" in here("verify", "runs", cwd=tmp_path).out
