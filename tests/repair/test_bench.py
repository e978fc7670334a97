"""`benchmarks.repair` on a slice: nothing wrong is accepted, and a run goes on where it stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.repair import outcome as outcomes
from benchmarks.repair.command import Choice, command
from benchmarks.repair.outcome import alike
from benchmarks.repair.programs import wrong
from shardproof.agent.run.errors import Exit
from shardproof.agent.run.run import Outcome, Run, conduct
from shardproof.verifier.text.parser import parse_text


def run(choice: Choice, out: Path) -> int:
    def work(run: Run) -> Outcome:
        return command(run, choice, out)

    return conduct("bench", ["repair"], work, json=True)


def test_a_slice_is_repaired_and_taken_up_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(Choice(limit=3, parts=("corpus", "zoo")), tmp_path) == Exit.PROVED
    data = json.loads((tmp_path / "repair-none.json").read_text())
    assert [o["faults"] for o in data["outcomes"]] == [0, 0, 0, 1, 2, 3]
    mine = [o for o in data["outcomes"] if o["repaired"]]
    assert len(mine) >= 4
    assert all(o["right"] for o in mine)
    assert data["summary"]["corpus"]["false accepts"] == 0
    assert sum(row["used"] for row in data["tactics"].values()) >= 3
    page = (tmp_path / "repair-none.md").read_text()
    assert "| repaired |" in page
    kept = tmp_path / "repair-none.jsonl"
    lines = kept.read_text().splitlines()
    kept.write_text("\n".join(lines[:5]) + '\n{"torn')

    def once(*given: object) -> outcomes.Outcome:
        asked.append(given)
        return again(*given)  # type: ignore[arg-type]

    asked: list[tuple[object, ...]] = []
    again = outcomes.repaired
    monkeypatch.setattr("benchmarks.repair.command.repaired", once)
    assert run(Choice(limit=3, parts=("corpus", "zoo"), seconds=1.0), tmp_path) == Exit.PROVED
    assert len(asked) == 1
    assert len([json.loads(line) for line in kept.read_text().splitlines()]) == 6
    capsys.readouterr()


def test_a_run_that_is_out_of_time_says_what_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(Choice(limit=3, parts=("corpus",), stop=0.0), tmp_path) == Exit.PROVED
    assert json.loads((tmp_path / "repair-none.json").read_text())["outcomes"] == []
    capsys.readouterr()


@pytest.mark.parametrize(
    "choice",
    [Choice(parts=("books",)), Choice(levels=("all",)), Choice(llm="auto", levels=("much",))],
    ids=["part", "level without a model", "level"],
)
def test_what_cannot_be_measured_is_an_error_of_input(
    choice: Choice, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(choice, tmp_path) == Exit.INPUT
    capsys.readouterr()


def test_mutants_are_the_same_every_time() -> None:
    first, second = ([m.made().what for m in wrong("zoo", 2)] for _ in range(2))
    assert first == second
    assert all(first)


def test_programs_are_alike_whatever_values_are_called() -> None:
    text = "program p mesh(tp=2)\n input %x: f32[2]\n %y = neg %x\n %z = relu %y\n return %z"
    one = parse_text(text)
    assert alike(one, parse_text(text.replace("%y", "%h").replace("program p", "program q")))
    assert not alike(one, parse_text(text.replace("relu", "gelu")))
