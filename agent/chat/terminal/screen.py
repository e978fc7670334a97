"""Events as lines of a terminal, below each other, with the terminal's own scrollback."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from typing import TYPE_CHECKING

from shardproof.agent.chat.words import Spoken
from shardproof.agent.llm.hygiene import clean
from shardproof.agent.run import events

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status
    from rich.text import Text

WIDTH = 10
COLOURS = {
    "proved": "green",
    "accepted": "green",
    "refuted": "red",
    "rejected": "red",
    "unknown": "yellow",
}


def dumb() -> bool:
    """Whether the terminal can do no more than print lines."""
    return os.environ.get("TERM", "dumb") in ("", "dumb")


class Screen:
    """A sink for a person. Text of others is printed as text: no markup, no escapes."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console

        self.console = console or Console(
            file=sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=True
        )
        self.wraps = self.console.is_terminal
        """Lines are broken between words; into a file they go whole."""
        self.quiet = dumb() or not self.console.is_terminal
        self._status: Status | None = None
        self._spoken = Spoken(self._piece)
        self._column = 0
        self._word = ""
        """The last word of a reply, as far as it has come."""
        self._gap = ""
        """The blanks before it."""

    # -- a reply as it comes -----------------------------------------------------------------

    def hear(self, piece: str) -> None:
        """The next piece of a reply."""
        self._spoken.feed(clean(piece))

    def _piece(self, words: str) -> None:
        self._rest()
        parts = re.findall(r"\s+|\S+", self._word + words)
        self._word = parts.pop() if parts and not parts[-1].isspace() else ""
        for part in parts:
            self._put(part)
        self.console.file.flush()

    def _put(self, part: str) -> None:
        """A word or a gap of a reply: a word on a new line where it does not fit behind its gap."""
        if part.isspace() and "\n" not in part:
            self._gap += part
            return
        wide = self._column + len(self._gap) + len(part)
        if "\n" in part:
            self._column, self._gap = 0, ""
        elif self.wraps and self._column and wide > self.console.width:
            self.console.print()
            self._column, self._gap = 0, ""
        self.console.print(self._text(self._gap + part, "cyan"), end="")
        self._column += len(self._gap) + len(part.rpartition("\n")[2])
        self._gap = ""

    def _settle(self) -> None:
        """End what is under way: a spinner, a line that a reply has begun."""
        self._rest()
        if self._word:
            self._put(self._word)
        self._word = self._gap = ""
        if self._column:
            self.console.print()
            self._column = 0

    # -- events ------------------------------------------------------------------------------

    def show(self, event: events.Event) -> None:
        match event:
            case events.PhaseStarted(phase=phase):
                self._busy(phase)
            case events.PhaseCompleted(phase=phase, seconds=seconds, summary=summary):
                self._rest()
                self._line(phase, f"{seconds:.2f} s  {summary}".rstrip(), "dim")
            case events.Warned(message=message) | events.ModelRetried(message=message):
                self._line("note", message, "yellow")
            case events.CommandRun(command=command):
                self._line("runs", command, "cyan")
            case events.PlanChosen(strategy=strategy):
                self._line("plan", strategy, "bold")
            case events.VerdictReached():
                self._verdict(event)
            case events.Said(by="model", text=text):
                self._model(text)
            case events.Said(text=text):
                self._settle()
                self.console.print(self._text(self._wrapped(text)))
            case events.PatchShown(diff=diff, standing=standing):
                self._diff(diff)
                self._line("standing", standing, "bold")
            case events.TranslationDiffers(subject=subject, lines=lines):
                self._line("differs", "\n".join([subject, *lines]), "yellow")
            case events.RepairCandidate(edits=edits, verdict=verdict, holds=holds):
                what = "; ".join(edits) or "as given"
                self._line("tried", f"{what}: {verdict}{holds and ', ' + holds}", "dim")
            case events.Patched(action=action, files=files) if action != "preview":
                self._line(action, ", ".join(file.path for file in files), "bold")
            case events.Written(report=report):
                self._line("report", report, "dim")
            case events.Executed():
                agrees = "agrees" if event.agrees else "differs"
                worst = f"largest relative difference {event.largest_relative_difference:.2e}"
                self._line("run", f"{event.processes} processes: {agrees}, {worst}", "dim")
            case events.ModelAsked():
                self._spoken = Spoken(self._piece)
                self._busy("the model")
            case events.ModelAnswered():
                self._settle()
                if event.calls or event.cached:
                    self._line("model", event.cost(), "dim")
            case events.ModelDiagnosed(words=words):
                self._line("says", f"{words} (the model's words, not checked)", "dim")
            case events.Problem():
                self._problem(event)
            case events.SessionOpened():
                self._opened(event)
            case events.StepCompleted():
                self._settle()
            case _:
                pass

    def note(self, doing: str) -> None:
        if self._status is not None:
            self._status.update(self._text(doing))

    def close(self) -> None:
        self._rest()

    def _opened(self, event: events.SessionOpened) -> None:
        self._line("session", f"{event.session}, {event.how}", "dim")
        if event.lost:
            self._line("lost", f"a step that never ended: {event.lost}", "yellow")

    def _model(self, text: str) -> None:
        told = self._spoken.told
        self._spoken = Spoken(self._piece)
        self._settle()
        if "".join(told.split()) != "".join(text.split()):
            self.console.print(self._text(self._wrapped(text), "cyan"))

    def _verdict(self, event: events.VerdictReached) -> None:
        self._line(event.verdict, event.message, COLOURS[event.verdict])
        if event.where:
            self._line("  at", event.where, "dim")
        for sentence in event.assumptions:
            self._line("  assumes", sentence, "dim")
        if event.patch:
            self._line("  patch", event.patch, "dim")

    def _problem(self, event: events.Problem) -> None:
        self._settle()
        self._line("error" if event.kind != "interrupted" else "stopped", event.message, "red")
        for name, text in event.details().items():
            self._line(f"  {name}", text, "dim")

    def _diff(self, diff: str) -> None:
        self._rest()
        styles = {"+": "green", "-": "red", "@": "cyan"}
        for line in diff.rstrip("\n").split("\n"):
            head = line[:3] in ("+++", "---")
            self.console.print(self._text(line, "bold" if head else styles.get(line[:1], "")))

    def _line(self, name: str, text: str, style: str) -> None:
        self._settle()
        indent = "\n" + " " * (WIDTH + 1)
        made = self._text(f"{name:<{WIDTH}} ", style)
        made.append_text(self._text(self._wrapped(text, WIDTH + 1).replace("\n", indent)))
        self.console.print(made)

    def _wrapped(self, text: str, taken: int = 0) -> str:
        """A text with lines broken between words, further in; a word too long stays whole."""
        if not self.wraps:
            return text
        width = max(self.console.width - taken, 20)
        lines: list[str] = []
        for line in clean(text).split("\n"):
            inner = " " * (len(line) - len(line.lstrip()) + 2)
            lines += textwrap.wrap(
                line,
                width,
                subsequent_indent=inner,
                break_long_words=False,
                break_on_hyphens=False,
                replace_whitespace=False,
            ) or [""]
        return "\n".join(lines)

    def _text(self, text: str, style: str = "") -> Text:
        from rich.text import Text

        return Text(clean(text), style=style)

    def _busy(self, phase: str) -> None:
        self._rest()
        if not self.quiet:
            self._status = self.console.status(self._text(phase))
            self._status.start()

    def _rest(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
