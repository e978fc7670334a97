"""docs/first-session.md: a first session in a terminal of 80 x 24, as it ran in a pseudo-terminal.

`python -m benchmarks.first_session` in the root of the project writes it; it needs PyTorch and
pyte. The words of the model are those of `tests/chat/strong.py`, which reads what it is shown.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chat.conftest import environment
from tests.chat.strong import serving

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "first-session.md"
TEMPLATE = Path(__file__).parent / "templates" / "first-session.md"
WIDTH, HEIGHT = 80, 24
PROMPT = "shardproof>"
READY = "\x1b[?2004h"
"""Written when a prompt listens."""


@dataclass(frozen=True)
class Step:
    """A line that is typed, the questions that it leads to and what is answered."""

    name: str
    typed: str
    answers: tuple[tuple[str, str], ...] = ()


STEPS = (
    Step("load", "/load mlp.py:MLP"),
    Step("words", "plan it for 2 GPUs", (("Enter runs them", ""),)),
    Step("ask", "how is down placed, and what is sent for it?"),
    Step("pin", "/pin up column"),
    Step("plan", "/plan"),
    Step("why-not", "/why-not up row"),
    Step("verify", "/verify"),
    Step("diff", "/diff"),
    Step("apply", "/apply", ((r"\[y/N\]", "y"),)),
    Step("undo", "/undo"),
)
AGAIN = (Step("resume", "/pin"), Step("redo", "/redo"), Step("help", "/help"))


class Terminal:
    """A session in a pseudo-terminal, and what it looks like."""

    def __init__(self, tree: Path, env: dict[str, str], *words: str) -> None:
        import pexpect
        import pyte

        self.screen = pyte.Screen(WIDTH, 4000)  # rows that scroll off stay readable
        self.stream = pyte.Stream(self.screen)
        command = ["-m", "shardproof", *words]
        self.child: Any = pexpect.spawn(
            sys.executable,
            command,
            cwd=str(tree),
            env={**os.environ, **env},
            encoding="utf-8",
            timeout=300,
            dimensions=(HEIGHT, WIDTH),
        )
        self.child.logfile_read = self
        self._ready()

    def write(self, text: str) -> None:
        self.stream.feed(text)

    def flush(self) -> None:
        return None

    def _ready(self) -> None:
        self.child.expect_exact(READY)
        self.child.expect_exact(PROMPT)

    def _rows(self) -> list[str]:
        return [row.rstrip() for row in self.screen.display]

    def do(self, step: Step) -> str:
        """Type a line and its answers; what stands on the screen from there to the next prompt."""
        start = self.screen.cursor.y
        self.child.send(step.typed + "\r")
        for awaited, said in step.answers:
            self.child.expect(awaited)
            self.child.send(said + "\r")
        self._ready()
        return "\n".join(self._rows()[start : self.screen.cursor.y]).strip("\n")

    def leave(self) -> None:
        import pexpect

        self.child.send("\x04")
        self.child.expect(pexpect.EOF)
        self.child.close()


def screens() -> dict[str, str]:
    """What each step shows, by its name; the folder and the name of the session as `...`."""
    with tempfile.TemporaryDirectory(dir="/tmp") as scratch, serving() as server:
        root = Path(scratch).resolve()
        tree = root / "tree"
        tree.mkdir()
        shutil.copy(ROOT / "examples" / "mlp.py", tree)
        git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org")
        for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "a model")):
            subprocess.run([*git, *words], cwd=tree, check=True, capture_output=True)
        env = environment(root, TERM="xterm-256color", NO_COLOR="1")
        env |= {"SHARDPROOF_BASE_URL": server.url, "SHARDPROOF_MODEL": "scripted"}
        shown: dict[str, str] = {}
        for words, steps in (((), STEPS), (("resume",), AGAIN)):
            shown |= _session(Terminal(tree, env, *words), steps)
        return {name: _anywhere(text, str(root)) for name, text in shown.items()}


def _anywhere(text: str, root: str) -> str:
    """Without folders and names of this run; the path of the report is broken by the terminal."""
    text = text.replace(root, "...")
    return re.sub(r"(report     )\.\.\.\S+\s\S*report\.html", r"\1.../report.html", text)


def _session(terminal: Terminal, steps: Sequence[Step]) -> dict[str, str]:
    shown = {step.name: terminal.do(step) for step in steps}
    terminal.leave()
    return shown


def page() -> str:
    """The whole page."""
    text = TEMPLATE.read_text(encoding="utf-8")
    for name, shown in screens().items():
        text = text.replace(f"{{{{ {name} }}}}", shown)
    return text


def plain(text: str) -> list[str]:
    """The words of a page; numbers and hashes, which differ from run to run, as `#`."""
    return re.sub(r"\b[0-9a-f]{12,}\b|\d[\d.,e-]*", "#", text).split()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
