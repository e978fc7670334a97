"""Inputs without a terminal: `-p`, lines of stdin, one event a line where `--json` is given."""

import sys
from collections.abc import Iterable, Iterator
from typing import TextIO

from shardproof.agent.chat.engine import Open
from shardproof.agent.run import events
from shardproof.agent.run.console import Console, JsonLines, Pipe, printable
from shardproof.agent.run.errors import Exit

GOES_ON = (Exit.PROVED, Exit.NOT_PROVED)
"""After any other exit the inputs that are left are not run."""


class Answers(Console):
    """Progress on stderr, answers on stdout."""

    def __init__(self, progress: TextIO, answers: TextIO) -> None:
        super().__init__(progress)
        self.answers = Pipe(answers)

    def show(self, event: events.Event) -> None:
        super().show(event)
        match event:
            case events.Said(by=by, text=text):
                head = "the model says: " if by == "model" else ""
                self.answers.line(printable(head + text))
            case events.CommandRun(command=command):
                self._say("runs", printable(command))
            case events.PatchShown(diff=diff, standing=standing):
                self.answers.line(printable(diff.rstrip("\n")))
                self.answers.line(printable(standing))
            case events.VerdictReached(verdict=verdict, message=message):
                self.answers.line(printable(f"{verdict}: {message}"))
                for sentence in event.assumptions:
                    self._say("  assumes", sentence)
            case events.TranslationDiffers(subject=subject, lines=lines):
                self._say("differs", "; ".join([subject, *lines]), "33")
            case events.SessionOpened(lost=lost) if lost:
                self._say("lost", f"a step that never ended: {lost}", "33")
            case _:
                pass


def inputs(given: Iterable[str]) -> Iterator[str]:
    """The inputs in texts: a command is a line; other lines that follow each other are one.

    `-` stands for what comes in on stdin.
    """
    words: list[str] = []
    for text in given:
        for read in sys.stdin if text == "-" else text.split("\n"):
            line = read.rstrip("\n")
            if line.startswith("/") or not line.strip():
                if words:
                    yield "\n".join(words)
                    words = []
                if line.strip():
                    yield line
            else:
                words.append(line)
        if words:
            yield "\n".join(words)
            words = []


def run(start: Open, given: Iterable[str], json: bool) -> int:
    """Run inputs in a session, and return the exit code: that of the last input that was run.

    An input that cannot be done (2 or more) ends the run.
    """
    sink: events.Sink = JsonLines(sys.stdout) if json else Answers(sys.stderr, sys.stdout)
    session = start([sink])
    try:
        for line in inputs(given):
            done = session.do(line)
            if done.quit or done.outcome.exit not in GOES_ON:
                break
            if session.move_to is not None:
                session = session.moved([sink])
    except KeyboardInterrupt:
        return session.close(Exit.INTERRUPTED)
    except UnicodeDecodeError as error:
        said = f"byte {error.start} of the inputs is not UTF-8"
        session.run.emit(events.Problem(kind="input", message=said, where="stdin"))
        return session.close(Exit.INPUT)
    return session.close()
