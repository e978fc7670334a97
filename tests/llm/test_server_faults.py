"""Every way in which a server is known to misbehave, and the one typed answer that it ends in."""

from __future__ import annotations

import _thread
import email.utils
import gzip
import json
import logging
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from agent.llm.answers import Cancelled, Completion, Failed, NoModel, Trouble
from agent.llm.client import Client, Form
from agent.llm.endpoint import Endpoint, Timeouts
from agent.llm.profile import Profile, Profiles
from agent.llm.secret import Secret
from tests.llm.conftest import HASTY, KEY
from tests.llm.server import (
    USAGE,
    Server,
    Way,
    chunk,
    events,
    hang_up,
    nowhere,
    page,
    says,
    send,
    status,
    stream,
    whole,
)

ASK = [{"role": "user", "content": "say something"}]
FORM = Form("reply", {"type": "object", "properties": {}, "required": []})


def slow_headers(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(1.6)


def dripping(handler: BaseHTTPRequestHandler) -> None:
    """Pieces for ever, each in time."""
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.end_headers()
    while True:
        handler.wfile.write(events(chunk("."), done=False))
        time.sleep(0.05)


def silent_body(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.end_headers()
    handler.wfile.write(events(chunk("half"), done=False))
    time.sleep(1.6)


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
    piece = events(chunk("x" * 200_000), done=False)
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


GOOD = says("fine")
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


@pytest.mark.parametrize("what", FAULTS)
def test_fault_is_one_typed_answer(what: str, server: Server, client: Client) -> None:
    way, kind, calls = FAULTS[what]
    client.endpoint = replace(client.endpoint, timeouts=Timeouts(connect=1, read=0.3, total=0.8))
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
    client.endpoint = replace(client.endpoint, timeouts=Timeouts(connect=1, read=0.3, total=0.8))
    server.answers(FAULTS[what][0], GOOD)
    answer = client.ask(ASK)
    assert isinstance(answer, Completion)
    assert (answer.text, answer.attempts, server.calls) == ("fine", 2, 2)


@pytest.mark.parametrize(
    ("what", "way"),
    {
        "a stream": GOOD,
        "a server that does not stream": whole("fine"),
        "a stream of another content type": stream(
            chunk("fine"), chunk(None, "stop"), kind="application/octet-stream"
        ),
        "comments and names of events": page(
            b": hello\n\nevent: message\n" + events(chunk("fine"), chunk(None, "stop")),
            "text/event-stream; charset=utf-8",
        ),
        "a stream without its last line": stream(
            chunk("fine"), chunk(None, "stop"), USAGE, done=False
        ),
        "usage that is no number": stream(
            chunk("fine"), {**chunk(None, "stop"), "usage": {"prompt_tokens": "many"}}
        ),
        "a tail after the end": stream(
            chunk("fine"), chunk(None, "stop"), USAGE, b"not json at all"
        ),
        "hidden characters": stream(
            chunk("f\x1b[31mi\x1b]0;title\x07n\u202ee\u200b\x00"), chunk(None, "stop")
        ),
    }.items(),
)
def test_odd_but_good_replies_are_read(what: str, way: Way, server: Server, client: Client) -> None:
    server.answers(way)
    answer = client.ask(ASK)
    assert isinstance(answer, Completion), answer
    assert (answer.text, answer.attempts) == ("fine", 1)
    assert answer.usage.total > 0


@pytest.mark.parametrize(
    "header",
    [
        {"retry-after": "0.3"},
        {"retry-after-ms": "300"},
        {"retry-after": "soon", "retry-after-ms": "300"},
    ],
)
def test_waits_as_long_as_it_is_asked_to(
    header: dict[str, str], server: Server, client: Client
) -> None:
    server.answers(status(429, "slow down", header), GOOD)
    begun = time.monotonic()
    assert isinstance(client.ask(ASK), Completion)
    assert 0.3 <= time.monotonic() - begun < 1.5


@pytest.mark.parametrize("past", ["nan", "-5", "Wed, 21 Oct 2015 07:28:00 GMT", "soon", ""])
def test_odd_waits_do_no_harm(past: str, server: Server, client: Client) -> None:
    server.answers(status(429, "slow down", {"retry-after": past}), GOOD)
    assert isinstance(client.ask(ASK), Completion)


def test_a_date_to_wait_for_is_read(server: Server, client: Client) -> None:
    then = email.utils.formatdate(time.time() + 3600, usegmt=True)
    server.answers(status(503, "later", {"retry-after": then}))
    answer = client.ask(ASK)
    assert isinstance(answer, Failed)
    assert server.calls == 1


def test_no_network_is_no_model_in_one_line() -> None:
    endpoint = Endpoint(nowhere(), "tiny", Secret(KEY), timeouts=Timeouts(1, 1, 2))
    answer = Client(endpoint, patience=HASTY, profiles=Profiles()).ask(ASK, FORM)
    assert isinstance(answer, NoModel)
    assert endpoint.base_url in str(answer)
    assert "everything else works without one" in str(answer)
    assert "\n" not in str(answer)


def test_unknown_host_is_no_model() -> None:
    endpoint = Endpoint("http://no-such-host.invalid/v1", "tiny", Secret(KEY))
    answer = Client(endpoint, patience=HASTY, profiles=Profiles()).ask(ASK)
    assert isinstance(answer, NoModel)


@pytest.mark.parametrize(
    ("complaint", "gone"),
    [
        ("Unsupported parameter: 'temperature'", "temperature"),
        ("unknown field stream_options", "stream_options"),
    ],
)
def test_a_parameter_that_is_not_known_is_left_away(
    complaint: str, gone: str, server: Server, client: Client
) -> None:
    server.answers(status(400, complaint, param=gone), GOOD)
    assert isinstance(client.ask(ASK), Completion)
    assert gone in server.bodies[0]
    assert gone not in server.bodies[1]
    assert isinstance(client.ask(ASK), Completion)
    assert gone not in server.bodies[2]


def test_the_limit_of_tokens_goes_by_either_name(server: Server, client: Client) -> None:
    complaint = "Unrecognized request argument supplied: max_completion_tokens"
    server.answers(status(400, complaint), GOOD)
    assert isinstance(client.ask(ASK), Completion)
    assert server.bodies[1]["max_tokens"] == server.bodies[0]["max_completion_tokens"]
    assert "max_completion_tokens" not in server.bodies[1]


def test_a_server_that_complains_of_everything_is_given_up(server: Server, client: Client) -> None:
    server.answers(
        status(400, "max_tokens, max_completion_tokens, temperature, stream_options, tool: no")
    )
    assert isinstance(client.ask(ASK, FORM), Failed)
    assert server.calls < 12


@pytest.mark.parametrize(
    "way",
    [dripping, slow_headers, silent_body, status(429, "later", {"retry-after": "2"})],
    ids=["stream", "headers", "silence", "back-off"],
)
@pytest.mark.parametrize("how", ["event", "ctrl-c"])
def test_a_question_is_given_up_within_a_second(
    way: Way, how: str, server: Server, client: Client
) -> None:
    client.endpoint = replace(client.endpoint, timeouts=Timeouts(2, 30, 60))
    server.answers(way)
    stopped: list[float] = []

    def stop() -> None:
        stopped.append(time.monotonic())
        if how == "event":
            client.cancel.set()
        else:
            _thread.interrupt_main()

    timer = threading.Timer(0.25, stop)
    timer.start()
    if how == "event":
        assert client.ask(ASK) == Cancelled()
    else:
        with pytest.raises(KeyboardInterrupt):
            client.ask(ASK)
    assert time.monotonic() - stopped[0] < 1.0
    assert server.calls == 1
    timer.join()


def test_a_cancelled_client_asks_nothing(server: Server, client: Client) -> None:
    client.cancel.set()
    assert client.ask(ASK) == Cancelled()
    assert server.calls == 0


def test_the_key_is_in_the_request_and_nowhere_else(
    server: Server,
    client: Client,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("openai", "httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    told: list[str] = []
    client.retrying = told.append
    server.answers(
        status(500, f"your key {KEY} broke it"),
        says(json.dumps({"echo": KEY})),
        status(401, f"Bearer {KEY} is wrong"),
    )
    first, second = client.ask(ASK), client.ask(ASK)
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    seen = [*told, repr(first), repr(second), str(second), repr(client.endpoint), caplog.text]
    seen += [repr(vars(client)), *capfd.readouterr()]
    assert len(told) == 1
    assert all(KEY not in text for text in seen)


def test_headers_meant_for_openai_go_nowhere_else(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Gateway: s3cret\nAuthorization: Bearer other")
    server.answers(GOOD)
    client.ask(ASK)
    sent = server.headers[0]
    assert sent["authorization"] == f"Bearer {KEY}"
    assert not {"x-gateway", "openai-organization", "openai-project"} & set(sent)
    client.endpoint = replace(client.endpoint, origin="OPENAI_BASE_URL")
    client = Client(client.endpoint, patience=HASTY, profiles=Profiles())
    client.ask(ASK)
    assert server.headers[1]["x-gateway"] == "s3cret"


def test_profile_is_kept_over_clients(server: Server, client: Client, tmp_path: Path) -> None:
    path = tmp_path / "cache" / "endpoints.json"
    kept = Profiles(path)
    kept.keep(client.endpoint, Profile("tool", "max_tokens", frozenset({"temperature"})))
    assert Profiles(path).of(client.endpoint) == kept.of(client.endpoint)
    assert server.url not in path.read_text()
    assert KEY not in path.read_text()
    path.write_text(path.read_text()[:-9])
    assert Profiles(path).of(client.endpoint) == Profile()
