"""Every way in which a server is known to misbehave, and the one typed answer that it ends in."""

from __future__ import annotations

import gzip
import math
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from shardproof.agent.chat.models import Asker, Source
from shardproof.agent.llm.answers import Completion, Failed, OutOfBudget, Trouble
from shardproof.agent.llm.client import Client
from shardproof.agent.llm.endpoint import Timeouts
from tests.llm.conftest import KEY
from tests.llm.server import (
    ASK,
    GOOD,
    USAGE,
    Server,
    Way,
    chunk,
    dripping,
    events,
    hang_up,
    page,
    send,
    silent_body,
    slow_headers,
    status,
    stream,
)


def torn_body(handler: BaseHTTPRequestHandler) -> None:
    """Fewer bytes than were announced."""
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.send_header("content-length", "5000")
    handler.end_headers()
    handler.wfile.write(events(chunk("half"), done=False))
    handler.close_connection = True


def huge(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.end_headers()
    piece = events(chunk("x" * 20_000), done=False)
    for _ in range(60):
        handler.wfile.write(piece)


def huge_line(handler: BaseHTTPRequestHandler) -> None:
    """No newline in ten megabytes, packed into ten kilobytes."""
    send(
        handler,
        gzip.compress(b"data: " + b"x" * (10 << 20)),
        kind="text/event-stream",
        content_encoding="gzip",
    )


QUOTA = {"code": "insufficient_quota", "type": "insufficient_quota"}
NAN = b'{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":NaN}]}'

FAULTS: dict[str, tuple[Way, Trouble, int]] = {
    # what: how the server answers, what the answer is, how many requests that takes
    "429 for ever": (status(429, "slow down"), Trouble.RATE, 3),
    "429 of a quota": (status(429, "no credit", **QUOTA), Trouble.QUOTA, 1),
    "402": (status(402, "pay first", type="billing_error"), Trouble.QUOTA, 1),
    "429 that asks for an hour": (status(429, "later", {"retry-after": "3600"}), Trouble.RATE, 1),
    "500": (status(500, "oops"), Trouble.SERVER, 3),
    "503 as a page": (page("<h1>busy</h1>", code=503), Trouble.SERVER, 3),
    "401": (status(401, f"Incorrect API key provided: {KEY}"), Trouble.KEY, 1),
    "403": (status(403, "not for you"), Trouble.KEY, 1),
    "404 of a model": (
        status(404, "the model `tiny` does not exist", code="model_not_found"),
        Trouble.NOT_FOUND,
        1,
    ),
    "400": (status(400, "bad messages"), Trouble.REQUEST, 1),
    "422": (status(422, "unprocessable"), Trouble.REQUEST, 1),
    "redirect elsewhere": (
        lambda h: send(h, "", status=307, location="http://evil.invalid/v1"),
        Trouble.REDIRECT,
        1,
    ),
    "no answer": (hang_up, Trouble.CUT, 3),
    "slow headers": (slow_headers, Trouble.TIMEOUT, 3),
    "silence in the body": (silent_body, Trouble.TIMEOUT, 3),
    "a body that never ends": (dripping, Trouble.TIMEOUT, 3),
    "a stream cut between events": (stream(chunk("half"), done=False), Trouble.CUT, 3),
    "a stream that is done without a reason": (stream(chunk("half")), Trouble.CUT, 3),
    "a stream cut within an event": (
        page(events(chunk("half"), done=False)[:-30], "text/event-stream"),
        Trouble.CUT,
        3,
    ),
    "a stream shorter than announced": (torn_body, Trouble.CUT, 3),
    "an error within the stream": (
        stream(chunk("half"), {"error": {"message": "the engine died"}}),
        Trouble.SERVER,
        3,
    ),
    "a quota error within the stream": (
        stream(chunk("half"), {"error": {"message": "no credit", **QUOTA}}),
        Trouble.QUOTA,
        1,
    ),
    "an error with status 200": (
        page('{"error": {"message": "the engine died"}}', "application/json"),
        Trouble.SERVER,
        3,
    ),
    "an error that is a string": (page('{"error": "no"}', "application/json"), Trouble.SERVER, 3),
    "a page with status 200": (page("<html><body>Log in</body></html>"), Trouble.NOT_A_REPLY, 1),
    "a page that says it is a stream": (
        page("<html>", "text/event-stream"),
        Trouble.NOT_A_REPLY,
        1,
    ),
    "an empty body": (page("", "text/event-stream"), Trouble.CUT, 3),
    "a completion without choices": (
        page('{"id": "c", "choices": []}', "application/json"),
        Trouble.NOT_A_REPLY,
        2,
    ),
    "a completion of another form": (
        page('{"choices": [{"message": 3}]}', "application/json"),
        Trouble.NOT_A_REPLY,
        2,
    ),
    "JSON that is cut": (page('{"id": "c", "choi', "application/json"), Trouble.NOT_A_REPLY, 2),
    "a stream of something else": (stream(b"[1, 2]", b'"x"'), Trouble.CUT, 3),
    "a stream that is not JSON": (stream(b"{oh no"), Trouble.NOT_A_REPLY, 2),
    "choices of another form": (stream({"choices": [{"delta": 5}]}), Trouble.NOT_A_REPLY, 2),
    "a delta that is no number": (stream(NAN), Trouble.NOT_A_REPLY, 2),
    "bytes that are not UTF-8": (
        page(b'data: {"choices": "\xff\xfe"}\n\n', "text/event-stream"),
        Trouble.NOT_A_REPLY,
        2,
    ),
    "an empty reply": (stream(chunk(""), chunk(None, "stop"), USAGE), Trouble.EMPTY, 2),
    "nothing but thinking": (
        stream(chunk(None, reasoning_content="hm"), chunk(None, "stop")),
        Trouble.EMPTY,
        1,
    ),
    "a reply that was too long": (
        stream(chunk("half"), chunk(None, "length"), USAGE),
        Trouble.LENGTH,
        1,
    ),
    "a refusal": (
        stream(chunk(None, refusal="I cannot"), chunk(None, "stop"), USAGE),
        Trouble.REFUSED,
        1,
    ),
    "a content filter": (stream(chunk("ha"), chunk(None, "content_filter")), Trouble.REFUSED, 1),
    "a huge reply": (huge, Trouble.HUGE, 1),
    "a huge line": (huge_line, Trouble.HUGE, 1),
}


def times(what: str) -> Timeouts:
    """Long enough on a busy machine, short where the time is what matters."""
    return Timeouts(connect=2, read=0.4, total=0.8 if "never ends" in what else 10)


@pytest.mark.parametrize("what", FAULTS)
def test_fault_is_one_typed_answer(
    what: str, server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardproof.agent.llm.stream.MOST_BYTES", 1 << 20)
    way, kind, calls = FAULTS[what]
    client.endpoint = replace(client.endpoint, timeouts=times(what))
    server.answers(way)
    answer = client.ask(ASK)
    assert isinstance(answer, Failed), answer
    assert (answer.kind, server.calls, answer.attempts) == (kind, calls, calls), answer.message
    assert "\n" not in str(answer)
    assert KEY not in str(answer) + repr(answer)
    assert client.ledger.calls == calls


@pytest.mark.parametrize(
    "what", [what for what, (_, _, calls) in FAULTS.items() if calls > 1 and "slow" not in what]
)
def test_fault_that_passes_is_got_over(what: str, server: Server, client: Client) -> None:
    client.endpoint = replace(client.endpoint, timeouts=times(what))
    server.answers(FAULTS[what][0], GOOD)
    answer = client.ask(ASK)
    assert isinstance(answer, Completion)
    assert (answer.text, answer.attempts, server.calls) == ("fine", 2, 2)


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
def test_reply_of_32_mib_is_broken_off_early(field: str, server: Server, client: Client) -> None:
    sent = 0

    def way(handler: BaseHTTPRequestHandler) -> None:
        nonlocal sent
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.end_headers()
        long = "x" * 20_000
        said = chunk(long) if field == "content" else chunk(None, reasoning_content=long)
        piece = events(said, done=False)
        while sent < 32 << 20:
            handler.wfile.write(piece)
            sent += len(piece)

    server.answers(way)
    client.endpoint = replace(client.endpoint, timeouts=Timeouts(connect=2, read=5, total=60))
    answer = client.ask(ASK)
    assert isinstance(answer, Failed)
    assert (answer.kind, server.calls) == (Trouble.HUGE, 1)
    assert "400000 characters" in answer.message
    assert sent < 16 << 20


def test_long_reply_in_small_pieces_is_heard(server: Server, client: Client) -> None:
    """Each token an event of its own: many bytes on the wire, a reply of ordinary length."""
    server.answers(stream(*(chunk("word ") for _ in range(8000)), chunk(None, "stop"), USAGE))
    client.endpoint = replace(client.endpoint, timeouts=Timeouts(connect=2, read=10, total=60))
    answer = client.ask(ASK)
    assert isinstance(answer, Completion)
    assert len(answer.text) == 8000 * 5


def test_no_question_outlasts_the_time_it_was_given(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in (("BASE_URL", server.url), ("API_KEY", KEY), ("MODEL", "tiny")):
        monkeypatch.setenv(f"SHARDPROOF_{name}", value)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    server.answers(dripping)
    asker = Asker(Source.USER)
    asker.ends = time.monotonic() + 1.5
    answer = asker.ask(ASK)
    assert time.monotonic() < asker.ends + 3
    assert isinstance(answer, Failed)
    assert answer.kind is Trouble.TIMEOUT
    begun = time.monotonic()
    assert isinstance(asker.ask(ASK), OutOfBudget)
    assert (server.calls, time.monotonic() < begun + 1) == (1, True)
    server.answers(GOOD)
    asker.ends = math.inf
    assert isinstance(asker.ask(ASK), Completion)
    asker.close()
