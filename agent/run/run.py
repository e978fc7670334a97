"""One run of a command: its event stream, its phases, and the exit code it must end in."""

import os
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from shardproof.agent import __version__
from shardproof.agent.run import events
from shardproof.agent.run.console import Console, JsonLines, Pipe
from shardproof.agent.run.errors import Exit, InputError, LimitError
from shardproof.agent.run.translate import as_ours
from shardproof.agent.verdict.formats import FORMATS, findings

TOLD_AGAIN = 10
"""How often a query is told to end, 50 ms apart."""


class Terminated(KeyboardInterrupt):
    """SIGTERM: as Ctrl-C, and the process is to end."""


@dataclass
class Phase:
    """A phase under way; the work fills in what it found."""

    name: str
    summary: str = ""
    facts: dict[str, float | int | str] = field(default_factory=dict[str, float | int | str])


@dataclass
class Outcome:
    """What a command ends with."""

    exit: Exit
    verdict: events.VerdictWord = "unknown"
    directory: str = ""
    report: str = ""
    answer: str = ""
    """What a person asked for; printed on stdout where `--json` is not given."""


class Run:
    """Emits events, stamped with the seconds since the start."""

    def __init__(self, sinks: Sequence[events.Sink]) -> None:
        self.sinks = list(sinks)
        self.seen: list[events.Event] = []
        """Every event so far."""
        self.started = time.monotonic()
        self.seconds: dict[str, float] = {}
        """Phase to seconds, in order."""

    @property
    def in_events(self) -> bool:
        """Whether stdout holds events, a JSON object a line."""
        return any(isinstance(sink, JsonLines) for sink in self.sinks)

    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def emit(self, event: events.Event) -> None:
        stamped = event.model_copy(update={"at": round(self.elapsed(), 6)})
        self.seen.append(stamped)
        for sink in self.sinks:
            sink.show(stamped)

    def note(self, doing: str) -> None:
        """What the phase under way is at; not kept."""
        for sink in self.sinks:
            sink.note(doing)

    def warn(self, message: str) -> None:
        self.emit(events.Warned(message=message))

    @contextmanager
    def phase(self, name: str) -> Generator[Phase]:
        """Time a phase. A phase that raises never completes."""
        self.emit(events.PhaseStarted(phase=name))
        begun = time.monotonic()
        phase = Phase(name)
        yield phase
        taken = time.monotonic() - begun
        self.seconds[name] = taken
        self.emit(
            events.PhaseCompleted(
                phase=name, seconds=taken, summary=phase.summary, facts=phase.facts
            )
        )


def completed(run: Run, outcome: Outcome) -> events.RunCompleted:
    return events.RunCompleted(
        verdict=outcome.verdict,
        exit_code=int(outcome.exit),
        seconds=run.elapsed(),
        directory=outcome.directory,
        report=outcome.report,
    )


def conduct(
    command: str,
    arguments: Sequence[str],
    work: Callable[[Run], Outcome],
    *,
    json: bool,
    timeout: float | None = None,
    form: str = "",
) -> int:
    """Do the work of one command and return its exit code.

    Whatever happens, the last event is `run.completed` and carries that code. `form` names a format
    of `shardproof.agent.verdict.formats`: what was found is written in it, instead of the answer.
    """
    sink: events.Sink = JsonLines(sys.stdout) if json else Console(sys.stderr)
    run = Run([sink])
    run.emit(events.RunStarted(command=command, arguments=list(arguments), version=__version__))
    try:
        if form:
            _known(form, json)
        with interruptible(timeout):
            outcome = work(run)
    except KeyboardInterrupt:
        run.emit(events.Problem(kind="interrupted", message="interrupted; nothing was written"))
        outcome = Outcome(Exit.INTERRUPTED)
    except Exception as error:  # noqa: BLE001  (every failure has an exit code and a last event)
        outcome = failed(run, error, arguments)
    run.emit(completed(run, outcome))
    sink.close()
    if form in FORMATS and not json:
        Pipe(sys.stdout).line(FORMATS[form](findings(run.seen)))
    elif outcome.answer and not json:
        Pipe(sys.stdout).line(outcome.answer)
    return int(outcome.exit)


def _known(form: str, json: bool) -> None:
    """Raise InputError for a format that there is not, or one beside `--json`."""
    if form not in FORMATS or json:
        raise InputError(
            "two formats are asked for" if json else "no such format",
            where=f"--format {form}",
            expected="--json or --format" if json else ", ".join(FORMATS),
        )


def refused(command: str, error: Exception, *, json: bool) -> int:
    """End as a command that comes to nothing but an error."""

    def work(run: Run) -> Outcome:
        raise error

    return conduct(command, sys.argv[1:], work, json=json)


def failed(run: Run, error: Exception, arguments: Sequence[str]) -> Outcome:
    """Emit what went wrong, and end with its exit code."""
    ours = as_ours(error)
    if ours is None:
        path = _save_traceback(error, arguments)
        run.emit(
            events.Problem(
                kind="internal",
                message=f"{type(error).__name__}: {error}",
                hint="this is a fault of shardproof; please report it with the file below",
                traceback_file=str(path),
            )
        )
        return Outcome(Exit.FAULT)
    run.emit(
        events.Problem(
            kind="limit" if isinstance(ours, LimitError) else "input",
            message=ours.what,
            where=ours.where,
            expected=ours.expected,
            got=ours.got,
            hint=ours.hint,
        )
    )
    return Outcome(ours.exit)


def _save_traceback(error: Exception, arguments: Sequence[str]) -> Path:
    with tempfile.NamedTemporaryFile(
        "w", prefix="shardproof-fault-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.write(f"shardproof {__version__}, Python {sys.version}\n")
        file.write(f"arguments: {list(arguments)}\n\n")
        file.writelines(traceback.format_exception(error))
    return Path(file.name)


@contextmanager
def interruptible(seconds: float | None) -> Generator[None]:
    """Raise LimitError in the main thread after `seconds`; SIGTERM reads as Ctrl-C.

    Python runs a handler only when Z3 returns, so a watcher ends its query on any signal.
    """

    def on_alarm(_signal: int, _frame: FrameType | None) -> None:
        raise LimitError(
            f"the time limit of {seconds:g} s passed",
            where="--timeout",
            hint="give more time, or a smaller model or batch",
        )

    def on_term(_signal: int, _frame: FrameType | None) -> None:
        raise Terminated

    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, on_term),
        signal.SIGALRM: signal.signal(signal.SIGALRM, on_alarm),
    }
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    threading.Thread(target=_end_queries, args=(told,), daemon=True).start()
    if seconds is not None:
        signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.set_wakeup_fd(-1)
        os.close(tell)
        for number, handler in before.items():
            signal.signal(number, handler)


class TimeUp(BaseException):
    """The time for a part of a run has passed. Not to be caught by who catches exceptions."""


@contextmanager
def within(seconds: float) -> Generator[None]:
    """End the body after `seconds` of the clock, silently. A time limit of the whole run holds on.

    In the main thread; a query of Z3 is ended as in `interruptible`.
    """

    def on_alarm(_signal: int, _frame: FrameType | None) -> None:
        raise TimeUp

    begun = time.monotonic()
    handler = signal.signal(signal.SIGALRM, on_alarm)
    outer = signal.getitimer(signal.ITIMER_REAL)[0]
    signal.setitimer(signal.ITIMER_REAL, max(min(seconds, outer or seconds), 1e-3))
    try:
        yield
    except TimeUp:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if outer:
            left = outer - (time.monotonic() - begun)
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3))


def _end_queries(told: int) -> None:
    while os.read(told, 1):
        for _ in range(TOLD_AGAIN):  # a query that begins just now does not hear the first word
            solver = sys.modules.get("shardproof.verifier.smt.solver")
            if solver is not None:
                solver.interrupt()
            if select.select([told], [], [], 0.05)[0]:
                break
    os.close(told)
