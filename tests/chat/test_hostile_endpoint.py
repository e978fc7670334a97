"""Whatever the server does once the model calls tools, a question ends in a line that says what."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from shardproof.agent.chat.engine import Session
from shardproof.agent.chat.models import Asker, Source
from shardproof.agent.llm import client as clients
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit
from tests.chat.conftest import LOAD, Heard, Talk
from tests.chat.test_acting import CHOSEN, called, files, ran
from tests.llm.conftest import HASTY, KEY
from tests.llm.server import USAGE, Server, Way, chunk, dripping, says, stream, whole
from tests.llm.test_server_faults import FAULTS

CONFIG = """
[model]
timeout = { connect = 2, read = 0.4, total = %s }
budget = { calls = 20, tokens = 200000, seconds = 60 }
[model.prices.tiny]
input = 1
output = 2
"""


@pytest.fixture
def server(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    started = Server()
    for name, value in (("BASE_URL", started.url), ("API_KEY", KEY), ("MODEL", "tiny")):
        monkeypatch.setenv(f"SHARDPROOF_{name}", value)
    monkeypatch.setattr(clients, "Patience", lambda: HASTY)
    _config(home, 10)
    yield started
    started.close()


def _config(home: Path, total: float) -> None:
    path = home.parent / "config" / "shardproof" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CONFIG % total)


@pytest.fixture
def talk(server: Server) -> Iterator[Talk]:
    server.answers(CHOSEN, says("Hello."))
    heard = Heard()
    talk = Talk(Session.new([heard], Asker(Source.USER)), heard)
    talk(LOAD)
    talk("hello")
    server.bodies.clear()
    yield talk
    talk.session.asker.close()
    talk.session.journal.close()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("what", FAULTS)
def test_fault_ends_the_question_in_one_line_that_names_it(
    what: str, late: bool, talk: Talk, server: Server, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, or after a tool was called: the session goes on, and nothing was changed."""
    monkeypatch.setattr("shardproof.agent.llm.stream.MOST_BYTES", 1 << 20)
    if "never ends" in what:
        _config(home, 0.8)
        talk.session.asker.close()
    before = files(home)
    verify = stream(called("verify", "{}"), chunk(None, "tool_calls"), USAGE)
    server.answers(*([verify] if late else []), FAULTS[what][0])
    done = talk("is it right?")
    assert done.outcome.exit in (Exit.ENDPOINT, Exit.LIMIT)
    problem = talk.heard.problem
    assert problem.kind == "model"
    assert problem.message
    assert "\n" not in problem.message
    assert problem.hint
    assert KEY not in json.dumps([e.model_dump(mode="json") for e in talk.heard.seen])
    assert ran(talk) == (["/verify"] if late else [])
    assert files(home) == before
    assert talk("/verify").outcome.verdict == "refuted", "the session goes on"
    if late:
        assert talk.session.state.judged is not None


def _many() -> Way:
    calls = (called("verify", "{}", at) for at in range(200))
    return stream(*calls, chunk(None, "tool_calls"), USAGE)


def _raw(*calls: dict[str, object]) -> Way:
    return stream(chunk(None, tool_calls=list(calls)), chunk(None, "tool_calls"), USAGE)


def _function(**fields: object) -> dict[str, object]:
    return {"index": 0, "id": "x", "type": "function", "function": fields}


ODD: dict[str, tuple[Way, int]] = {
    # what: how the server calls tools, how many commands of ours run before the words
    "two hundred calls": (_many(), 8),
    "two calls of one id": (
        _raw(_function(name="verify", arguments="{}"),
             {**_function(name="cost", arguments="{}"), "index": 1}), 2),
    "no id": (_raw({**_function(name="verify", arguments="{}"), "id": None}), 1),
    "torn arguments": (_raw(_function(name="verify", arguments='{"words": "')), 1),
    "arguments that are a list": (_raw(_function(name="verify", arguments="[1]")), 1),
    "deep arguments": (_raw(_function(name="verify", arguments="[" * 5000)), 1),
    "words that are a number": (_raw(_function(name="verify", arguments='{"words": 3}')), 1),
    "no name": (_raw(_function(name=None, arguments="{}")), 0),
    "a name of a page": (_raw(_function(name="x" * 9000, arguments="{}")), 0),
    "escapes in a name": (_raw(_function(name="\x1b[2Jverify", arguments="{}")), 1),
    "an index far off": (_raw({**_function(name="verify", arguments="{}"), "index": 7}), 0),
    "an index below 0": (_raw({**_function(name="verify", arguments="{}"), "index": -1}), 0),
    "no function": (_raw({"index": 0, "id": "x", "type": "function"}), 0),
    "a server that does not stream": (
        whole(None, "tool_calls", tool_calls=[_function(name="verify", arguments="{}")]), 1),
    "calls that are said to be cut": (
        stream(called("verify", "{}"), chunk(None, "length"), USAGE), 0),
    "calls behind a filter": (
        stream(called("verify", "{}"), chunk(None, "content_filter"), USAGE), 0),
    "a reason for tools, and none called": (stream(chunk(None, "tool_calls"), USAGE), 0),
}  # fmt: skip


@pytest.mark.parametrize("what", ODD)
def test_odd_tool_calls_run_what_can_be_read_and_nothing_else(
    what: str, talk: Talk, server: Server, home: Path
) -> None:
    before = files(home)
    way, commands = ODD[what]
    server.answers(way, says("So it is."))
    done = talk("is it right?")
    assert ran(talk) == (["/verify", "/cost"][:commands] if commands < 8 else ["/verify"] * 8)
    assert files(home) == before
    said = [e.text for e in talk.heard.of(events.Said) if isinstance(e, events.Said)]
    if done.outcome.exit is Exit.ENDPOINT:
        assert talk.heard.problem.message
    else:
        assert "So it is." in said
    for body in server.bodies:  # what is sent back could be read by a strict server
        calls = [c for m in body["messages"] for c in m.get("tool_calls", ())]
        ids = [c["id"] for c in calls]
        assert len(set(ids)) == len(ids)
        assert all(isinstance(json.loads(c["function"]["arguments"]), dict) for c in calls)
        assert [m["tool_call_id"] for m in body["messages"] if m["role"] == "tool"] == ids


# -- budgets ---------------------------------------------------------------------------------


def _endless(handler: object, *, calls: bool) -> None:
    """Words, or arguments of a call, without an end."""
    from http.server import BaseHTTPRequestHandler

    from tests.llm.server import events as wire

    assert isinstance(handler, BaseHTTPRequestHandler)
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.end_headers()
    more = "word " * 40
    first = called("verify", '{"words": "') if calls else chunk("")
    handler.wfile.write(wire(first, done=False))
    piece = called("", more) if calls else chunk(more)
    for _ in range(100_000):
        handler.wfile.write(wire(piece, done=False))
        time.sleep(0.0005)


LIMITS = [("tokens", 12000), ("usd", 0.012), ("calls", 4), ("seconds", 3)]
FOREVER: dict[str, Way] = {
    "words": partial(_endless, calls=False),
    "arguments": partial(_endless, calls=True),
    "calls": stream(called("cost", "{}"), chunk(None, "tool_calls")),
    "drops": dripping,
}


@pytest.mark.parametrize("how", FOREVER)
@pytest.mark.parametrize(("name", "most"), LIMITS)
def test_budget_is_kept_within_a_tenth(
    name: str, most: float, how: str, talk: Talk, server: Server
) -> None:
    talk(f"/budget {name}={most}")
    server.answers(FOREVER[how])
    begun = time.monotonic()
    for _ in range(6):
        done = talk("and now?")
        if done.outcome.exit is Exit.LIMIT or time.monotonic() - begun > 20:
            break
    spent = talk.session.asker.spent
    held = {
        "tokens": spent.prompt_tokens + spent.completion_tokens,
        "usd": spent.usd or 0.0,
        "calls": spent.calls,
        "seconds": spent.seconds,
    }
    assert held[name] <= 1.1 * most, talk.heard.problem.message
    assert spent.calls > 1
