"""Finds the strictest way in which an endpoint gives structure, by asking for some.

The question does not say what the answer must look like; the schema alone does. A server that
takes the schema and ignores it is caught so: it answers with prose.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from shardproof.agent.llm import format_tiers as rungs
from shardproof.agent.llm.answers import Answer, Completion, Failed, NoModel, Trouble, Unanswered
from shardproof.agent.llm.profile import Profile, adapted

if TYPE_CHECKING:
    from shardproof.agent.llm.client import Client, Form, Message

_COLOURS = ("ochre-417", "teal-902")
SCHEMA: rungs.Schema = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "enum": list(_COLOURS)},
        "count": {"type": "integer"},
    },
    "required": ["colour", "count"],
    "additionalProperties": False,
}
_ASK = "Say hello to the reader in a short sentence."
_ASK_JSON = "Choose a colour and a number; answer as JSON."
_SAYS_NOTHING = frozenset(
    {Trouble.KEY, Trouble.QUOTA, Trouble.RATE, Trouble.REDIRECT, Trouble.TIMEOUT, Trouble.CUT}
)
"""Failures that say nothing about a rung."""


@dataclass(frozen=True)
class Step:
    """One rung that was tried."""

    rung: str
    holds: bool
    said: str
    """Why not, in one line."""


def climb(client: Client, start: Profile, steps: list[Step] | None = None) -> Profile | Unanswered:
    """The profile with the strictest rung that holds; it is kept for the endpoint.

    What ends every question alike (no network, no budget, a bad key) is the answer instead.
    """
    from shardproof.agent.llm.client import Form

    form = Form("probe", SCHEMA)
    profile = start
    for rung in rungs.RUNGS:
        profile = replace(profile, rung=rung)
        ask = _ASK if rung == rungs.JSON_SCHEMA else _ASK_JSON
        profile, answer = _settled(client, [{"role": "user", "content": ask}], form, profile)
        if isinstance(answer, Completion):
            why = _wrong(answer.text, rung)
        elif isinstance(answer, Failed) and not _ends(answer, rung):
            why = answer.message
        else:
            return answer
        if steps is not None:
            steps.append(Step(rung, not why, why))
        if not why:
            break
    client.profiles.keep(client.endpoint, profile)
    return profile


_TOOL = {"name": "choose", "description": "Chooses a colour and a number.", "parameters": SCHEMA}
_ASK_TOOL = "Choose a colour and a number with the function `choose`."


def offer(client: Client, start: Profile) -> Profile | Unanswered:
    """The profile with whether the model calls a tool that it is offered; kept for the endpoint."""
    from shardproof.agent.llm.client import Form

    form = Form("probe", SCHEMA, tools=(_TOOL,))
    messages = [{"role": "user", "content": _ASK_TOOL}]
    profile, answer = _settled(client, messages, form, replace(start, tools=True))
    if isinstance(answer, Failed) and _ends(answer, rungs.TOOLS):
        return answer
    if not isinstance(answer, Completion | Failed):
        return answer
    called = isinstance(answer, Completion) and [call.name for call in answer.calls] == ["choose"]
    profile = replace(profile, tools=called)
    client.profiles.keep(client.endpoint, profile)
    return profile


def _ends(failure: Failed, rung: str) -> bool:
    """Whether a failure is about the endpoint and not about the rung."""
    return rung == rungs.TEXT or failure.status == 404 or failure.kind in _SAYS_NOTHING


def _settled(
    client: Client, messages: Sequence[Message], form: Form, profile: Profile
) -> tuple[Profile, Answer]:
    """The question on one rung, without the parameters that the endpoint does not know."""
    tried = {profile}
    while True:
        answer = client.attempt(messages, form, profile)
        other = adapted(profile, answer, False) if isinstance(answer, Failed) else None
        if other is None or other in tried or other.tools != profile.tools:
            return profile, answer
        tried.add(other)
        profile = other


def _wrong(text: str, rung: str) -> str:
    """Why a reply does not show that the rung holds; empty where it does."""
    if rung == rungs.TEXT:
        return ""
    try:
        data = json.loads(text.strip())
    except ValueError:
        return "it answered with something else than JSON"
    if not isinstance(data, dict):
        return "it answered with JSON that is not an object"
    if rung == rungs.JSON_OBJECT:
        return ""
    found = cast(dict[str, object], data)
    good = set(found) == {"colour", "count"} and found["colour"] in _COLOURS
    return "" if good and isinstance(found["count"], int) else "it did not keep to the schema"


@dataclass(frozen=True)
class Visit:
    """What `shardproof doctor` says of the endpoint."""

    address: str
    """Without user, password and query; empty where there is none."""
    model: str
    rung: str
    """Empty where none was found."""
    line: str
    """All of it in one line."""
    steps: tuple[Step, ...] = ()


def visit(found: Client | NoModel, ask: bool = True) -> Visit:
    """Look at the endpoint; with `ask`, try its rungs anew, at the cost of a few short calls."""
    if isinstance(found, NoModel):
        return Visit("", "", "", str(found))
    endpoint = found.endpoint
    head = f"{endpoint.model} at {endpoint.shown} (from {endpoint.origin})"
    if not ask:
        rung = found.profiles.of(endpoint).rung
        return Visit(endpoint.shown, endpoint.model, rung, f"{head}, {rung or 'not tried yet'}")
    steps: list[Step] = []
    found.profiles.forget(endpoint)
    answer = climb(found, Profile(), steps)
    if isinstance(answer, Profile):
        line = f"{head}, structure by {answer.rung}; {found.ledger}"
        return Visit(endpoint.shown, endpoint.model, answer.rung, line, tuple(steps))
    return Visit(endpoint.shown, endpoint.model, "", f"{head}: {answer}", tuple(steps))
