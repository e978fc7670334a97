"""docs/chat.md: the commands as they are declared, and a session as it ran.

`python -m benchmarks.chat_page` in the root of the project writes it.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from shardproof.agent.chat import registry
from shardproof.agent.chat.engine import Session
from shardproof.agent.chat.models import Asker, Source
from shardproof.agent.chat.terminal.screen import Screen
from shardproof.agent.run import events

PAGE = Path("docs/chat.md")
TEMPLATE = Path(__file__).parent / "templates" / "chat.md"
PROGRAMS = Path("examples/verify")
REFUTED = (
    "/load sequential one.txt distributed wrong.txt contract contract.txt",
    "/verify",
    "/cex",
    "/repair",
    "/quit",
)


def table() -> str:
    """The commands as a table, by group."""
    lines: list[str] = []
    group = ""
    for found in registry.registered().values():
        if found.group != group:
            group = found.group
            lines += [*([""] if lines else []), f"**{group}**", "", "| | |", "|---|---|"]
        usage = registry.usage(found).replace("|", "\\|")
        told = found.summary.replace("|", "\\|")
        lines.append(f"| `{usage}` | {told} |")
    return "\n".join(lines) + "\n"


class Recorder(Screen):
    """The screen of a terminal, kept as text; seconds are left out."""

    def __init__(self) -> None:
        import io

        from rich.console import Console

        self.kept = io.StringIO()
        super().__init__(Console(file=self.kept, width=100, highlight=False, soft_wrap=True))

    def show(self, event: events.Event) -> None:
        if isinstance(event, events.PhaseCompleted):
            event = event.model_copy(update={"seconds": 0.0})
        super().show(event)

    def text(self, line: str) -> str:
        """What was shown since, below the line that was typed."""
        shown = re.sub(r"(?m)\s*0\.00 s$|(?<= )0\.00 s  |[ \t]+$", "", self.kept.getvalue())
        self.kept.seek(0)
        self.kept.truncate()
        return f"shardproof> {line}\n{shown}".rstrip("\n") + "\n"


def transcript(lines: tuple[str, ...], files: list[Path]) -> str:
    """A session with these inputs, in a folder with these files, as a terminal shows it."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch).resolve()
        here = root / "tree"
        here.mkdir()
        for file in files:
            shutil.copy(file, here)
        os.chdir(here)
        try:
            screen = Recorder()
            session = Session.new([screen], Asker(Source.NONE), root / "session")
            session.state_dir = root / "changes"
            screen.text("")
            parts: list[str] = []
            for line in lines:
                session.do(line)
                parts.append(screen.text(line))
            session.close()
        finally:
            os.chdir(before)
        return "\n".join(parts).replace(str(root), "...")


def page() -> str:
    """The whole page."""
    parts = {
        "commands": table(),
        "programs": transcript(REFUTED, sorted(PROGRAMS.glob("*.txt"))),
    }
    text = TEMPLATE.read_text(encoding="utf-8")
    for name, part in parts.items():
        text = text.replace(f"{{{{ {name} }}}}", part)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
