"""The model of a session: asked through one object that keeps the account and tells the events."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from shardproof.agent.chat.state import Budget, Spent
from shardproof.agent.llm.answer_cache import AnswerCache
from shardproof.agent.llm.answers import (
    Answer,
    Call,
    Cancelled,
    Completion,
    Failed,
    NoModel,
    OutOfBudget,
    Trouble,
    Usage,
)
from shardproof.agent.llm.budget import Limits
from shardproof.agent.run import events

if TYPE_CHECKING:
    from shardproof.agent.llm.client import Client, Form, Message, Model

BOUNDARY = re.compile(r"\bB[0-9a-f]{32}\b")
_MORE = ("tool_calls", "tool_call_id")


class Source(Enum):
    """Where answers come from."""

    USER = "the endpoint that the user's environment and config name"
    NONE = "nowhere"


class Shown(Exception):  # noqa: N818  (carries a question)
    """Raised instead of asking, by `Peek`."""

    def __init__(self, messages: list[dict[str, str]], form: Form | None) -> None:
        super().__init__()
        self.messages = messages
        self.form = form


class Peek:
    """A model that is never asked: it hands the question back."""

    def ask(self, messages: Sequence[Message], form: Form | None = None) -> Answer:
        raise Shown([dict(m) for m in messages], form)


def digest(messages: Sequence[Message], form: Form | None) -> str:
    """SHA-256 of a question; equal for questions that differ in their boundary word alone."""
    data = [
        [m["role"], BOUNDARY.sub("boundary", m["content"]), *(m[k] for k in _MORE if k in m)]
        for m in messages
    ]
    name = form.name if form else ""
    schema = dict(form.schema) if form else None
    text = json.dumps([data, name, schema], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass
class Recorded:
    """Answers of a journal: the same question gets the answers it got, in order."""

    answers: dict[str, list[events.ModelAnswered]]
    told: events.ModelAnswered | None = None
    """The event of the last answer."""

    def ask(self, messages: Sequence[Message], form: Form | None = None) -> Answer:
        left = self.answers.get(digest(messages, form), [])
        self.told = left.pop(0) if left else None
        if self.told is None:
            return NoModel("the transcript has no such answer")
        return as_answer(self.told)


class Asker:
    """Asks a model for a session. One event before a question, one after it, whatever happens."""

    def __init__(self, source: Source | Model) -> None:
        self.source = source
        self.spent = Spent()
        self.emit: Callable[[events.Event], None] = lambda _: None
        self.show: Callable[[str], None] = lambda _: None
        """Told every piece of a reply as it comes."""
        self.budget = Budget()
        self.ends = math.inf
        """When no question may be under way any more, by `time.monotonic`."""
        self.named = ""
        """A model of the session's choice, at the same endpoint."""
        self.cached = True
        """Whether answers to equal questions may be taken, where the endpoint has them kept."""
        self._client: Client | None = None

    def model(self) -> Model | NoModel:
        """What is asked; why there is none."""
        if not isinstance(self.source, Source):
            return self.source
        if self.source is Source.NONE:
            return NoModel("it is switched off for this session")
        return self.client()

    def client(self) -> Client | NoModel:
        """The client of the user's endpoint.

        Raises:
            InputError: a config file or an address that cannot be used.
        """
        if self.source is not Source.USER:
            return NoModel("this session has no endpoint")
        if self._client is None:
            from shardproof.agent.llm.client import Client

            found = Client.of_user()
            if isinstance(found, NoModel):
                return found
            if self.named:
                found.endpoint = replace(found.endpoint, model=self.named, price=None)
                found.ledger.price = None
            if not self.cached:
                found.endpoint = replace(found.endpoint, answer_cache=False)
            self._client = found
        client = self._client
        client.show = self.show
        client.retrying = self._retried
        ledger, spent = client.ledger, self.spent
        left = Limits(None, None, None, spent.seconds + max(0.0, self.ends - time.monotonic()))
        own = Limits(**self.budget.model_dump())
        ledger.limits = client.endpoint.limits.at_most(own).at_most(left)
        ledger.calls = spent.calls
        ledger.usage = Usage(spent.prompt_tokens, spent.completion_tokens, spent.estimated)
        ledger.seconds = spent.seconds
        return client

    def ask(self, messages: Sequence[Message], form: Form | None = None) -> Answer:
        """One question. Raises nothing but KeyboardInterrupt, and what reading a config may."""
        model = self.model()
        if isinstance(model, Peek):
            return model.ask(messages, form)
        question = digest(messages, form)
        self.emit(
            events.ModelAsked(
                form=form.name if form else "",
                question=question,
                template=form.template if form else "",
                rendering=form.rendering if form else "",
                chars=sum(len(m["content"]) for m in messages),
            )
        )
        ledger = getattr(model, "ledger", None)
        before = (ledger.calls, ledger.usage, ledger.seconds, ledger.usd) if ledger else None
        answer: Answer | None = None
        before_now = self._kept(question)
        if before_now is not None:
            self.show(before_now.text)
            self.spent = self.spent.plus(before_now)
            self.emit(before_now)
            return as_answer(before_now)
        try:
            answer = model if isinstance(model, NoModel) else model.ask(messages, form)
            return answer
        finally:
            told = getattr(model, "told", None) or _told(question, answer)
            if before is not None and ledger is not None:
                usd = ledger.usd
                told = told.model_copy(
                    update={
                        "calls": ledger.calls - before[0],
                        "prompt_tokens": ledger.usage.prompt - before[1].prompt,
                        "completion_tokens": ledger.usage.completion - before[1].completion,
                        "estimated": ledger.usage.estimated,
                        "seconds": ledger.seconds - before[2],
                        "usd": None if usd is None else usd - (before[3] or 0.0),
                    }
                )
            self.spent = self.spent.plus(told)
            self.emit(told)
            if self._client is not None and self._client.endpoint.answer_cache:
                AnswerCache().put(told, self._client.endpoint)
            near = ledger.near() if ledger else ""
            if near:
                self.emit(events.Warned(message=near))

    def _kept(self, question: str) -> events.ModelAnswered | None:
        """What the user's endpoint answered to an equal question before."""
        if self._client is None or not self._client.endpoint.answer_cache:
            return None
        return AnswerCache().get(question, self._client.endpoint)

    def _retried(self, line: str) -> None:
        self.emit(events.ModelRetried(message=line))

    def close(self) -> None:
        """Close connections; the next question looks at environment and config anew."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _told(question: str, answer: Answer | None) -> events.ModelAnswered:
    """The event of an answer; None where the question was broken off."""
    match answer:
        case None | Cancelled():
            said: dict[str, Any] = {"answer": "Cancelled", "message": "cancelled"}
        case Completion(text=text, usage=used, model=model, seconds=seconds, usd=usd):
            said = {"answer": "Completion", "text": text, "model": model, "calls": 1, "usd": usd}
            said["tools"] = [events.ToolCalled(**asdict(call)) for call in answer.calls]
            said |= {"prompt_tokens": used.prompt, "completion_tokens": used.completion}
            said |= {"estimated": used.estimated, "seconds": seconds}
        case Failed(kind=kind, message=message):
            said = {"answer": "Failed", "kind": str(kind), "message": message}
        case NoModel(reason=reason):
            said = {"answer": "NoModel", "message": reason}
        case OutOfBudget(what=what, limit=limit, spent=spent, note=note):
            note = note or f"{spent:g} of {limit:g} spent"
            said = {"answer": "OutOfBudget", "kind": what, "message": note}
    return events.ModelAnswered(question=question, **said)


def as_answer(told: events.ModelAnswered) -> Answer:
    """The answer of an event."""
    if told.answer == "Completion":
        usage = Usage(told.prompt_tokens, told.completion_tokens, told.estimated)
        calls = tuple(Call(**called.model_dump()) for called in told.tools)
        return Completion(told.text, usage, model=told.model, usd=told.usd, calls=calls)
    if told.answer == "Failed":
        return Failed(Trouble(told.kind), told.message)
    if told.answer == "OutOfBudget":
        return OutOfBudget(told.kind, 0.0, 0.0, told.message)
    return Cancelled() if told.answer == "Cancelled" else NoModel(told.message)
