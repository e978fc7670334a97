"""The client: one question, asked until it is answered or until a limit says stop.

The one place where retries, budgets, time-outs and cancellation meet. Nothing is raised but
`KeyboardInterrupt`; what a question ended in is a value (`answers.py`).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from shardproof.agent.llm import format_tiers as rungs
from shardproof.agent.llm.answers import (
    Answer,
    Call,
    Cancelled,
    Completion,
    Failed,
    NoModel,
    OutOfBudget,
)
from shardproof.agent.llm.budget import Ledger
from shardproof.agent.llm.endpoint import PROJECT_FILE, Endpoint, find
from shardproof.agent.llm.faults import Heard, WireError
from shardproof.agent.llm.hygiene import clean, one_line
from shardproof.agent.llm.profile import Profile, Profiles, adapted
from shardproof.agent.llm.retry import Patience, retrying, spoken
from shardproof.agent.llm.secret import redacted
from shardproof.agent.llm.stream import Stopped, connect, exchange

if TYPE_CHECKING:
    from openai import OpenAI

Message = Mapping[str, Any]
"""`role` (system, user, assistant, tool) and `content`; `tool_calls`, `tool_call_id` where tools
were called."""


@dataclass(frozen=True)
class Form:
    """The form a reply must have."""

    name: str
    schema: rungs.Schema
    template: str = ""
    """Hash of the prompt as written, for transcripts."""
    rendering: str = ""
    """Hash of the prompt as sent."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Offered instead of the schema where the endpoint's model calls tools."""


class Model(Protocol):
    """Anything that answers: the client here, a script in tests, a transcript replayed."""

    def ask(self, messages: Sequence[Message], form: Form | None = None) -> Answer:
        """One question. Raises nothing but KeyboardInterrupt."""
        ...


Told = Callable[[str], None]


class Client:
    """A model behind an OpenAI-compatible endpoint."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        ledger: Ledger | None = None,
        cancel: threading.Event | None = None,
        patience: Patience | None = None,
        profiles: Profiles | None = None,
        show: Told = lambda _: None,
        retrying: Told = lambda _: None,
    ) -> None:
        self.endpoint = endpoint
        self.ledger = ledger or Ledger(endpoint.limits, endpoint.price)
        self.cancel = cancel or threading.Event()
        """Set it from any thread to stop the question under way; clear it to ask again."""
        self.patience = patience or Patience()
        self.profiles = profiles or Profiles.of_user()
        self.show = show
        """Told every piece of a reply as it comes."""
        self.retrying = retrying
        """Told one line before each wait."""
        self._connected: OpenAI | None = None

    def ask(self, messages: Sequence[Message], form: Form | None = None) -> Answer:
        """One question. With a form, the rung of this endpoint is found first, once."""
        known = self.profiles.of(self.endpoint)
        if form is not None and self.endpoint.structured == "auto":
            from shardproof.agent.llm.probe import climb, offer

            found = offer(self, known) if form.tools and known.tools is None else known
            if not isinstance(found, Profile):
                return found
            if not found.rung and not (form.tools and found.tools):
                found = climb(self, found)
            if not isinstance(found, Profile):
                return found
            known = found
        return self.try_from(known, messages, form)

    def try_from(
        self, known: Profile, messages: Sequence[Message], form: Form | None = None
    ) -> Answer:
        """One question from this profile on; what the endpoint does not know is left away."""
        profile = known
        if form is not None and self.endpoint.structured != "auto":
            profile = replace(known, rung=self.endpoint.structured, tools=False)
        tried = {profile}
        while True:
            answer = self.attempt(messages, form, profile)
            if not isinstance(answer, Failed):
                if isinstance(answer, Completion) and len(tried) > 1:
                    self.profiles.keep(self.endpoint, profile)
                return answer
            may_climb = form is not None and self.endpoint.structured == "auto"
            lower = adapted(profile, answer, may_climb)
            if lower is None or lower in tried:
                return answer
            tried.add(lower)
            profile = lower

    def attempt(self, messages: Sequence[Message], form: Form | None, profile: Profile) -> Answer:
        """The question as this profile puts it, retried where retrying helps."""
        rung = profile.rung or rungs.TEXT if form else rungs.TEXT
        if form is not None and form.tools and profile.tools:
            rung = rungs.TOOLS
        request = body(self.endpoint, profile, rung, messages, form)
        begun = time.monotonic()
        tries = 0

        def once() -> Completion:
            nonlocal tries
            if self.cancel.is_set():
                raise Stopped
            tries += 1
            done = self._once(request, profile.limit_param or self.endpoint.max_tokens_param, rung)
            return replace(done, attempts=tries, seconds=time.monotonic() - begun)

        try:
            return retrying(self.patience, self._left(begun), self.cancel, self._wait)(once)
        except Stopped:
            return Cancelled()
        except _Spent as spent:
            return spent.answer
        except WireError as error:
            if error.kind is None:
                return NoModel(f"{self.endpoint.shown} cannot be reached ({error.message})")
            return Failed(error.kind, error.message, tries, error.status)

    def _left(self, begun: float) -> Callable[[], float]:
        """Seconds in which a further attempt may still be begun."""
        end = begun + self.patience.total_s
        return lambda: min(end - time.monotonic(), self.ledger.seconds_left())

    def _wait(self, seconds: float, why: str) -> None:
        self.ledger.waited(seconds)
        self.retrying(f"{why}; asking again in {seconds:.1f} s")

    def _once(self, request: dict[str, Any], limit_param: str, rung: str) -> Completion:
        chars = sum(len(m["content"]) for m in request["messages"])
        chars += len(str(request.get("tools", "")))
        ticket = self.ledger.admit(chars, self.endpoint.max_tokens)
        if isinstance(ticket, OutOfBudget):
            raise _Spent(ticket)
        heard = Heard(most=ticket.most_chars)
        try:
            exchange(
                self._client(),
                self.endpoint,
                {**request, limit_param: ticket.max_tokens},
                heard=heard,
                seconds=max(0.1, min(self.endpoint.timeouts.total, self.ledger.seconds_left())),
                cancel=self.cancel,
                show=self.show,
            )
        finally:
            usage = self.ledger.settle(ticket, heard.usage, heard.chars)
        return Completion(
            redacted(clean(spoken(heard, rung)), self.endpoint.key),
            usage,
            rung,
            heard.model or self.endpoint.model,
            usd=self.ledger.price.of(usage) if self.ledger.price else None,
            calls=_calls(heard, self.endpoint) if rung == rungs.TOOLS else (),
        )

    @staticmethod
    def of_user(**options: Any) -> Client | NoModel:
        """The model that the user's environment and config name; the project file of the working
        directory only restricts.

        Raises:
            InputError: a config file or an address that cannot be used.
        """
        found = find(project=Path.cwd() / PROJECT_FILE)
        return found if isinstance(found, NoModel) else Client(found, **options)

    def close(self) -> None:
        """Close idle connections; a later question opens new ones."""
        connected, self._connected = self._connected, None
        if connected is not None:
            connected.close()

    def _client(self) -> OpenAI:
        if self._connected is None:
            try:
                self._connected = connect(self.endpoint)
            except (OSError, ValueError) as error:  # certificates or proxies that cannot be used
                why = redacted(one_line(f"{type(error).__name__}: {error}"), self.endpoint.key)
                raise WireError(None, f"no client: {why}", retry=False) from None
        return self._connected


class _Spent(Exception):  # noqa: N818  (carries an answer)
    def __init__(self, answer: OutOfBudget) -> None:
        super().__init__()
        self.answer = answer


def _calls(heard: Heard, endpoint: Endpoint) -> tuple[Call, ...]:
    """The tool calls of a reply, without control characters and keys; each has an id of its own,
    and arguments that can be sent back. One without a name is left out."""
    found: dict[str, Call] = {}
    for at, call in enumerate(heard.calls):
        name, arguments = (redacted(clean(part), endpoint.key) for part in call[1:])
        if not name.strip():
            continue
        own = redacted(clean(call[0]), endpoint.key)
        own = own if own and own not in found else f"call_of_{at}"
        found[own] = Call(own, name, arguments if _is_json(arguments) else "{}")
    return tuple(found.values())


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def body(
    endpoint: Endpoint,
    profile: Profile,
    rung: str,
    messages: Sequence[Message],
    form: Form | None,
) -> dict[str, Any]:
    """What is sent for a question on a rung, but for the limit of tokens."""
    sent = [dict(m) for m in messages]
    request: dict[str, Any] = {"model": endpoint.model, "messages": sent}
    if form is not None and rung == rungs.TOOLS:
        request["tools"] = [{"type": "function", "function": dict(tool)} for tool in form.tools]
    elif form is not None:
        said = rungs.instruction(rung, form.schema)
        if sent and sent[0]["role"] == "system":
            sent[0]["content"] += "\n\n" + said
        else:
            sent.insert(0, {"role": "system", "content": said})
        request |= rungs.parameters(rung, form.name, form.schema)
    optional: dict[str, Any] = {"stream_options": {"include_usage": True}}
    if endpoint.temperature is not None:
        optional["temperature"] = endpoint.temperature
    if endpoint.reasoning_effort:
        optional["reasoning_effort"] = endpoint.reasoning_effort
    request |= {k: v for k, v in optional.items() if k not in profile.without}
    if endpoint.extra_body:
        request["extra_body"] = dict(endpoint.extra_body)
    return request
