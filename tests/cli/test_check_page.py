"""The commands of docs/check.md do what the page says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^shardproof verify .*$", PAGE, re.MULTILINE)
OTHERS = [c for c in re.findall(r"^\| `(shardproof [^`]* [^`]*)`", PAGE, re.M) if "FILE" not in c]


def run(command: str) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)[1:]
    return subprocess.run(
        [sys.executable, "-m", "shardproof", *words], cwd=ROOT, capture_output=True, text=True
    )


def test_the_first_is_refuted_and_the_second_proved() -> None:
    wrong, right = map(run, COMMANDS)
    assert (wrong.returncode, right.returncode) == (1, 0)
    assert "mlp_tp.py:23" in wrong.stderr
    assert "smallest:" in wrong.stderr
    assert right.stdout == "proved\n"


@pytest.mark.parametrize("command", [c for c in OTHERS if len(c.split()) > 2])
def test_other_commands_end_well(command: str) -> None:
    done = run(command)
    assert done.returncode == 0, done.stderr
    assert done.stdout
