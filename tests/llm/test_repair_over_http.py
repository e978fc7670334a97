"""A repair by a model behind a real server: what goes over the wire, and what its owner sees."""

from __future__ import annotations

import io
from dataclasses import replace

from shardproof.agent.chat.models import Asker
from shardproof.agent.llm.budget import Price
from shardproof.agent.llm.client import Client
from shardproof.agent.llm.format_tiers import JSON_SCHEMA
from shardproof.agent.repair import Fixed, Level, Settings, fix
from shardproof.agent.run.console import Console
from tests.llm.server import Server, says
from tests.repair.test_loop import FIRST, SECOND, question, reply


def _fixed(client: Client, level: Level = Level.FIXES) -> tuple[Fixed, str]:
    told = io.StringIO()
    client.endpoint = replace(client.endpoint, price=Price(1.0, 2.0), structured=JSON_SCHEMA)
    client.ledger.price = client.endpoint.price
    asker, console = Asker(client), Console(told)
    asker.emit = console.show
    settings = Settings(rounds=6, seconds=60, search=0, level=level)
    ended = fix(question(), settings, asker, console.show)
    assert isinstance(ended, Fixed), ended
    return ended, told.getvalue()


def test_partial_credit_and_both_programs_go_over_the_wire(server: Server, client: Client) -> None:
    other = {"value": "v", "op": "mul_scalar", "attrs": "value=2"}
    replies = [reply(FIRST), reply(other), reply({**other, "value": "w"}), reply(SECOND)]
    server.answers(*map(says, replies))
    ended, told = _fixed(client)
    assert len(ended.found.edits) == 2
    users = [body["messages"][1]["content"] for body in server.bodies]
    assert "%x: f32[4, 8]" in users[0]
    assert "%y: %y as [4, 6] partial(sum)@tp" in users[0]
    assert "%p: %p as [4, 4] partial(sum)@tp" in users[3]
    systems = {body["messages"][0]["content"] for body in server.bodies}
    assert len(systems) == 1
    assert "a sum is missing (the model's words, not checked)" in told
    assert "tiny-1 11 tokens in, 7 out, 0.0000 USD" in told


def test_what_was_tried_is_told_with_what_it_made_right(server: Server, client: Client) -> None:
    server.answers(says(reply(FIRST)), says(reply(FIRST, SECOND)))
    _fixed(client)
    told = server.bodies[1]["messages"][3]["content"]
    assert "right after it: output:z; the ranks then have the pieces of %" in told
    assert "refuted: wrong outputs: output:p" in told


def test_a_low_level_of_feedback_shows_no_relations(server: Server, client: Client) -> None:
    server.answers(says(reply(FIRST, SECOND)))
    _fixed(client, Level.MESSAGE)
    user = server.bodies[0]["messages"][1]["content"]
    assert "partial(sum)@tp" not in user
    assert "%x: f32[4, 8]" in user
