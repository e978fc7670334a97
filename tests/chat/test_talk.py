"""Words for the model: what leaves the machine, what comes back, and what stands behind it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardproof.agent.chat.engine import Session
from shardproof.agent.chat.models import Asker, Source
from shardproof.agent.llm.answers import Failed, Trouble
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit
from tests.chat.conftest import LOAD, Begin, Heard, Talk
from tests.llm.scripted import Scripted
from tests.llm.server import Server, says, status

BOUNDARY = re.compile(r"B[0-9a-f]{32}")


def reply(answer: str, *proposals: dict[str, object]) -> str:
    return json.dumps({"answer": answer, "proposals": list(proposals)})


@pytest.fixture
def server(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that the environment names."""
    started = Server()
    monkeypatch.setenv("SHARDPROOF_BASE_URL", started.url)
    monkeypatch.setenv("SHARDPROOF_MODEL", "tiny")
    monkeypatch.setenv("SHARDPROOF_API_KEY", "sk-secret-0123456789abcdef")
    config = home.parent / "config" / "shardproof" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[model]\nstructured = "text"\n')
    yield started
    started.close()


@pytest.fixture
def talk(server: Server) -> Iterator[Talk]:
    del server
    heard = Heard()
    session = Session.new([heard], Asker(Source.USER))
    yield Talk(session, heard)
    session.journal.close()


def test_what_prompt_shows_is_what_is_sent(talk: Talk, server: Server) -> None:
    server.answers(says(f"```json\n{reply('It is added on every rank.')}\n```"))
    talk(LOAD)
    talk("/verify")
    assert talk("/prompt why doesn't it hold?").outcome.exit is Exit.PROVED
    assert server.calls == 0, "nothing is sent"
    shown = BOUNDARY.sub("boundary", talk.said)
    assert talk("why doesn't it hold?").outcome.exit is Exit.PROVED
    body = server.bodies[0]
    assert server.url in shown
    for message in body["messages"]:
        assert BOUNDARY.sub("boundary", message["content"]).strip() in shown
    rest = {k: v for k, v in body.items() if k != "messages"}
    assert json.loads(shown.splitlines()[1]) == rest
    assert "sk-secret" not in shown


def test_prompt_says_that_a_new_endpoint_is_tried_first(
    talk: Talk, server: Server, home: Path
) -> None:
    (home.parent / "config" / "shardproof" / "config.toml").unlink()
    talk("/prompt hello")
    assert "is preceded by a few short ones" in talk.said
    assert server.calls == 0


def test_words_are_shown_with_the_verdict_that_stands(begin: Begin) -> None:
    talk = begin(Scripted([reply("All is well, trust me.")]))
    talk(LOAD)
    talk("/verify")
    done = talk("is it right?")
    by = [(e.by, e.text) for e in talk.heard.of(events.Said)[-2:]]
    assert by[0] == ("model", "All is well, trust me.")
    assert by[1][0] == "shardproof"
    assert by[1][1].startswith("what is decided: refuted")
    assert done.outcome.verdict == "refuted"


def test_an_explanation_keeps_the_verdict(begin: Begin) -> None:
    words = {"summary": "The bias is added twice.", "cause": "Both ranks add it.", "advice": ""}
    talk = begin(Scripted([json.dumps(words)]))
    talk(LOAD)
    done = talk("/explain --model why's that?")
    assert done.outcome.verdict == "refuted"
    assert "The bias is added twice." in talk.said
    assert "the verdict itself: refuted" in talk.said


def test_escapes_and_hidden_characters_of_a_reply_do_not_arrive(begin: Begin) -> None:
    nasty = "\x1b]0;owned\x07\x1b[31mred\x1b[0m [bold]b[/bold] a\u202eb\u200b"
    talk = begin(Scripted([reply(nasty)]))
    talk("hello")
    said = talk.heard.of(events.Said)[0].text
    assert said == "red [bold]b[/bold] ab"


def test_without_a_model_one_line_says_so(begin: Begin) -> None:
    talk = begin()
    talk(LOAD)
    assert talk("why?").outcome.exit is Exit.ENDPOINT
    problem = talk.heard.problem
    assert "no language model" in problem.message
    assert "everything else works without one" in problem.message
    assert "\n" not in problem.message
    assert "/cex" in problem.hint
    assert talk("/verify").outcome.verdict == "refuted"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (Failed(Trouble.QUOTA, "no credit"), Exit.ENDPOINT),
        ("{no JSON at all", Exit.ENDPOINT),
    ],
)
def test_a_model_that_fails_ends_the_step_alone(
    line: str | Failed, code: Exit, begin: Begin
) -> None:
    talk = begin(Scripted([line, line]))
    assert talk("hello").outcome.exit is code
    assert talk("/mesh tp=2").outcome.exit is Exit.PROVED


def test_what_is_spent_counts_and_stays(talk: Talk, server: Server) -> None:
    server.answers(says(f"```json\n{reply('fine')}\n```"))
    talk("hello")
    talk("/cost")
    assert "1 call, 11 tokens in, 7 out, cost not known" in talk.said
    talk("/budget calls=1")
    assert talk("again").outcome.exit is Exit.LIMIT
    assert server.calls == 1
    session = talk.session
    session.close()
    heard = Heard()
    again = Talk(Session.resumed(session.journal.folder, [heard], Asker(Source.USER)), heard)
    again("/cost")
    assert "1 call, 11 tokens in" in again.said
    assert again("once more").outcome.exit is Exit.LIMIT
    assert again("/budget none").outcome.exit is Exit.PROVED
    assert again("once more").outcome.exit is Exit.PROVED
    again.session.close()


def test_a_key_is_in_no_file_of_the_session(talk: Talk, server: Server) -> None:
    server.answers(status(401, "bad key sk-secret-0123456789abcdef"))
    assert talk("hello").outcome.exit is Exit.ENDPOINT
    talk("/model")
    talk("/prompt hello")
    talk.session.close()
    for path in talk.session.journal.folder.rglob("*"):
        if path.is_file():
            assert b"sk-secret" not in path.read_bytes()


def test_edits_of_a_model_are_proved_or_thrown_away(begin: Begin, home: Path) -> None:
    edit = {
        "edit": "drop", "value": "%y", "op": "", "attrs": "", "operands": [], "index": 0,
        "uses": [], "where": "",
    }  # fmt: skip
    wrong = json.dumps({"diagnosis": "The sum is not needed.", "edits": [edit]})
    talk = begin(Scripted([wrong] * 8))
    talk(LOAD)
    done = talk("/repair --model --edits 1 --seconds 10")
    assert done.outcome.verdict == "proved", "the search finds one, whatever the model says"
    talk("/diff")
    assert "drop" not in talk.heard.of(events.PatchShown)[-1].diff
    assert (home / "wrong.txt").read_text() == (
        Path(__file__).resolve().parents[2] / "examples/verify/wrong.txt"
    ).read_text()
