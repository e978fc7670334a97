"""The prompt: reads an input, lets the engine do it, shows what comes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from shardproof.agent.chat import acting
from shardproof.agent.chat.engine import Open
from shardproof.agent.chat.headless import GOES_ON
from shardproof.agent.chat.state import KINDS, State
from shardproof.agent.chat.terminal.screen import Screen
from shardproof.agent.llm.hygiene import clean
from shardproof.agent.llm.secret import clean_environ
from shardproof.agent.run.errors import Exit, InputError

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

TWICE_S = 2.0
"""A second Ctrl-C within this ends the process."""
PROMPT = "shardproof> "
GREETING = "/load FILE.py:Class begins, /help lists what can be done, Ctrl-D leaves"


def run(start: Open) -> int:
    """A session in this terminal, until it is left. Returns the exit code."""
    return Front(start).loop()


class Front:
    """A terminal around a session."""

    def __init__(self, start: Open) -> None:
        self.screen = Screen()
        self.session = start([self.screen])
        self.text = ""
        """What the next prompt begins with."""
        self.stopped = float("-inf")
        """When Ctrl-C was pressed last."""
        self._attach()
        self.prompt = self._prompt()
        self._greet()

    def _greet(self) -> None:
        """Say how to begin, or where the session stands."""
        about = standing(self.session.state)
        line = f"{about}; /help lists what can be done" if about else GREETING
        self.screen.console.print(clean(line), style="dim")

    def _attach(self) -> None:
        self.session.asker.show = self.screen.hear
        self.session.agree = self._agree

    def loop(self) -> int:
        """Prompt after prompt."""
        try:
            while True:
                line = self._read()
                if line is None:
                    return self._leave(Exit.PROVED)
                if line.strip() and self._all(line):
                    killed = self.session.last.exit is Exit.INTERRUPTED
                    return self._leave(Exit.INTERRUPTED if killed else Exit.PROVED)
        except KeyboardInterrupt:  # twice in a short time
            return self._leave(Exit.INTERRUPTED)

    def _leave(self, exit: Exit) -> int:
        if self.session.step:
            line = f"kept: shardproof resume {self.session.id}"
            self.screen.console.print(line, style="dim")
        return self.session.close(exit)

    def _all(self, text: str) -> bool:
        """One input, or several commands that were pasted together; whether it was the last one.

        What goes wrong, or is interrupted, ends the commands that are left.
        """
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) == 1 or not all(line.lstrip().startswith("/") for line in lines):
            return self._do(text)
        for number, line in enumerate(lines):
            if number:
                self.screen.console.print(clean(f"{PROMPT}{line.strip()}"), style="dim")
            steps = self.session.step
            if self._do(line):
                return True
            left = len(lines) - number - 1
            if self.session.step == steps or self.session.last.exit not in GOES_ON:
                if left:
                    self.screen.console.print(f"({left} more not run)", style="dim")
                break
        return False

    def _read(self) -> str | None:
        """The next input; None at the end of them."""
        while True:
            text, self.text = self.text, ""
            try:
                return self.prompt.prompt(PROMPT, default=text)
            except KeyboardInterrupt:
                self._stop()
            except EOFError:
                return None

    def _stop(self) -> None:
        now = time.monotonic()
        if now - self.stopped < TWICE_S:
            raise KeyboardInterrupt
        self.stopped = now
        self.screen.console.print("(Ctrl-C again leaves, /quit or Ctrl-D too)", style="dim")

    def _do(self, line: str) -> bool:
        """One input; whether it was the last one."""
        if line.strip() == "/edit" or line.startswith("/edit "):
            self.text = edited(line.strip().removeprefix("/edit").strip())
            return False
        try:
            with unechoed():
                done = self.session.do(line)
        except KeyboardInterrupt:
            if self.session.ended != self.session.step:
                raise
            self._stop()
            return False
        if done.outcome.exit is Exit.INTERRUPTED:
            self.stopped = time.monotonic()
        if self.session.move_to is not None:
            self._move()
        return done.quit

    def _move(self) -> None:
        """Go on with another session, or with a copy of this one."""
        old = self.session
        try:
            self.session = old.moved([self.screen])
        except InputError as error:
            old.move_to = None
            self.screen.console.print(clean(f"{error.what}: {error.where}"), style="red")
            return
        self._attach()
        self.prompt = self._prompt()
        self._greet()

    def _agree(self, question: str) -> bool:
        from prompt_toolkit import prompt

        self.screen.close()
        forget_typed()  # what was typed before the question does not answer it
        enter = question == acting.QUESTION
        how = "Enter runs them, n leaves them" if enter else "y/N"
        yes = ("", "y", "yes") if enter else ("y", "yes")
        try:
            return prompt(f"{question} [{how}] ").strip().lower() in yes
        except EOFError:
            return False

    def _prompt(self) -> PromptSession[str]:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory
        from prompt_toolkit.output import ColorDepth

        from shardproof.agent.chat.terminal.completion import Completions

        plain = ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None
        return PromptSession(
            history=FileHistory(str(_history(self.session.journal.folder.parent.parent))),
            completer=Completions(self.session),
            complete_while_typing=False,
            multiline=True,
            key_bindings=_keys(),
            enable_open_in_editor=True,
            prompt_continuation=_continued,
            color_depth=plain,
            tempfile_suffix=".txt",
        )


@contextmanager
def unechoed() -> Generator[None]:
    """Keys that are typed meanwhile are not shown, and wait for the next prompt; Enter stays Enter.

    Ctrl-C works as ever.
    """
    import termios

    try:
        file = sys.stdin.fileno()
        before = termios.tcgetattr(file)
    except (OSError, ValueError, termios.error):
        yield
        return
    now = [*before]
    now[0] &= ~termios.ICRNL
    now[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(file, termios.TCSANOW, now)
    try:
        yield
    finally:
        termios.tcsetattr(file, termios.TCSANOW, before)


def forget_typed() -> None:
    """Drop the keys that were typed ahead."""
    import termios

    with suppress(OSError, ValueError, termios.error):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def standing(state: State) -> str:
    """Where a session stands, in a line; empty where nothing was loaded."""
    parts: list[str] = []
    if state.subject == "programs":
        found = (getattr(state.programs, kind) for kind in KINDS)
        parts = [source.path for source in found if source is not None]
    elif state.model is not None:
        parts = [state.model.target + (" (translated)" if state.model.translated else "")]
        mesh = ", ".join(f"{name}={size}" for name, size in state.mesh.items())
        parts += [f"mesh {mesh}"] if mesh else []
        parts += [f"{w.kind} {w.words}" for w in state.constraints]
        parts += ["planned"] if state.planned is not None else []
    if state.judged is not None:
        parts.append(state.judged.verdict)
    return ", ".join(parts)


def _continued(width: int, line: int, wraps: int) -> str:
    """What stands before a further line; nothing where a long line goes on."""
    del line
    return "" if wraps else "... ".rjust(width)


def _history(folder: Path) -> Path:
    """The file of inputs, for its owner alone."""
    path = folder / "history"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.fchmod(file, 0o600)
    os.close(file)
    return path


def _keys() -> KeyBindings:
    """Enter submits; Alt-Enter and Ctrl-J begin a new line; a paste never submits."""
    from prompt_toolkit.filters import completion_is_selected
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()
    handle: Callable[..., Callable[[Callable[[KeyPressEvent], None]], object]] = keys.add

    def submit(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    def newline(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    def accept(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    handle("enter")(submit)
    handle("enter", filter=completion_is_selected)(accept)
    handle("escape", "enter")(newline)
    handle("c-j")(newline)
    return keys


def edited(text: str) -> str:
    """What the owner's editor leaves of a text; the text itself where there is no editor."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="shardproof-") as folder:
        path = Path(folder) / "input.txt"
        path.write_text(text + "\n" if text else "", encoding="utf-8")
        try:
            done = subprocess.run([*shlex.split(command), str(path)], env=clean_environ())
        except (OSError, ValueError):
            return text
        if done.returncode:
            return text
        return path.read_text(encoding="utf-8").rstrip("\n")
