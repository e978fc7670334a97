"""Where events are shown: one JSON object a line, or progress by phase for a person."""

import os
import re
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

from shardproof.agent.run import events
from shardproof.agent.run.busy import LastTime, bar

if TYPE_CHECKING:
    from rich.progress import Progress

HEARTBEAT_S = 30.0
FEW = 3
"""Fewer sentences that differ in a number alone are shown one by one."""
_NAME_WIDTH = 10
_NUMBER = re.compile(r"\d+")


def printable(text: str) -> str:
    """Text from a model's source with control characters made visible; newline and tab stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


class Pipe:
    """Lines to a stream, each flushed. A reader that went away does not stop the run."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.closed = False

    def line(self, text: str) -> None:
        if self.closed:
            return
        try:
            self.stream.write(text + "\n")
            self.stream.flush()
        except BrokenPipeError:
            self.closed = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())


class JsonLines(events.Sink):
    """Every event as one JSON object a line."""

    def __init__(self, stream: TextIO) -> None:
        self.pipe = Pipe(stream)

    def show(self, event: events.Event) -> None:
        self.pipe.line(event.model_dump_json())


class Console:
    """Progress by phase: seconds on a terminal, with those of the last time, plain lines elsewhere.

    Honours `NO_COLOR` and `TERM=dumb`. Away from a terminal a phase that takes long says so every
    30 s.
    """

    def __init__(self, stream: TextIO) -> None:
        self.pipe = Pipe(stream)
        terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self.colour = terminal and not os.environ.get("NO_COLOR")
        self.spinning = terminal
        self.status: Progress | None = None
        self.last: LastTime | None = None
        self.beat: threading.Timer | None = None
        self.doing = ""
        """What the phase under way is at."""

    def show(self, event: events.Event) -> None:
        match event:
            case events.RunStarted(command=command, arguments=arguments) if self.spinning:
                self.last = LastTime(" ".join([command, *arguments]))
            case events.RunCompleted() if self.last is not None:
                self.last.keep()
            case events.PhaseStarted(phase=phase):
                self._rest()
                self._busy(phase)
            case events.PhaseCompleted(phase=phase, seconds=seconds, summary=summary):
                self._rest()
                if self.last is not None:
                    self.last.taken[phase] = round(seconds, 2)
                self._say(phase, f"{seconds:7.2f} s   {summary}")
            case events.Warned(message=message):
                self._say("warning", message, "33")
            case events.PlanChosen(strategy=strategy):
                self._say("plan", strategy)
            case events.StrategyChosen(text=text) if text:
                self._say("strategy", "\n".join(text), "")
            case events.VerdictReached():
                self._verdict(event)
            case events.ContractStated(lines=lines):
                for line in lines:
                    self._say("contract", line, "")
            case events.Repaired(edits=edits, sources=sources):
                for edit in edits:
                    self._say("edit", edit)
                for source in sources:
                    self._say("  at", source)
            case events.Patched(action=action, files=files):
                for file in files:
                    counts = f"  +{file.added} -{file.removed}" if action == "preview" else ""
                    self._say(action, f"{file.path}{counts}  {file.state}".rstrip())
            case events.PlanStep():
                self._say("replan", f"{event.kind}: {event.reason}\n-> {event.next}", "33")
            case events.RepairRound():
                after = f" after {'; '.join(event.start)}" if event.start else ""
                self._say(f"round {event.round}", f"{event.by}{after}")
            case events.RepairCandidate(edits=edits, verdict=verdict):
                found = verdict if verdict == "proved" else f"{verdict}: {event.finding}"
                self._say("  tried", f"{'; '.join(edits)}\n{found}".strip())
            case events.Executed():
                agrees = "agrees" if event.agrees else "differs"
                self._say(
                    "run",
                    f"{event.processes} processes: {agrees}, largest relative difference "
                    f"{event.largest_relative_difference:.2e} (tolerance {event.tolerance:.0e})",
                    "" if event.agrees else "31",
                )
            case events.LauncherJudged():
                self._say("launcher", f"{event.verdict}: {event.message}", "")
                for name, text in (("at", event.where), ("check", event.check)):
                    self._say(f"  {name}", text) if text else None
                for assumption in counted_up(event.assumptions):
                    self._say("  given", assumption, "")
            case events.Written(report=report):
                self._say("report", report)
            case events.Problem():
                self._rest()
                self._problem(event)
            case events.JobCompleted():
                self._job(event)
            case events.ModelDiagnosed(words=words):
                self._say("  says", f"{words} (the model's words, not checked)")
            case events.ModelAnswered() if event.calls or event.cached:
                self._say("model", event.cost())
            case events.ModelRetried(message=message):
                self._say("model", message, "33")
            case _:  # what is answered goes to stdout; the rest is for machines
                pass

    def note(self, doing: str) -> None:
        self.doing = doing
        if self.status is not None:
            self.status.update(self.status.task_ids[0], description=printable(doing))

    def close(self) -> None:
        self._rest()

    def _verdict(self, event: events.VerdictReached) -> None:
        good, bad = ("proved", "accepted"), ("refuted", "rejected")
        colour = "32" if event.verdict in good else "31" if event.verdict in bad else "33"
        self._say(event.verdict, event.message, colour)
        if event.where:
            self._say("  at", event.where)
        for assumption in counted_up(event.assumptions):
            self._say("  given", assumption, "")
        for assumption in counted_up(event.recorded):
            self._say("  given", f"{assumption} (recorded by the run, not checked here)", "")
        if event.patch:
            self._say("  patch", event.patch, "")
        for relation in event.relations:
            self._say("  is", relation, "")

    def _job(self, event: events.JobCompleted) -> None:
        """A line above the spinner."""
        if self.status is not None:
            self.status.stop()
        colour = {"proved": "32", "refuted": "31", "failed": "31", "timeout": "31"}
        head = f"{event.done:>4} of {event.of}  {event.seconds:7.2f} s   {event.job}"
        text = head + (f"\n{event.message}" if event.message else "")
        self._say(event.status, text, colour.get(event.status, "33"))
        if self.status is not None:
            self.status.start()

    def _problem(self, event: events.Problem) -> None:
        self._say("error", event.message, "31")
        for name, text in event.details().items():
            self._say("  " + name, text)

    def _say(self, name: str, text: str, colour: str = "2") -> None:
        head = f"{name:<{_NAME_WIDTH}}"
        if self.colour and colour:
            head = f"\x1b[{colour}m{head}\x1b[0m"
        indent = "\n" + " " * (_NAME_WIDTH + 2)
        self.pipe.line(f"{head}  {printable(text).replace(chr(10), indent)}".rstrip())

    def _busy(self, phase: str) -> None:
        if not self.spinning:
            self._heartbeat(phase, HEARTBEAT_S)
            return
        self.status = bar(phase, self.last.estimate(phase) if self.last else "")

    def _heartbeat(self, phase: str, after: float) -> None:
        def beat() -> None:
            at = f": {self.doing}" if self.doing else ""
            self._say(phase, f"still at it after {after:.0f} s{at}")
            self._heartbeat(phase, after + HEARTBEAT_S)

        self.beat = threading.Timer(HEARTBEAT_S, beat)
        self.beat.daemon = True
        self.beat.start()

    def _rest(self) -> None:
        self.doing = ""
        if self.status is not None:
            self.status.stop()
            self.status = None
        if self.beat is not None:
            self.beat.cancel()
            self.beat = None


def counted_up(lines: Iterable[str]) -> list[str]:
    """The sentences in order, runs of them as one: `micro-batch 0`, `micro-batch 1`, ... become
    `micro-batch 0 to 15`."""
    out: list[str] = []
    run: list[str] = []
    for line in lines:
        if run and not _next(run[0], run[-1], line):
            out += _said(run)
            run = []
        run.append(line)
    return out + _said(run)


def _place(first: str, second: str) -> int | None:
    """Which of their numbers two sentences differ in, where it is one and all else is alike."""
    if _NUMBER.split(first) != _NUMBER.split(second):
        return None
    pairs = zip(_NUMBER.findall(first), _NUMBER.findall(second), strict=True)
    unlike = [k for k, (a, b) in enumerate(pairs) if a != b]
    return unlike[0] if len(unlike) == 1 else None


def _next(first: str, last: str, line: str) -> bool:
    place = _place(last, line)
    if place is None or (first != last and _place(first, line) != place):
        return False
    before, after = (int(_NUMBER.findall(text)[place]) for text in (last, line))
    return after == before + 1


def _said(run: list[str]) -> list[str]:
    place = _place(run[0], run[-1]) if len(run) >= FEW else None
    if place is None:
        return run
    numbers = list(_NUMBER.finditer(run[0]))
    last = _NUMBER.findall(run[-1])[place]
    end = numbers[place].end()
    return [f"{run[0][:end]} to {last}{run[0][end:]}"]
