"""Code that capture refuses: offered, asked for, planned from where it is bound, else shown."""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from pathlib import Path

import pytest

from shardproof.agent.chat.state import Refused
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit
from shardproof.synthesis.frontends.torch.observed import Observed
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from tests.chat.conftest import ROOT, Begin
from tests.llm.scripted import Scripted
from tests.untraceable.conftest import try_all

REPLIES = ROOT / "tests" / "untraceable" / "replies"
UNTRACEABLE = ROOT / "examples" / "untraceable"
TARGET = "squared_relu.py:FeedForward"
STUCK = "apex_norm.py:Block"


def reply(name: str) -> str:
    return json.dumps({"program": (REPLIES / name).read_text(), "unsupported": []})


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Observed]:
    """Two files that capture refuses, observed once; apex_norm.py does not run here."""
    place = tmp_path_factory.mktemp("seen") / "tried"
    found = try_all([f"{UNTRACEABLE / t}" for t in (TARGET, STUCK)], place)
    assert not any(isinstance(f, str) for f in found), found
    return {f.file: f for f in found if isinstance(f, Observed)}


@pytest.fixture
def tried(home: Path, seen: dict[str, Observed], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with both of them."""
    for name in seen:
        shutil.copy(UNTRACEABLE / name, home)

    def attempt(request: CaptureRequest, tell: object) -> Observed:
        del tell
        return seen[request.target.rpartition(":")[0]]

    monkeypatch.setattr(
        import_module("shardproof.synthesis.frontends.torch.capture"), "attempt", attempt
    )
    return home


@pytest.mark.torch
def test_only_a_bound_translation_is_planned_from(tried: Path, begin: Begin) -> None:
    wrong, right = reply("squared_relu.wrong_scale.txt"), reply("squared_relu.right.txt")
    talk = begin(Scripted([wrong, right]))
    talk("/prompt /translate " + TARGET)
    assert "class SquaredReLUFunction" in talk.said
    assert not talk.heard.of(events.ModelAsked), "nothing was sent"
    done = talk("/translate " + TARGET)
    assert done.outcome.exit is Exit.PROVED
    told = talk.heard.of(events.TranslationDiffers)
    assert len(told) == 1, "the difference was fed back"
    assert "elsewhere that is assumed" in talk.said
    talk("/mesh dp=2")
    assert talk("/plan").outcome.exit is Exit.PROVED
    assert talk("/verify").outcome.verdict == "proved"
    verdict = talk.heard.of(events.VerdictReached)[-1]
    assert isinstance(verdict, events.VerdictReached)
    assert any("The translation agrees with" in line for line in verdict.assumptions)
    for line in ("/apply --yes", "/diff"):
        assert talk(line).outcome.exit is Exit.INPUT
        assert "no patch" in talk.heard.problem.message
    talk.session.close()
    again = begin(resume=talk.session.journal.folder)
    assert again("/verify").outcome.verdict == "proved"
    verdict = again.heard.of(events.VerdictReached)[-1]
    assert isinstance(verdict, events.VerdictReached)
    assert any("The translation agrees with" in line for line in verdict.assumptions)


@pytest.mark.torch
def test_what_is_not_bound_leaves_the_session_as_it_was(tried: Path, begin: Begin) -> None:
    shutil.copy(REPLIES / "squared_relu.wrong_scale.txt", tried / "wrong.txt")
    shutil.copy(REPLIES / "apex_norm.right.txt", tried / "unrun.txt")
    (tried / "nothing.txt").write_text("no program at all\n")
    talk = begin()
    assert talk(f"/translate {TARGET} --reply wrong.txt").outcome.exit is Exit.NOT_PROVED
    assert "not bound to the code" in talk.said
    assert talk(f"/translate {TARGET} --reply nothing.txt").outcome.exit is Exit.INPUT
    assert "the reply is not a program" in talk.heard.problem.message
    assert talk(f"/translate {TARGET}").outcome.exit is Exit.INPUT
    assert "/prompt /translate" in talk.heard.problem.hint
    done = talk(f"/translate {STUCK} --reply unrun.txt --input x=f32[4,8]")
    assert done.outcome.exit is Exit.NOT_PROVED, talk.heard.problem
    assert "display-only" in talk.said
    assert talk.session.state.model is None
    assert talk.session.state.subject == ""
    for line in ("/plan", "/verify", "/apply --yes"):
        assert talk(line).outcome.exit is Exit.INPUT


@pytest.mark.torch
@pytest.mark.slow
def test_load_of_what_capture_refuses_says_how_to_go_on(home: Path, begin: Begin) -> None:
    shutil.copy(ROOT / "examples" / "untraceable" / "squared_relu.py", home)
    talk = begin()
    assert talk(f"/load {TARGET}").outcome.exit is Exit.INPUT
    assert "goes through numpy" in talk.heard.problem.message
    assert "/translate" in talk.heard.problem.hint
    assert "/prompt /translate shows what would be sent" in talk.said
    assert talk.session.state.refused == Refused(target=TARGET)
    assert talk.session.state.model is None
