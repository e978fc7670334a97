"""`shardproof repair`: a diff of the program's text, the source lines, one JSON event stream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.errors import Exit
from agent.repairing import Choice, Files, command
from agent.run import Outcome, Run, conduct
from verifier.campaign.cases import read_case
from verifier.campaign.corpus import ROOT


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    case = read_case(ROOT / "missing_collective" / "MC-01.txt")
    paths = tuple(tmp_path / name for name in ("one.txt", "many.txt", "contract.txt"))
    for path, section in zip(paths, ("one", "wrong", "contract"), strict=True):
        path.write_text(case.sections[section])
    return paths[0], paths[1], paths[2]


def run(files: tuple[Path, Path, Path], json: bool, max_edits: int = 3) -> int:
    def work(run: Run) -> Outcome:
        return command(run, Files(*files), Choice(max_edits, 10.0, rounds=2))

    return conduct("repair", [], work, json=json)


def test_repair_prints_the_edit_its_source_line_and_a_diff(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    before = files[1].read_text()
    assert run(files, json=False) == Exit.PROVED
    out = capsys.readouterr().out
    assert "all_reduce {mesh_dim=tp, reduce=sum} after %p  mlp.py:13" in out
    assert "+  %p_all_reduce = all_reduce %p {mesh_dim=tp, reduce=sum}" in out
    assert "+  %z = relu %p_all_reduce" in out
    assert "-  %z = relu %p" in out
    assert files[1].read_text() == before


def test_json_holds_edits_and_diff(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(files, json=True) == Exit.PROVED
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (repaired,) = [e for e in events if e["event"] == "repaired"]
    assert repaired["edits"] == ["all_reduce {mesh_dim=tp, reduce=sum} after %p"]
    assert repaired["sources"][0].startswith("mlp.py:13")
    assert repaired["diff"].startswith("--- a/")
    assert events[-1]["verdict"] == "proved"


def test_program_that_is_not_mended_is_no_success(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    files[1].write_text(files[1].read_text().replace("relu %p", "cos %x"))
    assert run(files, json=False, max_edits=1) == Exit.NOT_PROVED
    assert "not repaired" in capsys.readouterr().out


def test_file_without_a_program_is_an_error_of_input(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    files[1].write_text("no program")
    assert run(files, json=False) == Exit.INPUT
    assert "many.txt:1" in capsys.readouterr().err
