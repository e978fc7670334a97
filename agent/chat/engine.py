"""The engine of a session: one line in, one step of events out. It knows no terminal."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

from shardproof.agent import __version__
from shardproof.agent.chat import journal, registry
from shardproof.agent.chat.journal import Artifacts, Journal
from shardproof.agent.chat.models import Asker, Source
from shardproof.agent.chat.state import Judged, Model, State
from shardproof.agent.chat.wording import in_session
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.run import Outcome, Run, Terminated, completed, failed, interruptible

LONGEST_INPUT = 200_000
"""Characters of one input."""


@dataclass(frozen=True)
class Done:
    """How a step ended."""

    step: int
    outcome: Outcome
    quit: bool = False


class Session:
    """State, journal and events of one session; commands work on it."""

    def __init__(self, folder: Path, sinks: list[events.Sink], asker: Asker | None = None) -> None:
        from shardproof.agent.chat.workspace import Workspace

        self.journal = Journal(folder)
        self.artifacts = Artifacts(folder / "artifacts")
        self.run = Run([self.journal, *sinks])
        self.state = State()
        self.id = folder.name
        self.root = Path.cwd()
        self.step = 0
        self.ended = 0
        """The last step that ended."""
        self.asker = asker or Asker(Source.USER)
        self.asker.emit = self.run.emit
        self.workspace = Workspace(self)
        self.opened: events.SessionOpened
        self.leaving = False
        self.move_to: Path | None = None
        """A session that goes on instead of this one, after the step."""
        self.last = Outcome(Exit.PROVED)
        self.agree: Callable[[str], bool] | None = None
        """Asks the owner; None where nobody is there."""
        self.withheld: frozenset[str] = frozenset()
        """Commands that the model is not offered."""
        self.state_dir: Path | None = None
        """Where images of changed files are kept; None: in the user's state folder."""

    # -- opening and closing -----------------------------------------------------------------

    @staticmethod
    def new(
        sinks: list[events.Sink], asker: Asker | None = None, folder: Path | None = None
    ) -> Session:
        """A fresh session in the working directory.

        Raises:
            InputError: it cannot be kept on disk.
        """
        place = folder or journal.folder_of_all() / journal.new_id()
        session = Session(place, sinks, asker)
        session.journal.open()
        session._begin("new")
        return session

    @staticmethod
    def resumed(
        folder: Path, sinks: list[events.Sink], asker: Asker | None = None, *, forked_from: str = ""
    ) -> Session:
        """The session in a folder, as its last whole step left it.

        Raises:
            InputError: it cannot be read, or another process has it open.
        """
        session = Session(folder, sinks, asker)
        session.journal.open()  # held before it is read: nobody writes meanwhile
        past = journal.read(session.journal.path)
        session.journal.close()
        session.journal.open(past.whole)
        session.state, session.step = past.state, past.steps
        session.asker.spent = past.spent
        session.asker.budget = past.state.budget
        session.asker.named = past.state.settings.model
        session.root = Path(past.root)
        if session.root.is_dir():
            os.chdir(session.root)
        session._begin("forked" if forked_from else "resumed", forked_from, past.lost)
        if not session.root.is_dir():
            session.run.warn(f"the folder of the session is gone: {past.root}")
        return session

    def moved(self, sinks: list[events.Sink]) -> Session:
        """The session that /resume or /fork asked for; this one is closed.

        Raises:
            InputError: it cannot be opened; this one stays open.
        """
        assert self.move_to is not None
        target, fork = self.move_to, not self.move_to.exists()
        if fork:
            journal.copy(self.journal.folder, target)
        asker = Asker(self.asker.source)
        origin = self.id if fork else ""
        other = Session.resumed(target, sinks, asker, forked_from=origin)
        self.run.sinks = [*self.run.sinks[:1]]
        self.close(Exit.PROVED)
        return other

    def _begin(
        self, how: Literal["new", "resumed", "forked"], origin: str = "", lost: str = ""
    ) -> None:
        self.opened = events.SessionOpened(
            session=self.id,
            root=str(self.root),
            folder=str(self.journal.folder),
            how=how,
            origin=origin,
            lost=lost,
        )
        self.run.emit(events.RunStarted(command="chat", arguments=[], version=__version__))
        self.run.emit(self.opened)

    def close(self, exit: Exit | None = None) -> int:
        """The last event, and the exit code it carries: that of the last step."""
        last = self.last if exit is None else Outcome(exit)
        last = Outcome(last.exit, last.verdict, directory=str(self.journal.folder))
        self.run.emit(completed(self.run, last))
        self.asker.close()
        for sink in self.run.sinks:
            sink.close()
        return int(last.exit)

    # -- steps -------------------------------------------------------------------------------

    def do(self, line: str) -> Done:
        """Run one input: a command, or words for the model. What goes wrong is an event.

        A step that failed or was interrupted leaves the state as it was.

        Raises:
            InputError: the step cannot be kept on disk.
            KeyboardInterrupt: Ctrl-C came after the work; where `ended` is the step, it counts.
        """
        line = line.encode("utf-8", "replace").decode().strip()  # no lone surrogates on disk
        self.step += 1
        self.run.seen.clear()
        self.run.emit(events.StepStarted(step=self.step, input=line))
        begun, before = time.monotonic(), self.state
        held = self.workspace.held()
        outcome, error = Outcome(Exit.INTERRUPTED), None
        try:
            with interruptible(None):
                outcome = self._work(line)
        except KeyboardInterrupt as stopped:
            error = stopped
        except Exception as raised:  # noqa: BLE001  (every step ends as a value)
            error = raised
        with _undisturbed():
            if isinstance(error, KeyboardInterrupt):
                self.leaving = isinstance(error, Terminated)
                self.workspace.back_to(held)
                self.run.emit(events.Problem(kind="interrupted", message="interrupted"))
            elif error is not None:
                outcome = failed(self.run, in_session(error), [line])
            if error is not None:
                self.state = before
            self.last = outcome
            self.run.emit(
                events.StepCompleted(
                    step=self.step,
                    exit_code=int(outcome.exit),
                    verdict=outcome.verdict,
                    seconds=time.monotonic() - begun,
                    changes=self.state.changes(before),
                )
            )
            self.ended = self.step
        return Done(self.step, outcome, self.leaving)

    def attempt(self, line: str) -> Outcome:
        """A command within a step: what goes wrong is an event, and leaves the state as it was."""
        before, held = self.state, self.workspace.held()
        try:
            return self._work(line)
        except Exception as error:  # noqa: BLE001  (as of a step)
            self.state = before
            self.workspace.back_to(held)
            return failed(self.run, in_session(error), [line])

    def _work(self, line: str) -> Outcome:
        if len(line) > LONGEST_INPUT:
            raise InputError(
                "an input too long",
                expected=f"at most {LONGEST_INPUT:,} characters",
                got=f"{len(line):,}",
            )
        if line in registry.BARE:
            line = f"/{line}"
        if not line.startswith("/"):
            from shardproof.agent.chat import conversation as talk

            return talk.answer(self, line)
        name, _, raw = line[1:].partition(" ") if "\n" not in line.split(" ")[0] else _at_line(line)
        found = registry.find(name.strip())
        return found.work(self, registry.split(found, raw.strip()))

    # -- what commands use -------------------------------------------------------------------

    def change(self, **fields: object) -> None:
        """Replace fields of the state."""
        self.state = self.state.model_copy(update=fields)

    def about(self, model: Model) -> None:
        """The session is about this model from now on; constraints stay where the target does.

        Raises:
            InputError, ConstraintError: defaults of the project that cannot be used.
        """
        before = self.state.model
        same = before is not None and before.target == model.target
        self.change(
            model=model,
            refused=None,
            subject="model",
            planned=None,
            judged=None,
            at=0,
            ideas=[],
            constraints=self.state.constraints if same or before is None else [],
        )
        if not same:
            from shardproof.agent.chat.planning import take_defaults

            take_defaults(self, first=before is None)

    def reached(self) -> events.VerdictReached:
        """The last verdict of this step."""
        return next(e for e in reversed(self.run.seen) if isinstance(e, events.VerdictReached))

    def judged(self, of: str) -> None:
        """Keep the last verdict of this step: on what was made from `of`."""
        said = self.reached().model_dump(include={"verdict", "message", "where", "patch"})
        self.change(judged=Judged(**said, of=of), at=0)

    def say(self, text: str) -> Outcome:
        """Answer with text."""
        self.run.emit(events.Said(text=text.rstrip("\n")))
        return Outcome(Exit.PROVED)

    def agreed(self, question: str, yes: bool) -> bool:
        """Whether the owner agrees: said beforehand, or asked now.

        Raises:
            InputError: nobody is there to ask.
        """
        if not yes:
            if self.agree is None:
                raise InputError(
                    "nobody is there to say yes", hint="write it behind the command: --yes"
                )
            yes = self.agree(question)
        self.run.emit(events.Agreed(question=question, yes=yes))
        return yes

    def file(self, path: str, text: str) -> None:
        """Keep a file of the owner's as it was read."""
        import hashlib

        digest = hashlib.sha256(text.encode()).hexdigest()
        self.run.emit(events.FileRead(path=path, sha256=digest, text=text))

    def shown(self, path: str | Path) -> str:
        """A path, relative to the root where it lies under it."""
        full = Path(os.path.normpath(self.root / path))
        return (
            full.relative_to(self.root).as_posix() if full.is_relative_to(self.root) else str(full)
        )

    @contextmanager
    def asking(self, asker: Asker) -> Generator[None]:
        """Ask another model meanwhile."""
        mine, self.asker = self.asker, asker
        try:
            yield
        finally:
            self.asker = mine


@contextmanager
def _undisturbed() -> Generator[None]:
    """Put Ctrl-C off until the step has ended on the disk."""
    asked = False

    def later(_signal: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked = True

    before = signal.signal(signal.SIGINT, later)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


def _at_line(line: str) -> tuple[str, str, str]:
    name, _, raw = line[1:].partition("\n")
    return name, "\n", raw


Open = Callable[[list[events.Sink]], Session]
"""Makes a session that shows its events to these sinks."""
