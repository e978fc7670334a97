"""Sessions that tasks begin with: made once, copied for each task, always in the same folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardproof.agent.chat import journal
from shardproof.agent.chat.engine import Session
from shardproof.agent.chat.models import Asker, Source
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit

ROOT = Path(__file__).resolve().parents[2]
FILES = ("nanogpt.py", "llama3-8b.json", "verify/one.txt", "verify/wrong.txt")
FILES = (*FILES, "verify/right.txt", "verify/contract.txt")
LLAMA = "/load hf:LlamaForCausalLM --config llama3-8b.json --batch 8 --seq 512"
PROGRAMS = "/load sequential one.txt distributed wrong.txt contract contract.txt"
BASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "empty": ("", ("/settings run never",)),
    "gpt": ("empty", ("/load nanogpt.py:GPT --batch 8",)),
    "gpt planned": ("gpt", ("/mesh tp=2", "/plan")),
    "gpt pinned": ("gpt planned", ("/pin h.*.mlp.c_fc replicate", "/plan")),
    "gpt proved": ("gpt planned", ("/verify",)),
    "gpt applied": ("gpt proved", ("/apply --yes",)),
    "gpt undone": ("gpt applied", ("/undo",)),
    "llama": ("empty", (LLAMA,)),
    "llama planned": ("llama", ("/mesh tp=8", "/plan")),
    "wrong": ("empty", (PROGRAMS,)),
    "refuted": ("wrong", ("/verify",)),
}
"""Name to the base that it goes on from, and the inputs that make it."""


class Heard(events.Sink):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[events.Event] = []

    def show(self, event: events.Event) -> None:
        self.seen.append(event)


@dataclass(frozen=True)
class Base:
    """A session that is closed, with the files of its folder and what it had at hand."""

    folder: Path
    held: dict[str, Any]


class Bases:
    """Makes bases as they are asked for."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch.resolve()
        self.tree = self.scratch / "tree"
        self._made: dict[str, Base] = {}
        self._count = 0

    def begin(self, name: str, asker: Asker | None = None) -> tuple[Session, Heard]:
        """A copy of a base, in its folder as it was then."""
        base = self._base(name)
        for part in ("tree", "changes"):
            shutil.rmtree(self.scratch / part, ignore_errors=True)
            shutil.copytree(base.folder / part, self.scratch / part)
        os.chdir(self.tree)
        heard = Heard()
        folder = self._fresh()
        journal.copy(base.folder / "session", folder)
        session = Session.resumed(folder, [heard], asker or Asker(Source.NONE))
        return self._ready(session, base.held), heard

    def _ready(self, session: Session, held: dict[str, Any]) -> Session:
        session.state_dir = self.scratch / "changes"
        session.workspace.back_to(dict(held))
        return session

    def _fresh(self) -> Path:
        self._count += 1
        return self.scratch / "sessions" / f"task-{self._count}"

    def _base(self, name: str) -> Base:
        if name not in self._made:
            before, lines = BASES[name]
            self._made[name] = self._make(name, self._first(before), lines)
        return self._made[name]

    def _first(self, before: str) -> Session:
        if before:
            return self.begin(before)[0]
        for part in ("tree", "changes"):
            (self.scratch / part).mkdir(parents=True, exist_ok=True)
        for file in FILES:
            shutil.copy(ROOT / "examples" / file, self.tree)
        os.chdir(self.tree)
        return self._ready(Session.new([], Asker(Source.NONE), self._fresh()), {})

    def _make(self, name: str, session: Session, lines: Sequence[str]) -> Base:
        for line in lines:
            done = session.do(line)
            if done.outcome.exit not in (Exit.PROVED, Exit.NOT_PROVED):
                said = [e.message for e in session.run.seen if isinstance(e, events.Problem)]
                raise RuntimeError(f"the base {name!r} is not made: {line}: {'; '.join(said)}")
        session.close()
        kept = self.scratch / "bases" / name
        for part in ("tree", "changes"):
            shutil.copytree(self.scratch / part, kept / part)
        shutil.copytree(session.journal.folder, kept / "session")
        return Base(kept, session.workspace.held())
