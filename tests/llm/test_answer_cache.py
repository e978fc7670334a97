"""Equal questions are answered once, until that is switched off; everything else is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardproof.agent.chat.models import Asker, Source
from shardproof.agent.llm import answer_cache
from shardproof.agent.llm.answer_cache import OLD_S, AnswerCache
from shardproof.agent.llm.answers import Completion
from shardproof.agent.llm.dialogue import Read
from shardproof.agent.llm.endpoint import Endpoint
from shardproof.agent.llm.repairing import repair
from shardproof.agent.repair import NotFixed, Settings, fix
from shardproof.agent.run import events
from tests.llm import tasks
from tests.llm.server import Server, says, status

Patch = pytest.MonkeyPatch
ASKED = [{"role": "user", "content": "is it B0123456789abcdef0123456789abcdef?"}]
AGAIN = [{"role": "user", "content": "is it Bfedcba9876543210fedcba9876543210?"}]


@pytest.fixture
def asker(server: Server, tmp_path: Path, monkeypatch: Patch) -> Iterator[Asker]:
    for kind in ("CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHARDPROOF_BASE_URL", server.url)
    monkeypatch.setenv("SHARDPROOF_MODEL", "tiny")
    monkeypatch.setenv("SHARDPROOF_ANSWER_CACHE", "1")
    made = Asker(Source.USER)
    yield made
    made.close()


def test_an_equal_question_is_answered_without_the_server(asker: Asker, server: Server) -> None:
    seen: list[events.Event] = []
    asker.emit = seen.append
    server.answers(says("yes"))
    first, again = asker.ask(ASKED), asker.ask(AGAIN)
    assert isinstance(first, Completion)
    assert isinstance(again, Completion)
    assert (first.text, again.text, server.calls) == ("yes", "yes", 1)
    assert asker.spent.calls == 1
    told = [e for e in seen if isinstance(e, events.ModelAnswered)]
    assert [e.cached for e in told] == [False, True]
    assert told[1].cost() == "tiny-1 answered this before; nothing was asked"


def test_a_repair_asked_again_in_another_process_costs_nothing(
    asker: Asker, server: Server
) -> None:
    server.answers(says("ok"), says(tasks.repaired()))
    first = repair(asker, tasks.mending())
    asked = server.calls
    other = Asker(Source.USER)
    again = repair(other, tasks.mending())
    changed = repair(other, tasks.mending(finding="another"))
    other.close()
    assert isinstance(first, Read)
    assert isinstance(again, Read)
    assert (again.value.text, again.usage.total) == (first.value.text, 0)
    assert isinstance(changed, Read)
    assert server.calls == asked + 1


@pytest.mark.parametrize("how", ["variable", "user", "project", "option"])
def test_it_can_be_switched_off(
    asker: Asker, server: Server, tmp_path: Path, monkeypatch: Patch, how: str
) -> None:
    off = "[model]\nanswer_cache = false\n"
    if how == "variable":
        monkeypatch.setenv("SHARDPROOF_ANSWER_CACHE", "0")
    elif how == "project":
        (tmp_path / "shardproof.toml").write_text(off)
    elif how == "user":
        (tmp_path / "CONFIG/shardproof").mkdir(parents=True)
        (tmp_path / "CONFIG/shardproof/config.toml").write_text(off)
    else:
        from typer.testing import CliRunner

        from shardproof.agent.cli.main import app

        CliRunner().invoke(app, ["chat", "--no-answer-cache", "-p", "/help"])
    server.answers(says("yes"))
    asker.ask(ASKED)
    asker.ask(AGAIN)
    assert server.calls == 2
    assert not (tmp_path / "CACHE/shardproof/answers").exists()


def test_failures_and_other_models_are_not_kept(
    asker: Asker, server: Server, monkeypatch: Patch
) -> None:
    server.answers(status(401), says("one"), says("two"))
    asker.ask(ASKED)
    asker.ask(ASKED)
    asker.close()
    monkeypatch.setenv("SHARDPROOF_MODEL", "other")
    found = asker.ask(ASKED)
    assert isinstance(found, Completion)
    assert (found.text, server.calls) == ("two", 3)


def test_answers_are_private_go_stale_and_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 20
    monkeypatch.setattr(answer_cache, "MOST", most)
    endpoint = Endpoint("http://127.0.0.1:1/v1", "tiny")
    cache = AnswerCache(tmp_path / "answers")
    for n in range(most + 3):
        cache.put(events.ModelAnswered(question=str(n), answer="Completion", text="x"), endpoint)
    assert len(list(cache.folder.iterdir())) == most
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    last = str(most + 2)
    assert cache.get(last, endpoint) is not None
    later = AnswerCache(cache.folder, lambda: cache.now() + OLD_S + 1)
    assert later.get(last, endpoint) is None
    (path,) = [p for p in cache.folder.iterdir() if f'"question":"{last}"' in p.read_text()]
    path.write_text("torn {")
    assert cache.get(last, endpoint) is None


def test_a_forged_answer_is_judged_as_any_other(asker: Asker, server: Server) -> None:
    """Someone else's edits in the cache: they are refuted, and the repair is not one."""
    server.answers(says("ok"), says(tasks.repaired(tasks.edit(op="mul_scalar", attrs="value=2"))))
    settings = Settings(rounds=1, seconds=60, search=0)
    assert isinstance(fix(tasks.question(), settings, asker), NotFixed)
    forged = tasks.repaired(tasks.edit(op="mul_scalar", attrs="value=3"))
    answers = AnswerCache().folder
    for path in answers.iterdir():
        told = events.ModelAnswered.model_validate_json(path.read_bytes())
        path.write_text(told.model_copy(update={"text": forged}).model_dump_json())
    calls, seen = server.calls, list[events.Event]()
    assert isinstance(fix(tasks.question(), settings, asker, seen.append), NotFixed)
    assert server.calls == calls
    (found,) = [e for e in seen if isinstance(e, events.RepairCandidate)]
    assert (found.verdict, found.edits) == ("refuted", ["mul_scalar {value=3} after %y"])
