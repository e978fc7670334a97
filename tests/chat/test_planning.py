"""Commands on a captured model: plans, constraints, ideas of a model, reports. Captured once."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardproof.agent.chat import journal, replaying
from shardproof.agent.chat.engine import Session
from shardproof.agent.chat.models import Asker, Source
from shardproof.agent.chat.state import Constraint, Settings
from shardproof.agent.llm.client import Model
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.run import Run
from shardproof.synthesis.hardware import HardwareError
from shardproof.synthesis.planner.assign import PlanError
from tests.chat.conftest import ROOT, Heard, Talk
from tests.llm.scripted import Scripted

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a session in which a model was loaded."""
    pytest.importorskip("torch")
    base = tmp_path_factory.mktemp("loaded")
    tree = base / "tree"
    tree.mkdir()
    shutil.copy(ROOT / "examples" / "mlp.py", tree)
    (tree / "shardproof.toml").write_text('[plan]\nmesh = "tp=2"\n')
    before = Path.cwd()
    os.chdir(tree)
    session = Session.new([], Asker(Source.NONE), base / "session")
    assert session.do("/load mlp.py:MLP").outcome.exit is Exit.PROVED
    session.close()
    os.chdir(before)
    return base / "session"


@pytest.fixture
def talk(
    loaded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Talk]]:
    """Goes on with a copy of that session."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    opened: list[Session] = []

    def make(model: Model | None = None) -> Talk:
        heard = Heard()
        folder = tmp_path / f"session-{len(opened)}"
        journal.copy(loaded, folder)
        asker = Asker(Source.NONE if model is None else model)
        opened.append(Session.resumed(folder, [heard], asker))
        return Talk(opened[-1], heard)

    yield make
    for session in opened:
        session.journal.close()


def _styles(talk: Talk) -> dict[str, str]:
    return {m.path: m.style for m in talk.session.workspace.made().plan.modules}


def test_a_session_takes_over_what_the_project_says(talk: Callable[..., Talk]) -> None:
    """For another model than before; what the session says itself stays."""
    chat = talk()
    here = chat.session
    model = here.state.model
    assert model is not None
    assert (here.state.mesh, here.state.constraints) == ({"tp": 2}, [])
    here.root = Path.cwd()
    path, other = here.root / "shardproof.toml", model.model_copy(update={"target": "b.py:B"})
    table = '[plan]\nmesh = "dp=2"\nhardware = "a100"\nmemory = "1MB"\npin = ["up=replicate"]\n'
    path.write_text(table)
    here.about(model)
    assert here.state.constraints == []
    here.about(other)
    assert [(w.kind, w.words) for w in here.state.constraints] == [
        ("pin", "up=replicate"), ("constrain", "memory=1MB")
    ]  # fmt: skip
    assert (here.state.mesh, here.state.settings.hardware) == ({"tp": 2}, "h100")
    here.change(mesh={}, model=None)
    here.about(other)
    assert [w.words for w in here.state.constraints] == ["up=replicate", "memory=1MB"]
    here.change(constraints=[Constraint(kind="ban", words="up=row")], mesh={}, model=None)
    here.about(other)
    assert [w.words for w in here.state.constraints] == ["up=row"]
    assert (here.state.mesh, here.state.settings.hardware) == ({"dp": 2}, "a100")
    assert chat("/settings").outcome.exit is Exit.PROVED
    for wrong in ('mesh = "pp=2"', 'pin = ["up=colum"]', "mesh = 2", 'hardware = "z9"'):
        path.write_text(f"[plan]\n{wrong}\n")
        here.change(mesh={}, model=None, settings=Settings(), constraints=[])
        with pytest.raises((InputError, PlanError, HardwareError)):
            here.about(model)


def test_constraints_are_kept_or_named(talk: Callable[..., Talk]) -> None:
    chat = talk()
    chat("/plan")
    assert _styles(chat) == {"up": "column", "down": "row"}
    assert chat("/why-not up row").outcome.exit is Exit.PROVED
    assert "refused by the emitter" in chat.said
    chat("/why-not up vocab")
    assert "up vocab" in chat.said
    chat("/candidates")
    assert chat.said.startswith("chosen")
    statuses = {e.status for e in chat.heard.of(events.PlanJudged)}
    assert {"chosen, proved", "proved", "emitter"} <= statuses
    chat("/pin up replicate")
    assert chat("/diff").outcome.exit is Exit.INPUT, "the plan is for other constraints"
    chat("/plan")
    assert "keeps: pin up=replicate" in chat.said
    assert "up" not in _styles(chat)
    assert chat("/pin up row").outcome.exit is Exit.INPUT
    assert "pinned to replicate already" in chat.heard.problem.message
    chat("/pin --drop up")
    chat("/pin up row")
    assert chat("/plan").outcome.exit is Exit.INPUT
    assert chat.heard.problem.where == "pin up=row"
    assert chat("/pin nothing row").outcome.exit is Exit.INPUT
    assert "no such module" in chat.heard.problem.message


def test_a_resumed_session_comes_to_the_same_plan_and_verdict(talk: Callable[..., Talk]) -> None:
    chat = talk()
    chat("/pin up column")
    chat("/plan")
    assert chat("/verify").outcome.verdict == "proved"
    chat("/diff")
    diff = chat.heard.of(events.PatchShown)[-1]
    chat.session.close()
    heard = Heard()
    again = Talk(Session.resumed(chat.session.journal.folder, [heard]), heard)
    again("/diff")
    found = heard.of(events.PatchShown)[-1]
    assert (found.diff, found.standing) == (diff.diff, diff.standing)
    assert found.standing == "the plan is proved: mesh tp=2; /apply reads its patch"
    again("/explain up")
    assert "column, R -> S(-1)" in again.said
    again.session.close()


def test_what_apply_shows_stands_as_it_was_just_found(talk: Callable[..., Talk]) -> None:
    """/apply proves and writes the plan before it asks, also where /verify was never said."""
    chat = talk()
    chat("/plan")
    chat("/diff")
    assert chat.heard.of(events.PatchShown)[-1].standing == "not judged yet: /verify"
    for begins in ("proved: mesh tp=2; patch: ", "proved before; now accepted: mesh tp=2; patch: "):
        chat.session.agree = lambda _: False
        assert chat("/apply").outcome.exit is Exit.NOT_PROVED
        assert chat.heard.of(events.PatchShown)[-1].standing.startswith(begins)
    chat("/diff")
    assert chat.heard.of(events.PatchShown)[-1].standing.startswith("proved: mesh tp=2; patch: ")


def _proposal(tactic: str, **styles: str) -> dict[str, object]:
    placements = [{"module": m, "style": s} for m, s in styles.items()]
    return {"tactic": tactic, "stream": "R", "placements": placements, "reason": "It saves memory."}


def test_what_a_model_proposes_is_judged_before_it_is_more_than_an_idea(
    talk: Callable[..., Talk],
) -> None:
    good, bad = _proposal("column_row"), _proposal("column_row", up="row")
    unknown = _proposal("column_row", sideways="row")
    script = Scripted(
        [
            json.dumps({"answer": "Try these; they are proved.", "proposals": [good, bad]}),
            json.dumps({"answer": "Try this.", "proposals": [unknown]}),
        ]
    )
    chat = talk(script)
    assert chat("how else?").outcome.verdict == "proved", "one of them is"
    kinds = [e.event for e in chat.heard.seen]
    assert kinds.index("said") < kinds.index("verdict")
    told = chat.heard.of(events.VerdictReached)
    assert [e.verdict for e in told] == ["proved", "unknown"]
    assert told[0].message.startswith("idea-1: proved, step")
    assert "cannot be planned" in told[1].message
    assert "up  Linear" in script.heard[0][1]["content"]
    ideas = chat.session.state.ideas
    assert [(i.name, i.verdict) for i in ideas] == [("idea-1", "proved"), ("idea-2", "unknown")]
    chat("/plan")
    assert chat.session.state.planned is not None
    assert chat.session.state.planned.ideas == ["idea-1"]
    assert chat("/verify").outcome.verdict == "proved"
    chat("and else?")
    assert chat.heard.said.startswith("Try this.\n")
    (left_out,) = chat.heard.of(events.Warned)
    assert "sideways" in left_out.message
    assert len(chat.session.state.ideas) == 2


def test_what_is_proposed_beside_commands_is_judged_after_them(talk: Callable[..., Talk]) -> None:
    both = {"answer": "", "commands": ["/mesh tp=4"], "proposals": [_proposal("column_row")]}
    script = Scripted([json.dumps(both), json.dumps({"answer": "So.", "proposals": []})])
    chat = talk(script)
    chat.session.agree = lambda _: True
    chat("use 4 GPUs, by columns and rows")
    assert chat.session.state.mesh == {"tp": 4}
    (idea,) = chat.session.state.ideas
    assert idea.verdict == "proved"
    assert idea.told in script.heard[1][-1]["content"], "the model is told"
    chat("/plan")
    made = chat.session.workspace.made()
    assert made.plan.tp_size == 4
    share = chat.session.workspace.made().found.best.estimate.step_s
    assert f"step {share * 1e3:.3f} ms" in idea.told, "priced on the mesh of then"


def test_a_price_is_that_of_the_plan_and_changes_nothing(talk: Callable[..., Talk]) -> None:
    chat = talk()
    before = chat.session.state
    chat("/price tp=4 tp=2 tp=3")
    assert chat.session.state == before
    rows = {e.name: e for e in chat.heard.of(events.PlanJudged) if isinstance(e, events.PlanJudged)}
    assert set(rows) == {"tp=2", "tp=4"}
    assert "tp=3: no plan: " in chat.said
    chat("/plan")
    best = chat.session.workspace.made().found.best
    assert rows["tp=2"].step_s == best.estimate.step_s
    assert rows["tp=2"].memory_bytes == best.memory_bytes


def test_a_session_with_a_model_s_ideas_is_replayed(
    talk: Callable[..., Talk], loaded: Path
) -> None:
    script = Scripted([json.dumps({"answer": "So.", "proposals": [_proposal("column_row")]})])
    chat = talk(script)
    for line in ("/plan", "how else?", "/plan", "/verify", "/candidates", "/diff"):
        chat(line)
    chat.session.close()
    heard = Heard()
    outcome = replaying.replay(Run([heard]), chat.session.journal.path)
    messages = [e.message for e in heard.of(events.VerdictReached)]
    assert (outcome.exit, messages) == (Exit.PROVED, [])


def test_a_report_is_an_out_directory(talk: Callable[..., Talk], tmp_path: Path) -> None:
    chat = talk()
    chat("/plan")
    chat("/settings run never")
    assert chat("/report").outcome.verdict == "proved"
    out = chat.session.journal.folder / "report"
    assert {"report.html", "patch.diff", "certificate.json"} <= {p.name for p in out.iterdir()}
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "x").write_text("mine")
    assert chat(f"/report {tmp_path / 'taken'}").outcome.exit is Exit.INPUT


def test_the_mesh_is_chosen_for_a_number_of_devices(talk: Callable[..., Talk]) -> None:
    chat = talk()
    for words in ("/mesh --gpus 4", "/mesh --gpus 0"):
        assert chat(words).outcome.exit is Exit.INPUT
        assert chat.session.state.mesh == {"tp": 2}
    assert chat(f"/load {ROOT / 'examples' / 'nanogpt.py'}:GPT").outcome.exit is Exit.PROVED
    assert chat("/mesh --gpus 4 --fix tp=4").outcome.exit is Exit.PROVED
    assert "certified: none of the" in chat.said
    assert chat.session.state.mesh == {"tp": 4}
    assert chat("/plan").outcome.exit is Exit.PROVED
    odd = chat("/mesh --gpus 4 --fix dp=64")
    assert odd.outcome.exit is Exit.INPUT
    assert chat.session.state.mesh == {"tp": 4}
