"""A folder with a model and a manifest, and a batch whose processes only act as jobs."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shardproof.agent.batch import command, keys
from shardproof.agent.run import events
from shardproof.agent.run.run import Outcome, Run, failed
from tests.batch.driver import start

ROOT = Path(__file__).resolve().parents[2]


class Heard:
    """Keeps events."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []

    def show(self, event: events.Event) -> None:
        self.events.append(event)

    def note(self, doing: str) -> None:
        return None

    def close(self) -> None:
        return None


@dataclass(frozen=True)
class Done:
    code: int
    outcome: Outcome
    events: list[events.Event]

    def problem(self) -> events.Problem:
        return next(e for e in self.events if isinstance(e, events.Problem))


@dataclass
class Lab:
    """Where batches are tried."""

    folder: Path
    patch: pytest.MonkeyPatch

    @property
    def out(self) -> Path:
        return self.folder / "runs"

    def write(self, text: str, name: str = "batch.toml") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def jobs(self, *names: str, more: str = "") -> Path:
        """A manifest of jobs whose names say what they do; each is about a model of its own."""
        text = '[defaults]\nmesh = "tp=2"\n'
        for name in names:
            text += f'[[job]]\nname = "{name}"\ntarget = "m.py:M"\nconfig = {{ n = "{name}" }}\n'
        return self.write(text + more)

    def batch(self, *what: str | Path, begin: Any = start, **asked: Any) -> Done:
        heard = Heard()
        run = Run([heard])
        wanted = command.Batch(what=tuple(map(str, what)), out=self.out, **{"workers": 2, **asked})
        try:
            outcome = command.batch(run, wanted, begin)
        except Exception as error:  # noqa: BLE001
            outcome = failed(run, error, ())
        return Done(int(outcome.exit), outcome, heard.events)

    def summary(self) -> dict[str, Any]:
        return json.loads((self.out / "summary.json").read_text())

    def statuses(self) -> dict[str, str]:
        return {row["name"]: row["status"] for row in self.summary()["jobs"]}

    def counted(self) -> list[str]:
        """Names of the jobs whose process was started, in order."""
        path = self.folder / "started"
        return path.read_text().split() if path.exists() else []

    def process(self, manifest: Path, *words: str) -> subprocess.Popen[str]:
        """The batch in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "tests.batch.driver", str(manifest), str(self.out), *words],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    (tmp_path / "m.py").write_text("class M: ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(keys, "ours", lambda: {"version": "fixed"})
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Lab(tmp_path, monkeypatch)
