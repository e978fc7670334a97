"""A session run again from its transcript: no model, no network, the same events or the first
difference.

What is set to fixed words on both sides: times and peak memory (`at`, `seconds`, measured facts of
phases, rounding that a run of processes stayed within), the root folder, the session's name and
folder, boundary words of prompts. Not run again: steps that were interrupted, and commands that
look at the machine.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from shardproof.agent.chat import journal, registry
from shardproof.agent.chat.engine import Session
from shardproof.agent.chat.models import BOUNDARY, Asker, Recorded
from shardproof.agent.chat.workspace import Workspace
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.run import Outcome, Run

UNMEASURED = frozenset({"candidates", "tried", "claims"})
"""Facts of phases that are counts."""
WIRE = ("model.retried",)
"""Events that tell of the wire; an answer that is replayed meets no wire."""


@dataclass
class Step:
    """A step of a transcript."""

    input: str
    events: list[events.Event] = field(default_factory=list[events.Event])
    exit: int | None = None
    """None: it never ended."""
    fresh: bool = False
    """A process began with it: nothing was at hand from the steps before."""


def replay(run: Run, transcript: Path) -> Outcome:
    """Run every step again and compare.

    Raises:
        InputError: no transcript.
    """
    past = journal.read(transcript)
    steps = list(_steps(past.seen))
    recorded: dict[str, list[events.ModelAnswered]] = {}
    for event in (e for step in steps if not _left_out(step) for e in step.events):
        if isinstance(event, events.ModelAnswered):
            recorded.setdefault(event.question, []).append(event)
    with tempfile.TemporaryDirectory(prefix="shardproof-replay-") as scratch:
        root = Path(scratch).resolve() / "root"
        root.mkdir()
        with _inside(root):
            session = Session.new(
                [], Asker(Recorded(recorded)), Path(scratch).resolve() / "session-again"
            )
            session.state_dir = Path(scratch) / "changes"
            try:
                return _compared(run, session, steps, past)
            finally:
                session.close(Exit.PROVED)


def _compared(run: Run, session: Session, steps: list[Step], past: journal.Past) -> Outcome:
    done = skipped = 0
    with run.phase("replay") as phase:
        for number, step in enumerate(steps, 1):
            if step.fresh:
                session.workspace = Workspace(session)
            if _left_out(step):
                skipped += 1
                _taken_over(session, step)
                continue
            _files(session, step)
            heard = _again(session, step, past.root)
            found = _difference(step, heard, past, session)
            if found is not None:
                phase.summary = f"step {number} differs"
                run.emit(
                    events.VerdictReached(
                        verdict="refuted",
                        message=f"step {number}, {step.input.splitlines()[0][:80]}: {found}",
                    )
                )
                return Outcome(Exit.NOT_PROVED, "refuted", answer="differs")
            done += 1
        phase.summary = f"{done} steps the same, {skipped} not run again"
        phase.facts.update({"steps": done, "skipped": skipped})
    return Outcome(Exit.PROVED, answer=phase.summary)


def _steps(seen: list[events.Event]) -> Iterator[Step]:
    step: Step | None = None
    fresh = False
    for event in seen:
        fresh = fresh or isinstance(event, events.SessionOpened)
        if isinstance(event, events.StepStarted):
            if step is not None:
                yield step
            step, fresh = Step(event.input, fresh=fresh), False
        elif step is not None:
            step.events.append(event)
            if isinstance(event, events.StepCompleted):
                step.exit = event.exit_code
                yield step
                step = None
    if step is not None:
        yield step


def _left_out(step: Step) -> bool:
    if step.exit is None or step.exit == int(Exit.INTERRUPTED):
        return True
    if not step.input.startswith("/"):
        return False
    name = re.split(r"\s", step.input[1:], maxsplit=1)[0]
    found = registry.registered().get(name)
    prompt = name == "prompt"  # it names the endpoint
    return prompt or (found is not None and found.machine)


def _taken_over(session: Session, step: Step) -> None:
    """A step that is not run again changes the state as it did."""
    for event in step.events:
        if isinstance(event, events.StepCompleted):
            session.state = session.state.after(event.changes)
    session.step += 1


def _files(session: Session, step: Step) -> None:
    """The files that the step read, as they were."""
    for event in step.events:
        if not isinstance(event, events.FileRead):
            continue
        path = Path(event.path)
        if path.is_absolute():
            continue
        place = session.root / path
        if not place.resolve().is_relative_to(session.root):
            raise InputError("a file outside of the folder of the session", where=event.path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(event.text, encoding="utf-8", newline="")


def _again(session: Session, step: Step, root: str) -> list[events.Event]:
    agreed = [e.yes for e in step.events if isinstance(e, events.Agreed)]
    session.agree = lambda _: agreed.pop(0) if agreed else False
    session.do(step.input.replace(root, str(session.root)))
    return session.run.seen[1:]  # without step.started


def _difference(
    step: Step, heard: list[events.Event], past: journal.Past, session: Session
) -> str | None:
    then, now = places(past.seen), places([session.opened])
    old = [settled(e, then) for e in step.events if e.event not in WIRE]
    new = [settled(e, now) for e in heard if e.event not in WIRE]
    for before, after in zip(old, new, strict=False):
        if before != after:
            return f"\n- {_cut(before, after)}\n+ {_cut(after, before)}"
    if len(old) != len(new):
        longer, sign = (old, "-") if len(old) > len(new) else (new, "+")
        return f"\n{sign} {longer[min(len(old), len(new))][:300]}"
    return None


def _cut(text: str, other: str) -> str:
    """The part of a line around where it differs from another."""
    at = next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), 0)
    start = max(0, at - 80)
    return (
        f"{'...' if start else ''}{text[start : at + 160]}{'...' if at + 160 < len(text) else ''}"
    )


def places(seen: Iterable[events.Event]) -> list[tuple[str, str]]:
    """(what names a place of this run, the fixed word for it), the longest first."""
    found: dict[str, str] = {}
    for event in seen:
        if isinstance(event, events.SessionOpened):
            found |= {event.folder: "<folder>", event.root: "<root>", event.session: "<session>"}
    return sorted(((k, v) for k, v in found.items() if k), key=lambda p: -len(p[0]))


def settled(event: events.Event, named: list[tuple[str, str]]) -> str:
    """An event as one line in which a replay must agree byte for byte."""
    data = event.model_dump(mode="json")
    for name in ("at", "seconds"):
        if name in data:
            data[name] = 0
    if isinstance(event, events.Executed) and event.agrees:
        data["largest_relative_difference"] = 0
    if isinstance(event, events.PhaseCompleted):
        facts = cast(dict[str, Any], data["facts"])
        data["facts"] = {k: _count(k, v) for k, v in facts.items()}
    text = json.dumps(data, sort_keys=True, ensure_ascii=True)
    for place, word in named:
        text = text.replace(json.dumps(place)[1:-1], word)
    return BOUNDARY.sub("<boundary>", text)


def _count(name: str, value: Any) -> Any:
    """A fact that a replay must come to again; 0 for what was measured."""
    measured = isinstance(value, float) or name == "peak_bytes"
    return 0 if measured and name not in UNMEASURED else value


@contextmanager
def _inside(folder: Path) -> Generator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
