"""The chat in a real pseudo-terminal, as someone new to it would use it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pexpect
import pytest

from tests.chat.conftest import COMMAND, LOAD, ROOT, environment
from tests.llm.server import Server, dripping, says, status

PROMPT = "shardproof>"
SECOND = 1.0 if os.getloadavg()[0] < 2 * (os.cpu_count() or 1) else 3.0
"""A second; more where the machine is busy with other things."""
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\-_=>])")


class Terminal:
    """A chat in a terminal of its own."""

    def __init__(self, home: Path, *command: str, **extra: str) -> None:
        env = environment(home.parent, TERM="xterm-256color", **extra)
        argv = command or COMMAND
        self.child = pexpect.spawn(
            argv[0],
            list(argv[1:]),
            cwd=str(home),
            env=env,
            encoding="utf-8",
            timeout=90,
            dimensions=(50, 200),
        )
        self.raw = ""
        self.child.logfile_read = self
        self.ready()

    def write(self, text: str) -> None:
        self.raw += text

    def flush(self) -> None:
        return None

    @property
    def text(self) -> str:
        return ESCAPES.sub("", self.raw)

    def ready(self) -> None:
        """Wait for the next prompt: it switches bracketed paste on, once."""
        self.child.expect_exact("\x1b[?2004h")
        self.child.expect_exact(PROMPT)

    def __call__(self, line: str, awaited: str = "") -> str:
        """Type a line, and wait for the next prompt; gives what was shown."""
        start = len(self.raw)
        self.child.send(line + "\r")
        if awaited:
            self.child.expect(awaited)
        self.ready()
        return ESCAPES.sub("", self.raw[start:])

    def stop(self) -> float:
        """Ctrl-C; seconds until the prompt is back."""
        begun = time.monotonic()
        self.child.send("\x03")
        self.ready()
        return time.monotonic() - begun

    def leave(self) -> int:
        self.child.send("\x04")
        self.child.expect(pexpect.EOF)
        self.child.close()
        return int(self.child.exitstatus or 0)

    def close(self) -> None:
        self.child.close(force=True)


@pytest.fixture
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.close()


def _endpoint(server: Server, home: Path) -> dict[str, str]:
    config = home.parent / "config" / "shardproof" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[model]\nstructured = "text"\n')
    return {"SHARDPROOF_BASE_URL": server.url, "SHARDPROOF_MODEL": "tiny"}


def test_editing_completion_history_and_the_end(home: Path) -> None:
    chat = Terminal(home)
    chat.child.send("/ver\t")
    chat.child.expect("ify")
    assert "nothing is loaded" in chat("")
    chat.child.send("\x1b[200~" + LOAD.replace(" contract contract.txt", "") + "\n/frob\x1b[201~")
    time.sleep(0.3)
    assert "still to load" not in chat.text, "a paste does not submit"
    chat.stop()
    assert "Ctrl-C again leaves" in chat.text
    time.sleep(2.1)
    chat.child.send("one\x0atwo\x1b\rthree")
    assert "no language model" in chat("")
    chat(LOAD, "next: /verify")
    assert "refuted" in chat("/verify", "mlp_tp.py:23")
    assert "\x1b[?1049h" not in chat.raw, "no alternate screen"
    assert chat.leave() == 0
    journal = next((home.parent / "state").rglob("journal.jsonl")).read_text()
    assert '"input":"one\\ntwo\\nthree"' in journal
    history = home.parent / "state" / "shardproof" / "history"
    assert history.stat().st_mode & 0o777 == 0o600
    assert "+/verify" in history.read_text()


def test_the_editor_of_the_owner_writes_an_input(home: Path) -> None:
    editor = home / "editor"
    editor.write_text("#!/bin/sh\necho '/mesh tp=8' > \"$1\"\n")
    editor.chmod(0o755)
    chat = Terminal(home, EDITOR=str(editor))
    chat.child.send("/edit\r")
    chat.child.expect("/mesh tp=8")
    assert "8 ranks" in chat("")
    assert chat.leave() == 0


@pytest.mark.parametrize("extra", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_plain_terminals_get_plain_lines(extra: dict[str, str], home: Path) -> None:
    env = environment(home.parent) | {"TERM": "xterm"} | extra
    child = pexpect.spawn(
        COMMAND[0], list(COMMAND[1:]), cwd=str(home), env=env, encoding="utf-8", timeout=90
    )
    child.expect(PROMPT)
    child.send(LOAD + "\r")
    child.expect("next: /verify")
    child.expect(PROMPT)
    child.send("/verify\r")
    child.expect("mlp_tp.py:23")
    shown = child.before or ""
    assert not re.search("\x1b\\[[0-9;]*3[0-7]m", shown), "no colours"
    if extra.get("TERM") == "dumb":
        assert "\x1b" not in shown
    child.expect(PROMPT)
    time.sleep(0.5)  # a dumb terminal does not say when it listens for single keys
    child.send("\x04")
    child.expect(pexpect.EOF)
    child.close()


def test_ctrl_c_ends_a_stream_and_a_wait_within_a_second(home: Path, server: Server) -> None:
    chat = Terminal(home, **_endpoint(server, home))
    server.answers(dripping)
    chat.child.send("tell me\r")
    while not server.bodies:
        time.sleep(0.02)
    time.sleep(0.3)
    assert chat.stop() < SECOND
    assert "interrupted" in chat.text
    time.sleep(2.1)
    server.answers(status(429, "slow down", {"retry-after": "60"}))
    chat.child.send("and now?\r")
    chat.child.expect("asking again in 60")
    assert chat.stop() < SECOND
    server.answers(says('```json\n{"answer": "Fine now.", "proposals": []}\n```'))
    time.sleep(2.1)
    shown = chat("once more?", "tiny-1")
    assert shown.count("Fine now.") == 1, "streamed, and not said twice"
    assert chat.leave() == 0


def test_what_is_typed_during_a_step_waits_for_the_prompt(home: Path, server: Server) -> None:
    chat = Terminal(home, **_endpoint(server, home))

    def slow(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(1)
        says("So it is.")(handler)

    server.answers(slow)
    chat.child.send("tell me\r")
    while not server.bodies:
        time.sleep(0.02)
    start = len(chat.raw)
    chat.child.send("/frob\r/cost\r")
    chat.ready()
    assert "frob" not in ESCAPES.sub("", chat.raw[start:]).partition("So it is.")[0]
    chat.child.expect("no command /frob")
    chat.child.expect("1 call, 11 tokens in")
    chat.ready()
    assert chat.leave() == 0


HARD = """
import sys
import shardproof.synthesis.repair.diagnosis
from shardproof.verifier.smt.solver import integers, prove
def hard(*_, **__):
    a, b, c = integers("a b c")
    print("asking z3", flush=True)
    prove(a * a * a + b * b * b + c * c * c != 33, rlimit=2**31)
    raise SystemError("the query ended by itself")
shardproof.synthesis.repair.diagnosis.verify = hard
sys.argv = ["shardproof"]
from shardproof.agent.cli.main import main
main()
"""


def test_ctrl_c_ends_a_query_of_the_solver_and_twice_leaves(home: Path) -> None:
    chat = Terminal(home, sys.executable, "-c", HARD)
    chat(LOAD, "next: /verify")
    chat.child.send("/verify\r")
    chat.child.expect("asking z3")
    time.sleep(0.5)
    assert chat.stop() < SECOND
    assert "interrupted" in chat.text
    assert "ended by itself" not in chat.text
    chat.child.send("\x03")
    chat.child.expect(pexpect.EOF)
    chat.child.close()
    assert chat.child.exitstatus == 130
    journal = next((home.parent / "state").rglob("journal.jsonl")).read_text().splitlines()
    assert '"event":"run.completed"' in journal[-1]
    assert '"exit_code":130' in journal[-1]


@pytest.mark.torch
@pytest.mark.slow
def test_someone_new_plans_pins_applies_undoes_and_goes_on_after_a_kill(home: Path) -> None:
    tree = home.parent / "tree"
    tree.mkdir()
    shutil.copy(ROOT / "examples" / "mlp.py", tree / "mlp.py")
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "a model")):
        subprocess.run([*git, *words], cwd=tree, check=True, capture_output=True)
    before = (tree / "mlp.py").read_bytes()

    chat = Terminal(tree)
    assert "next: /mesh tp=2" in chat("/load mlp.py:MLP", "next:")
    assert "2 ranks" in chat("/mesh tp=2", "next: /plan")
    assert "down  row" in chat("/plan", "estimated step")
    assert "refused by the emitter" in chat("/why-not up row", "up row: ")
    assert "keeps: pin up=column" in chat("/pin up column", "next: /plan")
    assert "keeps: pin up=column" in chat("/plan", "estimated step")
    chat("/settings run never", "pin")
    assert "+    parallelize_module" in chat("/diff", "not judged yet")
    assert (tree / "mlp.py").read_bytes() == before
    assert "certificate accepted" in chat("/verify", "equality over the reals")
    chat.child.send("/apply\r")
    chat.child.expect(r"\[y/N\]")
    assert (tree / "mlp.py").read_bytes() == before
    assert "applied; /undo reverts it" in chat("y", "applied;")
    assert b"parallelize_module" in (tree / "mlp.py").read_bytes()
    chat("/undo", "undone;")
    assert (tree / "mlp.py").read_bytes() == before
    os.kill(chat.child.pid, signal.SIGKILL)
    chat.child.expect(pexpect.EOF)
    chat.close()

    chat = Terminal(tree, *COMMAND, "resume")
    assert "resumed" in chat.text
    assert "lost" not in chat.text
    assert "proved: mesh tp=2" in chat("/diff", "proved: mesh")
    assert "pin up=column" in chat("/pin", "pin")
    chat("/redo", "applied;")
    assert b"parallelize_module" in (tree / "mlp.py").read_bytes()
    log = subprocess.run(
        ["git", "status", "--short"], cwd=tree, capture_output=True, text=True, check=True
    )
    assert log.stdout == " M mlp.py\n", "nothing else in the tree, nothing staged"
    assert chat.leave() == 0


def test_commands_pasted_together_run_one_after_the_other(home: Path) -> None:
    chat = Terminal(home)
    assert "/help lists what can be done" in chat.text
    chat.child.send("\x1b[200~" + LOAD + "\n/frob\n/verify\x1b[201~")
    time.sleep(0.3)
    shown = chat("", "1 more not run")
    assert "next: /verify" in shown
    assert "no command /frob" in shown
    assert "refuted" not in shown
    chat.child.send("exit\r")
    chat.child.expect("kept: shardproof resume")
    chat.child.expect(pexpect.EOF)
