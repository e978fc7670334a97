"""Which way of asking for structure an endpoint holds to is found by trying, once."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from shardproof.agent.llm.answers import Completion, Failed, NoModel, OutOfBudget, Trouble
from shardproof.agent.llm.budget import UNLIMITED, Ledger, Limits
from shardproof.agent.llm.client import Client, Form
from shardproof.agent.llm.format_tiers import RUNGS, ExtractError, extract
from shardproof.agent.llm.probe import visit
from shardproof.agent.llm.profile import Profiles
from tests.llm.conftest import KEY
from tests.llm.server import USAGE, Server, Way, chunk, page, says, status, stream

ASK = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Which colour?"}]
FORM = Form(
    "colour",
    {
        "type": "object",
        "properties": {"colour": {"type": "string"}},
        "required": ["colour"],
        "additionalProperties": False,
    },
)
PROSE = "Hello there, dear reader!"
PROBED = {"colour": "teal-902", "count": 3}


def asked(body: dict[str, Any]) -> str:
    """The rung of a request."""
    if "tools" in body:
        return "tool"
    return str(body.get("response_format", {}).get("type", "text"))


def holding(server: Server, able: str, wanted: Callable[[dict[str, Any]], object]) -> None:
    """The server holds to `able` and to nothing stricter; how it fails there is up to `how`."""

    def way(handler: BaseHTTPRequestHandler) -> None:
        body = server.bodies[-1]
        rung = asked(body)
        data = json.dumps(wanted(body))
        if rung == "text":
            says(f"Sure!\n```json\n{data}\n```\nAnything else?")(handler)
        elif RUNGS.index(rung) < RUNGS.index(able):
            FAILING[server.how](handler)
        elif rung == "tool":
            call = {"index": 0, "id": "1", "type": "function"}
            half = len(data) // 2
            first = {"name": "reply", "arguments": data[:half]}
            stream(
                chunk(None, tool_calls=[{**call, "function": first}]),
                chunk(None, tool_calls=[{"index": 0, "function": {"arguments": data[half:]}}]),
                chunk(None, "tool_calls"),
                USAGE,
            )(handler)
        else:
            says(data)(handler)

    server.answers(way)


FAILING = {
    "refuses": status(400, "response_format of this type is not supported"),
    "ignores": says(PROSE),
    "fences": says('```json\n{"colour": "green"}\n```'),
    "breaks": status(500, "grammar failed to compile"),
    "empty": stream(chunk(None, "stop"), USAGE),
}


def wanted(body: dict[str, Any]) -> object:
    text = json.dumps(body)
    return PROBED if "count" in text else {"colour": "blue"}


@pytest.mark.parametrize("how", FAILING)
@pytest.mark.parametrize("able", RUNGS)
def test_the_strictest_rung_that_holds_is_found(
    able: str, how: str, server: Server, client: Client
) -> None:
    server.how = how
    holding(server, able, wanted)
    client.profiles = Profiles()
    answer = client.ask(ASK, FORM)
    assert isinstance(answer, Completion), answer
    assert answer.rung == able
    assert json.loads(extract(answer.text)) == {"colour": "blue"}
    probes = server.calls
    assert isinstance(client.ask(ASK, FORM), Completion)
    assert server.calls == probes + 1, "what was found is remembered"
    system = server.bodies[-1]["messages"][0]
    assert system["role"] == "system"
    assert system["content"].startswith("Be short.")
    assert ('"required":["colour"]' in system["content"]) == (able in ("json_object", "text"))


def test_a_rung_that_stops_holding_is_left(server: Server, client: Client) -> None:
    server.answers(status(400, "unknown field response_format"), says('{"colour": "red"}'))
    answer = client.ask(ASK, FORM)
    assert isinstance(answer, Completion)
    assert (answer.rung, asked(server.bodies[1])) == ("json_object", "json_object")
    assert client.profiles.of(client.endpoint).rung == "json_object"


def test_a_rung_that_the_user_chose_stays(server: Server, client: Client) -> None:
    from dataclasses import replace

    client.endpoint = replace(client.endpoint, structured="json_object")
    server.answers(status(400, "unknown field response_format"))
    answer = client.ask(ASK, FORM)
    assert isinstance(answer, Failed)
    assert (answer.kind, server.calls) == (Trouble.REQUEST, 1)


@pytest.mark.parametrize(
    ("way", "kind"),
    [
        (status(401, "bad key"), Trouble.KEY),
        (status(429, "none left", code="insufficient_quota"), Trouble.QUOTA),
        (status(404, "no model tiny"), Trouble.NOT_FOUND),
    ],
)
def test_what_ends_every_question_ends_the_probe(
    way: Way, kind: Trouble, server: Server, client: Client
) -> None:
    server.answers(way)
    client.profiles = Profiles()
    answer = client.ask(ASK, FORM)
    assert isinstance(answer, Failed)
    assert (answer.kind, server.calls) == (kind, 1)
    assert not client.profiles.of(client.endpoint).rung


def test_a_probe_counts_against_the_budget(server: Server, client: Client) -> None:
    client.ledger = Ledger(Limits(1, None, None, None))
    client.profiles = Profiles()
    server.answers(says(PROSE))
    assert isinstance(client.ask(ASK, FORM), OutOfBudget)
    assert server.calls == 1


def test_doctor_says_it_in_one_line(server: Server, client: Client) -> None:
    server.how = "ignores"
    holding(server, "json_object", wanted)
    seen = visit(client)
    assert (seen.rung, seen.model, seen.address) == ("json_object", "tiny", server.url)
    assert "\n" not in seen.line
    assert KEY not in repr(seen)
    assert [(s.rung, s.holds) for s in seen.steps] == [
        ("json_schema", False),
        ("json_object", True),
    ]
    assert "something else than JSON" in seen.steps[0].said
    assert "json_object" in visit(client, ask=False).line
    server.answers(page("<html>"))
    assert "is the address right" in visit(client).line
    assert "no key" in visit(NoModel("no key")).line


GOOD = '{"a": 1}'


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"  {GOOD}\n",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```",
        f"Sure:\n\n```json\r\n{GOOD}\r\n```\n\nHope that helps.",
        f"<think>maybe {{}} or ```json\n[]\n```</think>\n{GOOD}",
        f"<think>hm</think>Here:\n```json\n{GOOD}\n```",
    ],
)
def test_the_object_is_found(text: str) -> None:
    assert json.loads(extract(text)) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("I cannot.", "no JSON object"),
        ("[1, 2]", "no JSON object"),
        (f"```json\n{GOOD}\n```\nor\n```json\n{GOOD}\n```", "2 fenced blocks"),
        ("```json\n[1]\n```", "no JSON object"),
        ("<think>for ever", "no JSON object"),
        (f"text {GOOD} text", "no JSON object"),
        (f"```json\n{GOOD}\n", "no JSON object"),
    ],
)
def test_anything_else_is_no_object(text: str, why: str) -> None:
    with pytest.raises(ExtractError, match=why):
        extract(text)


def test_limits_are_met_before_and_after_each_call(server: Server, client: Client) -> None:
    from shardproof.agent.llm.budget import Price

    ask = [{"role": "user", "content": "x" * 350}]
    server.answers(says("fine"))
    for limits, what, calls in (
        (Limits(2, None, None, None), "calls", 2),
        (Limits(None, 200, None, None), "tokens", 2),
        (Limits(None, None, 0.0003, None), "usd", 2),
        (Limits(None, None, None, 0.0), "seconds", 0),
    ):
        before = server.calls
        client.ledger = Ledger(limits, Price(1.0, 1.0))
        answers = [client.ask(ask) for _ in range(20)]
        ended = [a for a in answers if isinstance(a, OutOfBudget)]
        assert ended, what
        assert {a.what for a in ended} == {what}
        assert server.calls - before >= calls
        assert answers.index(ended[0]) == len(answers) - len(ended), "once spent, it stays spent"
        assert "\n" not in str(ended[0])
    limit = server.bodies[-1]["max_completion_tokens"]
    assert limit <= 4096


def test_a_retry_is_a_call_of_its_own(server: Server, client: Client) -> None:
    client.ledger = Ledger(Limits(2, None, None, None))
    server.answers(status(500, "oops"))
    assert isinstance(client.ask(ASK), OutOfBudget)
    assert server.calls == 2


def test_cut_streams_cost_what_they_wrote(server: Server, client: Client) -> None:
    client.ledger = Ledger(UNLIMITED)
    server.answers(stream(chunk("x" * 3500), done=False))
    client.ask(ASK)
    assert client.ledger.usage.completion >= 3 * 1000
    assert client.ledger.usage.estimated
    assert "about" in str(client.ledger)


def test_unknown_prices_show_as_such(server: Server, client: Client) -> None:
    server.answers(says("fine"))
    answer = client.ask(ASK)
    assert isinstance(answer, Completion)
    assert answer.usd is None
    assert "cost not known" in str(client.ledger)
    client.ledger = Ledger(Limits(None, None, 1.0, None))
    refused = client.ask(ASK)
    assert isinstance(refused, OutOfBudget)
    assert "price of the model is not known" in str(refused)


def test_threads_share_one_budget() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from shardproof.agent.llm.answers import Usage
    from shardproof.agent.llm.budget import Ticket

    ledger = Ledger(Limits(None, 10_000, None, None))

    def spend(_: int) -> bool:
        ticket = ledger.admit(350, 1000)
        if isinstance(ticket, Ticket):
            ledger.settle(ticket, Usage(ticket.prompt, ticket.max_tokens))
        return isinstance(ticket, Ticket)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(spend, range(200)))
    assert ledger.usage.total <= 10_000
