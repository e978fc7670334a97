"""docs/chat.md: the commands as they are declared, and a session as it ran.

`python -m agent.chat.page` in the root of the project writes the page; the session needs PyTorch.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from agent import events
from agent.chat import registry
from agent.chat.engine import Session
from agent.chat.models import Asker, Source
from agent.chat.terminal.screen import Screen

PAGE = Path("docs/chat.md")
MODEL = Path("examples/mlp.py")
LINES = (
    "/load mlp.py:MLP",
    "/mesh tp=2",
    "/plan",
    "/why-not up row",
    "/why-not down replicate",
    "/pin up column",
    "/plan",
    "/verify",
    "/diff",
    "/settings run never",
    "/apply --yes",
    "/undo",
    "why is down split by rows?",
)
REFUTED = (
    "/load sequential one.txt distributed wrong.txt contract contract.txt",
    "/verify",
    "/cex",
    "/cex",
    "/repair",
    "/quit",
)
INTRO = """# Sessions

`shardproof` without a command, in a terminal, is a session: load a model, plan it, ask why and why not, prove it, look at the
change, write it, take it back. The output stays in the terminal's own scrollback. A language model is asked where a
line does not begin with a slash; everything else works without one, and nothing that a model says counts before it is proved.

| key | does |
|---|---|
| Enter | submits; in a paste it does not |
| Alt-Enter, Ctrl-J | a new line |
| Tab | completes commands, paths, classes in a file, module paths, styles |
| Up, Ctrl-R | earlier inputs, kept for you alone in `$XDG_STATE_HOME/shardproof/history` |
| Ctrl-X Ctrl-E, `/edit` | your `$EDITOR` |
| Ctrl-C | ends the step under way within a second: a stream, a wait, a query of the solver, a search; twice in 2 s leaves with 130 |
| Ctrl-D, `/quit` | leaves; `shardproof resume` goes on |

`NO_COLOR` and `TERM=dumb` are honoured.

## Commands

"""
REST = """
## What is kept

Every step is a line of `journal.jsonl` in `$XDG_STATE_HOME/shardproof/sessions/ID/` (`~/.local/state/...`) and on the disk when it ends:
files 0600, folders 0700. The file is the event stream that `--json` prints (`agent/events.py`, `schema_version` 1). A step begins
with `step.started` and counts from its `step.completed`, which holds the fields of the state that it changed; the state of a
session is the fold of these. A kill loses the step under way and nothing else: `shardproof resume` cuts a torn last line off and
says which input was lost. What was read is kept as it was read: a file that changes later is loaded again or stays as it was.
Wishes (`/pin`, `/ban`, `/constrain`) are part of the state. `/fork` goes on in a copy.

A write that a kill cuts in two is taken back by the next `/apply`, `/undo` or `/redo`.

## Without a terminal

```sh
shardproof -p "/load examples/mlp.py:MLP" -p "/mesh tp=2" -p "/plan" -p "/verify" --json
shardproof -p - < steps.txt
shardproof resume -p "/diff"
shardproof replay session.jsonl
```

A command is a line; other lines that follow each other are one message to the model. Answers go to stdout, progress to stderr;
with `--json` every event is a line on stdout, flushed, `run.completed` last. The exit code is that of the last input that was run,
the same with and without `--json`; an input that ends in 2 or more ends the run.

`replay` runs a transcript again without its model and without network, in a scratch folder with the files as they were read: the
same events byte for byte, or exit 1 with the first difference. Set to fixed words on both sides: times (`at`, `seconds`), measured
facts of phases (numbers that are no counts) and peak memory, rounding within which a run of processes stayed, the folders and the
name of the session, boundary words of prompts. Left as they were recorded: steps that were interrupted, and the commands that
look at the machine or the endpoint (`/doctor`, `/model`, `/prompt`, `/save`, `/resume`, `/fork`, `/edit`).

## What leaves the machine

`/prompt INPUT` shows the whole request for an input, and sends nothing: the address, the parameters, every message. It is built by
the code that would send it. Facts of the session go along (plan, verdict, programs without their source lines), never files. See
[model.md](model.md) for endpoints, budgets and what a reply can hold. Proposals in an answer are lowered, priced, proved and checked
before they are called more than ideas; `/plan` starts from those that are proved.
"""


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
        shown = re.sub(r"(?m)[ \t]+$", "", self.kept.getvalue()).replace("0.00 s  ", "")
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
    shown = transcript(LINES, [MODEL])
    checked = transcript(REFUTED, sorted(Path("examples/verify").glob("*.txt")))
    return (
        f"{INTRO}{table()}{REST}\n## A session\n\nAs it ran, without a language model; times are left "
        f"out. This part of the page is generated, like the table of commands, by `make docs`.\n\n"
        f"```text\n{shown}```\n\nAnd one on programs in text form, from `examples/verify/`:\n\n"
        f"```text\n{checked}```\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
