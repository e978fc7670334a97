"""The client beside faults: odd but good replies, waits, cancellation, what it never shows."""

from __future__ import annotations

import _thread
import email.utils
import json
import logging
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from shardproof.agent.llm.answers import Cancelled, Completion, Failed, NoModel, Trouble
from shardproof.agent.llm.budget import Ledger, Limits
from shardproof.agent.llm.client import Client, Form
from shardproof.agent.llm.endpoint import Endpoint, Timeouts, find
from shardproof.agent.llm.profile import Profile, Profiles
from shardproof.agent.llm.secret import Secret, clean_environ
from shardproof.agent.run.errors import InputError
from tests.llm.conftest import HASTY, KEY
from tests.llm.server import (
    ASK,
    GOOD,
    USAGE,
    Server,
    Way,
    chunk,
    dripping,
    events,
    nowhere,
    page,
    says,
    silent_body,
    slow_headers,
    status,
    stream,
    whole,
)

FORM = Form("reply", {"type": "object", "properties": {}, "required": []})


def left_open(handler: BaseHTTPRequestHandler) -> None:
    """The reply ends, the connection does not, and no tokens are counted."""
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.end_headers()
    handler.wfile.write(events(chunk("fine"), chunk(None, "stop"), done=False))
    time.sleep(1.2)


def left_open_for_long(handler: BaseHTTPRequestHandler) -> None:
    left_open(handler)
    for _ in range(30):
        handler.wfile.write(b": still here\n\n")
        time.sleep(0.1)


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
        "a connection that stays open after the end": left_open,
        "a time-out after the end": left_open_for_long,
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


@pytest.mark.parametrize(
    ("code", "body", "kind", "said"),
    [
        (404, '{"error": "model \'tiny\' not found"}', Trouble.NOT_FOUND, "model 'tiny' not found"),
        (404, '{"detail": "Not Found"}', Trouble.NOT_FOUND, "Not Found"),
        (
            400,
            '{"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}',
            Trouble.REQUEST,
            "too long",
        ),
        (400, '{"error": {"message": ["a", 1], "code": {"x": 1}}}', Trouble.REQUEST, "a"),
        (429, '{"error": {"message": "x", "code": "quota_exceeded"}}', Trouble.QUOTA, "x"),
        (401, "", Trouble.KEY, "401"),
        (400, "[]", Trouble.REQUEST, "400"),
        (418, "\xff", Trouble.REQUEST, "418"),
    ],
)
def test_errors_are_read_in_every_form(
    code: int, body: str, kind: Trouble, said: str, server: Server, client: Client
) -> None:
    """As llama.cpp, Ollama, vLLM and FastAPI write them, and as nobody should."""
    server.answers(page(body, "application/json", code))
    answer = client.ask(ASK)
    assert isinstance(answer, Failed)
    assert (answer.kind, answer.status) == (kind, code)
    assert said in answer.message
    assert "\n" not in str(answer)


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
    client.endpoint = replace(client.endpoint, temperature=0.2)
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
        while not server.calls:
            time.sleep(0.01)
        time.sleep(0.1)
        stopped.append(time.monotonic())
        if how == "event":
            client.cancel.set()
        else:
            _thread.interrupt_main()

    stopper = threading.Thread(target=stop)
    stopper.start()
    if how == "event":
        assert client.ask(ASK) == Cancelled()
    else:
        with pytest.raises(KeyboardInterrupt):
            client.ask(ASK)
    assert time.monotonic() - stopped[0] < 1.0
    assert server.calls == 1
    stopper.join()


def test_a_cancelled_reply_costs_what_was_heard(server: Server, client: Client) -> None:
    server.answers(dripping)
    client.show = lambda _: client.cancel.set()
    assert client.ask(ASK) == Cancelled()
    assert client.ledger.usage.completion > 0
    client.cancel.clear()
    client.show = lambda _: None
    server.answers(GOOD)
    assert isinstance(client.ask(ASK), Completion)


def test_pieces_are_shown_as_they_come_and_clean(server: Server, client: Client) -> None:
    told: list[str] = []
    client.show = told.append
    server.answers(stream(chunk("a\x1b[2J"), chunk("\x1b]0;b\x07c"), chunk(None, "stop"), USAGE))
    assert isinstance(client.ask(ASK), Completion)
    assert told == ["a", "c"]


def test_a_limit_that_is_near_is_told(server: Server, client: Client) -> None:
    client.ledger = Ledger(Limits(5, None, None, None))
    server.answers(GOOD)
    told = [(client.ask(ASK), client.ledger.near())[1] for _ in range(5)]
    assert told[:3] == ["", "", ""]
    assert told[3] == "budget of the model: 4 of 5 calls spent"


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


def test_ctrl_c_ends_a_real_process_within_a_second(server: Server) -> None:
    """The signal comes to a process that waits for a reply; the key is nowhere in what it says."""
    server.answers(dripping)
    code = f"""
from shardproof.agent.llm.client import Client
from shardproof.agent.llm.endpoint import Endpoint
from shardproof.agent.llm.profile import Profiles
from shardproof.agent.llm.secret import Secret, clean_environ
client = Client(Endpoint({server.url!r}, "tiny", Secret({KEY!r})), profiles=Profiles())
print("ready", flush=True)
client.show = lambda piece: print(piece, end="", flush=True)
client.ask([{{"role": "user", "content": "x"}}])
"""
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environ(OPENAI_LOG="debug"),
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    assert child.stdout.read(2) == ".."
    child.send_signal(signal.SIGINT)
    begun = time.monotonic()
    _, said = child.communicate(timeout=10)
    assert time.monotonic() - begun < 1.5
    assert child.returncode == -signal.SIGINT or "KeyboardInterrupt" in said
    assert "Building HTTP request" in said, "the log of the package is on"
    assert KEY not in said


@pytest.mark.parametrize("key", ["sk-1\n", " sk-1 "])
def test_space_around_a_key_is_dropped(key: str, tmp_path: Path) -> None:
    found = find({"OPENAI_API_KEY": key, "OPENAI_MODEL": "m"}, tmp_path / "none")
    assert isinstance(found, Endpoint)
    assert found.key.reveal() == "sk-1"


@pytest.mark.parametrize("key", ["sk\u2013dash", "two words", "sk\nX-Header: 1"])
def test_a_key_that_no_header_carries_is_an_input_error(key: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        find({"OPENAI_API_KEY": key, "OPENAI_MODEL": "m"}, tmp_path / "none")
    assert key not in str(vars(caught.value))


def test_certificates_that_cannot_be_read_are_no_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    endpoint = Endpoint("https://127.0.0.1:1/v1", "tiny", Secret(KEY))
    answer = Client(endpoint, patience=HASTY, profiles=Profiles()).ask(ASK)
    assert isinstance(answer, NoModel)


def test_the_model_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert isinstance(Client.of_user(), NoModel)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_MODEL", "tiny")
    assert isinstance(Client.of_user(), Client)
