"""Sessions in a folder of their own, driven without a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shardproof.agent.chat.engine import Done, Session
from shardproof.agent.chat.models import Asker, Source
from shardproof.agent.llm.client import Model
from shardproof.agent.run import events

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = "sequential one.txt distributed wrong.txt contract contract.txt"
LOAD = f"/load {PROGRAMS}"


@dataclass
class Heard:
    """A sink that keeps what it is told."""

    seen: list[events.Event] = field(default_factory=list[events.Event])

    def show(self, event: events.Event) -> None:
        self.seen.append(event)

    def note(self, doing: str) -> None:
        return None

    def close(self) -> None:
        return None

    def of(self, kind: type[events.Event]) -> list[events.Event]:  # type: ignore[valid-type]
        return [e for e in self.seen if isinstance(e, kind)]

    @property
    def said(self) -> str:
        """What the last step answered with."""
        started = max(i for i, e in enumerate(self.seen) if isinstance(e, events.StepStarted))
        return "\n".join(e.text for e in self.seen[started:] if isinstance(e, events.Said))

    @property
    def problem(self) -> events.Problem:
        found = [e for e in self.seen if isinstance(e, events.Problem)]
        return found[-1]


@dataclass
class Talk:
    """A session and what was heard of it."""

    session: Session
    heard: Heard

    def __call__(self, line: str) -> Done:
        return self.session.do(line)

    @property
    def said(self) -> str:
        return self.heard.said


Begin = Callable[..., Talk]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small programs, and a state folder beside it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("SHARDPROOF_BASE_URL", "SHARDPROOF_API_KEY", "SHARDPROOF_MODEL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)
    here = tmp_path / "home"
    shutil.copytree(ROOT / "examples" / "verify", here)
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def begin(home: Path) -> Iterator[Begin]:
    """Opens sessions; all are closed afterwards."""
    del home
    opened: list[Session] = []

    def make(model: Model | None = None, *, resume: Path | None = None) -> Talk:
        heard = Heard()
        asker = Asker(Source.NONE if model is None else model)
        if resume is None:
            session = Session.new([heard], asker)
        else:
            session = Session.resumed(resume, [heard], asker)
        opened.append(session)
        return Talk(session, heard)

    yield make
    for session in opened:
        session.journal.close()


def environment(folder: Path, **extra: str) -> dict[str, str]:
    """Of a process of its own, with its state under `folder` and no endpoint."""
    dropped = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    kept = {k: v for k, v in os.environ.items() if k.upper() not in dropped}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        **extra,
    }


COMMAND = (sys.executable, "-m", "shardproof")
