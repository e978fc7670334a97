"""Runs the real command, in a process of its own or in this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shardproof.agent.cli.main import main
from shardproof.synthesis.execute.run.launcher import shared

ROOT = Path(__file__).resolve().parents[1]
COMMAND = (sys.executable, "-m", "shardproof")


def environment(**extra: str) -> dict[str, str]:
    """As the caller's, with the project importable from anywhere and no terminal colours. Runs of
    patches share one process that has imported PyTorch."""
    return {**os.environ, **shared(""), "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **extra}


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def last(self) -> dict[str, Any]:
        return self.events[-1]


Command = Callable[..., Done]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Call with arguments; runs in an empty folder, or in `cwd`."""
    home = tmp_path / "cwd"
    home.mkdir()

    def run(*arguments: str, cwd: Path = home, seconds: float = 120, **extra: str) -> Done:
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=cwd,
            env=environment(**extra),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Command:
    """As `command`, in this process: PyTorch is imported once for all that use it."""
    home = tmp_path / "cwd"
    home.mkdir()

    def run(*arguments: str, cwd: Path = home, seconds: float = 120, **extra: str) -> Done:
        del seconds
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["shardproof", *arguments])
        for name, value in {"NO_COLOR": "1", **extra}.items():
            monkeypatch.setenv(name, value)
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return Done(int(ended.value.code or 0), out, err)

    return run
