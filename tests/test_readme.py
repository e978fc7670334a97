"""The README's commands do what it says, and its tables say what the code does."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import Exit

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
LINES = [
    line
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
]
COMMANDS = [line for line in LINES if line.startswith("shardproof ")]
TARGETS = [line.split("#")[0].strip() for line in LINES if line.startswith("make ")]


def test_it_shows_two_make_targets_and_three_commands() -> None:
    assert TARGETS == ["make demo", "make test"]
    assert [c.split()[1] for c in COMMANDS] == ["parallelize", "parallelize", "verify"]


@pytest.mark.parametrize("target", TARGETS)
def test_its_make_targets_exist(target: str) -> None:
    subprocess.run([*target.split(), "--dry-run"], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.torch
@pytest.mark.hf
@pytest.mark.gloo
@pytest.mark.slow
def test_its_commands_end_proved(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for command in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", "agent", *shlex.split(command)[1:]],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        word = "accepted" if " verify " in command else "proved"
        assert done.stdout.startswith(word)


def test_its_exit_codes_are_the_code_s() -> None:
    table = re.findall(r"^\| (\d+) \|", README, re.MULTILINE)
    assert [int(code) for code in table] == [int(code) for code in Exit]


def test_its_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert [t for t in targets if not (ROOT / t).exists()] == []
