"""diff, apply, undo and redo as a user calls them; what is not proved is not applied."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from shardproof.agent.patching import describe
from shardproof.agent.run import outdir
from shardproof.synthesis.emit.patch import patch
from shardproof.synthesis.planner.plan import to_json
from shardproof.synthesis.planner.planner import Asked, synthesize
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.jsonio import dumps
from shardproof.verifier.verdict import Proof
from tests.commands import COMMAND, Command, environment
from tests.synthesis import decoder

FILES: dict[str, tuple[str | None, str]] = {"m.py": ("a = 1\r\nb", "a = 2\r\nb")}


@pytest.fixture(scope="module")
def parts() -> dict[str, str]:
    """What a proved run writes."""
    made = synthesize(Asked(decoder.decoder(layers=1), Mesh.of(tp=2), decoder.CLUSTER))
    lowered = made.lowered
    verdict = verify(Problem(made.sequential, lowered.program, lowered.contract))
    assert isinstance(verdict, Proof)
    return {
        "plan.json": to_json(made.plan),
        "program.json": dumps(made.sequential),
        "distributed.json": dumps(lowered.program),
        "contract.json": json.dumps(lowered.contract.to_json()),
        "certificate.json": json.dumps(verdict.certificate),
    }


@pytest.fixture
def home(tmp_path: Path, parts: dict[str, str]) -> Path:
    """A working directory with the file and the out-directory."""
    home = tmp_path / "home"
    home.mkdir()
    old = FILES["m.py"][0]
    assert old is not None
    (home / "m.py").write_bytes(old.encode())
    written(home / "out", parts)
    return home


def written(place: Path, parts: dict[str, str]) -> None:
    with outdir.staged(place) as out:
        for name, text in parts.items():
            out.write(name, text)
        out.write("patch.diff", patch(FILES, (), "").diff)
        out.seal({"verdict": "proved", "patch": describe(FILES, {}, proved=True)})


def test_there_and_back(here: Command, home: Path) -> None:
    before = (home / "m.py").read_bytes()
    state = str(home.parent / "state")
    shown = here("diff", "out", cwd=home, XDG_STATE_HOME=state)
    assert (shown.code, shown.out.splitlines()[-1]) == (0, "\\ No newline at end of file")
    refused = here("apply", "out", "--json", cwd=home, XDG_STATE_HOME=state)
    assert (refused.code, refused.last["exit_code"]) == (2, 2)
    assert (home / "m.py").read_bytes() == before
    done = here("apply", "out", "--no-recapture", "--yes", "--json", cwd=home, XDG_STATE_HOME=state)
    assert done.code == 0
    assert [e["action"] for e in done.events if e["event"] == "patching"] == ["preview", "apply"]
    assert (home / "m.py").read_bytes() == b"a = 2\r\nb"
    assert here("diff", "out", cwd=home, XDG_STATE_HOME=state).code == 1
    assert here("undo", cwd=home, XDG_STATE_HOME=state).code == 0
    assert (home / "m.py").read_bytes() == before
    assert here("redo", cwd=home, XDG_STATE_HOME=state).code == 0
    again = here("redo", cwd=home, XDG_STATE_HOME=state)
    assert again.code == 2
    assert "nothing to redo" in again.err
    assert sorted(p.name for p in home.iterdir()) == ["m.py", "out"]


def test_a_certificate_that_does_not_hold_applies_nothing(
    here: Command, home: Path, parts: dict[str, str]
) -> None:
    other = json.loads(parts["contract.json"])
    keys = [k for k in other["outputs"] if k.startswith("grad:")]
    other["outputs"][keys[0]], other["outputs"][keys[1]] = (
        other["outputs"][keys[1]],
        other["outputs"][keys[0]],
    )
    written(home / "forged", {**parts, "contract.json": json.dumps(other)})
    done = here("apply", "forged", "--yes", cwd=home, XDG_STATE_HOME=str(home.parent / "state"))
    assert done.code in (1, 2)
    assert (home / "m.py").read_bytes() == b"a = 1\r\nb"
    assert not (home.parent / "state").exists()


@pytest.mark.parametrize(("answer", "code", "text"), [("y", 0, b"a = 2"), ("n", 1, b"a = 1")])
def test_on_a_terminal_it_shows_the_diff_and_asks(
    home: Path, answer: str, code: int, text: bytes
) -> None:
    screen, line = pty.openpty()
    child = subprocess.Popen(
        [*COMMAND, "apply", "out", "--no-recapture"],
        cwd=home,
        env=environment(XDG_STATE_HOME=str(home.parent / "state"), TERM="dumb"),
        stdin=line,
        stderr=line,
        stdout=subprocess.DEVNULL,
    )
    os.close(line)
    said = b""
    while b"[y/N]" not in said:
        said += os.read(screen, 4096)
    assert b"+a = 2" in said
    os.write(screen, f"{answer}\n".encode())
    assert child.wait(30) == code
    os.close(screen)
    assert (home / "m.py").read_bytes().startswith(text)
