"""`check-certificate` in a process of its own: what it imports, accepts and rejects."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardproof.verifier.checker.certificate import seal
from shardproof.verifier.smt.solver import read_smtlib
from tests.checker.edits import certified, put_down
from tests.commands import Command, environment

CASES = ("MC-01", "MC-09", "OR-07-values", "SG-41", "DS-22")
"""By relations, in stages, with events, in index notation, by entries."""
SEARCH = ("shardproof.verifier.verification", "shardproof.verifier.provers.relate")
RUN = """
import sys
from shardproof.agent.cli.main import main
try:
    main()
finally:
    print("imported", *sys.modules, file=sys.stderr)
"""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return put_down("MC-01", tmp_path)


def edited(out: Path, change: dict[str, Any]) -> None:
    path = out / "certificate.json"
    document = {**json.loads(path.read_text()), **change}
    path.write_text(json.dumps({**document, "seal": seal(document)}))


@pytest.mark.parametrize("name", CASES)
def test_rules_that_are_trusted_need_neither_torch_nor_z3(name: str, tmp_path: Path) -> None:
    out = put_down(name, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", RUN, "check-certificate", str(out), "--rules-trusted"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "the checker's rules are trusted" in done.stderr
    imported = done.stderr.rpartition("imported ")[2].split()
    assert not {"torch", "z3"} & set(imported)
    assert not set(SEARCH) & set(imported)


def test_z3_is_asked_about_the_steps(command: Command, out: Path) -> None:
    done = command("check-certificate", str(out), "--no-cache", "--json")
    assert (done.code, done.last["verdict"]) == (0, "accepted")
    (checked,) = [e for e in done.events if e.get("phase") == "check" and "summary" in e]
    assert "for all sizes" in checked["summary"]


def test_obligations_are_written_as_smtlib(command: Command, out: Path, tmp_path: Path) -> None:
    """Z3 reads each back, and says of it what the file says."""
    folder = tmp_path / "obligations"
    done = command("check-certificate", str(out), "--smtlib", str(folder), "--json")
    assert (done.code, done.last["verdict"]) == (0, "accepted")
    files = sorted(folder.glob("*.smt2"))
    assert files
    assert any("premise-0" in file.read_text() for file in files)
    for file in files:
        text = file.read_text()
        assert "(set-logic " in text
        assert f"(set-info :status {read_smtlib(text)})" in text
        assert "(set-info :status unsat)" in text
    done = command("check-certificate", str(out), "--smtlib", str(folder), "--rules-trusted")
    assert done.code == 2
    assert "--rules-trusted" in done.err


def test_forged_certificate_is_rejected_with_the_place(command: Command, out: Path) -> None:
    claims = certified("MC-01")[1]["claims"]
    claims["values"]["h"][0]["factor"] = "2/1"
    edited(out, {"claims": claims})
    done = command("check-certificate", str(out), "--rules-trusted", "--json")
    assert (done.code, done.last["verdict"]) == (1, "rejected")
    (verdict,) = [e for e in done.events if e["event"] == "verdict"]
    assert "the value is not 2 * %h" in verdict["message"]
    assert verdict["where"].startswith("%h ")


def test_files_are_named_one_by_one(command: Command, out: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    names = {"sequential": "program", "distributed": "distributed", "contract": "contract"}
    options: list[str] = []
    for option, name in names.items():
        (out / f"{name}.json").rename(elsewhere / name)
        options += [f"--{option}", str(elsewhere / name)]
    (elsewhere / "contract").write_text("input a tp=S(1)\ninput b tp=S(0)\noutput z\n")
    certificate = str(out / "certificate.json")
    done = command("check-certificate", certificate, *options, "--rules-trusted")
    assert (done.code, done.out) == (0, "accepted\n")
    assert command("check-certificate", certificate, "--rules-trusted").code == 2


@pytest.mark.parametrize(
    ("file", "text", "code"),
    [
        ("certificate.json", "{", 2),
        ("certificate.json", "[]", 2),
        ("certificate.json", "{}", 1),
        ("certificate.json", '{"version": 2, "version": 2}', 2),
        ("certificate.json", '{"claims": ' + "[" * 900 + "]" * 900 + "}", 1),
        ("program.json", "program", 2),
        ("contract.json", '{"inputs": {}}', 2),
        ("contract.json", '{"inputs": {}, "outputs": {}}', 1),
    ],
)
def test_bad_input_is_one_error(here: Command, out: Path, file: str, text: str, code: int) -> None:
    (out / file).write_text(text)
    done = here("check-certificate", str(out), "--rules-trusted", "--json")
    assert done.code == code
    problems = [e for e in done.events if e["event"] in ("problem", "error", "verdict")]
    assert len(problems) == 1, done.out


def test_a_place_that_is_not_there_is_named(here: Command, tmp_path: Path) -> None:
    done = here("check-certificate", str(tmp_path / "nothing"))
    assert done.code == 2
    assert "nothing" in done.err
