"""The benchmark of the chat: a session where nothing was done solves no task, a script most."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.agent import running
from benchmarks.agent.bases import Bases
from benchmarks.agent.tasks import TASKS, Seen, Task, unsolved
from shardproof.agent.run import events
from shardproof.agent.run.errors import InputError
from tests.chat import strong
from tests.llm.server import Server

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "agent.jsonl"
PAGE = RESULTS.parents[2] / "docs" / "benchmarks.md"
SLICE = ("repair", "numbers", "same", "fastest", "turns")
CHEAP = {"empty", "wrong", "refuted"}
"""Bases that capture no model."""
CAPTURED = [
    pytest.param(t, id=t.name, marks=[] if t.base == "gpt" else pytest.mark.campaign)
    for t in TASKS
    if t.base not in CHEAP
]
"""Every run takes those of one base, which the script of `SLICE` works on too."""


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bases]:
    with pytest.MonkeyPatch.context() as patch:
        base = tmp_path_factory.mktemp("bench")
        patch.chdir(base)
        patch.setenv("XDG_STATE_HOME", str(base / "state"))
        yield Bases(base)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with strong.asked() as server:
        yield server


def _untouched(bases: Bases, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was done, and the model says that all is: the task is not solved."""
    monkeypatch.chdir(bases.scratch)
    session, _ = bases.begin(task.base)
    before = running.files(bases.tree)
    echo = f"Yes, done. {' '.join(task.asked)}"
    for seen in ([], [events.StepStarted(step=1, input=task.asked[0])]):
        said = [*seen, *([events.Said(by="model", text=echo)] if seen else [])]
        assert unsolved(task, Seen(session, before, before, said)), task.name
    session.close()


@pytest.mark.parametrize("task", [t for t in TASKS if t.base in CHEAP], ids=lambda t: t.name)
def test_a_session_where_nothing_was_done_solves_nothing(
    task: Task, bases: Bases, monkeypatch: pytest.MonkeyPatch
) -> None:
    _untouched(bases, task, monkeypatch)


@pytest.mark.parametrize(
    "change", [(b"gelu", b"relu"), (b"mesh_dim=tp", b"mesh_dim=tp, reduce=max")]
)
def test_a_file_that_was_changed_and_is_wrong_is_not_repaired(
    change: tuple[bytes, bytes], bases: Bases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the model says that it is, and the session was made to say so."""
    monkeypatch.chdir(bases.scratch)
    session, _ = bases.begin("refuted")
    before = running.files(bases.tree)
    text = before["wrong.txt"].replace(*change)
    assert text != before["wrong.txt"]
    kept = session.artifacts.keep(text.decode())
    session.change(programs=session.state.programs.model_copy(update={"repaired": kept}))
    after = {**before, "wrong.txt": text}
    said: list[events.Event] = [events.Said(by="model", text="Proved: it takes 1 edit.")]
    by_name = {task.name: task for task in TASKS}
    assert unsolved(by_name["mend"], Seen(session, before, after, said))
    assert unsolved(by_name["repair"], Seen(session, before, before, said)) == "the repair is wrong"
    assert unsolved(by_name["edits"], Seen(session, before, before, said)) == "the repair is wrong"
    session.close()


@pytest.mark.torch
@pytest.mark.hf
@pytest.mark.slow
@pytest.mark.parametrize("task", CAPTURED)
def test_a_model_where_nothing_was_done_solves_nothing(
    task: Task, bases: Bases, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    _untouched(bases, task, monkeypatch)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("name", SLICE)
def test_a_script_that_reads_what_it_is_shown_solves_it(
    name: str, bases: Bases, script: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(bases.scratch)
    (task,) = running.wanted([name])
    row = running.run(bases, task)
    assert row.solved, row.why
    assert row.questions > 1
    assert row.prompt_tokens > 1000
    assert script.bodies


@pytest.mark.parametrize("without", ["fixes", "counterexample"])
def test_what_is_withheld_is_neither_offered_nor_run(
    without: str, bases: Bases, script: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bases.scratch)
    (task,) = running.wanted(["repair" if without == "fixes" else "numbers"])
    row = running.run(bases, task, without)
    assert not row.solved
    offered = {t["function"]["name"] for body in script.bodies for t in body["tools"]}
    assert not offered & set(running.WITHOUT[without])
    if without == "counterexample":
        assert "one device gives" not in json.dumps(script.bodies)


def test_tasks_that_have_a_row_are_not_run_again(
    script: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del script
    monkeypatch.chdir(tmp_path)
    told: list[str] = []
    path = tmp_path / "rows.jsonl"
    first = running.bench(path, ["repair", "module"], [], told.append)
    again = running.bench(path, ["repair", "module"], [], told.append)
    assert first == again
    assert told == ["repair: solved", "module: solved"]
    assert "| nothing | 2 of 2 |" in running.table(first)
    with pytest.raises(InputError, match="no such task"):
        running.wanted(["nosuch"])
    path.write_text("{}\n")
    with pytest.raises(InputError, match="not a row"):
        running.rows(path)


def test_the_results_are_of_the_tasks_as_they_are() -> None:
    found = running.rows(RESULTS)
    for without in {row.without for row in found} | {""}:
        assert {row.task for row in found if row.without == without} == {t.name for t in TASKS}
    assert len({row.task for row in found if row.solved and not row.without}) >= 30
    assert running.table(found) in PAGE.read_text(encoding="utf-8")
