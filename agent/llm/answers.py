"""What a question to a language model ends in. Values, read with `match`; none is raised.

Completion     the model answered, and the endpoint said that it was done
NoModel        no key, no endpoint, or no network: everything else goes on without one
Failed         the endpoint answered with something else: which kind, in one line
OutOfBudget    a limit on calls, tokens, money or seconds was reached
Cancelled      the caller asked to stop
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shardproof.agent.run.errors import Exit


class Trouble(StrEnum):
    """Kinds of failure of an endpoint."""

    KEY = "key"
    """401 or 403."""
    QUOTA = "quota"
    """The account has no credit left; waiting does not help."""
    RATE = "rate limit"
    """429, still after the last retry, or a wait longer than the time left."""
    SERVER = "server error"
    TIMEOUT = "timeout"
    NOT_FOUND = "not found"
    """404: no such model, or no such address."""
    REQUEST = "bad request"
    REDIRECT = "redirect"
    NOT_A_REPLY = "not a completion"
    """Status 200 with something that is no completion: a web page, an error, nothing."""
    CUT = "cut off"
    """The stream ended before the endpoint said that it was done."""
    LENGTH = "length"
    """The reply reached the limit of tokens."""
    EMPTY = "empty"
    REFUSED = "refused"
    """The model, or a filter before it, declined."""
    HUGE = "too large"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, or the sum over calls."""

    prompt: int = 0
    completion: int = 0
    estimated: bool = False
    """Counted by us from characters, because the endpoint did not say."""

    @property
    def total(self) -> int:
        return self.prompt + self.completion

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.estimated or other.estimated,
        )


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the model calls: its name, and its arguments as the model wrote them."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Completion:
    """What the model wrote, cleaned of control characters, with what it cost."""

    text: str
    usage: Usage = Usage()
    rung: str = "text"
    """How structure was asked for: one of `shardproof.agent.llm.format_tiers.RUNGS`."""
    model: str = ""
    """As the endpoint names it."""
    attempts: int = 1
    seconds: float = 0.0
    usd: float | None = None
    """None where the price is not known."""
    calls: tuple[Call, ...] = ()
    """Tools of the form that the model calls."""

    def __str__(self) -> str:
        return f"answered in {self.seconds:.1f} s, {self.usage.total} tokens"


@dataclass(frozen=True, slots=True)
class NoModel:
    reason: str

    def __str__(self) -> str:
        return f"no language model: {self.reason}; everything else works without one"


@dataclass(frozen=True, slots=True)
class Failed:
    kind: Trouble
    message: str
    attempts: int = 1
    status: int = 0
    """HTTP status; 0 where there was none, or 200."""

    def __str__(self) -> str:
        tries = f" (after {self.attempts} attempts)" if self.attempts > 1 else ""
        return f"the model endpoint failed, {self.kind}: {self.message}{tries}"


@dataclass(frozen=True, slots=True)
class OutOfBudget:
    what: str
    """`calls`, `tokens`, `usd` or `seconds`."""
    limit: float
    spent: float
    note: str = ""

    def __str__(self) -> str:
        detail = self.note or f"{self.spent:g} of {self.limit:g} spent"
        return f"the budget of {self.what} is used up: {detail}"


@dataclass(frozen=True, slots=True)
class Cancelled:
    def __str__(self) -> str:
        return "the question to the model was cancelled"


Unanswered = NoModel | Failed | OutOfBudget | Cancelled
Answer = Completion | Unanswered


_ADVICE = {
    Trouble.KEY: "check the key in SHARDPROOF_API_KEY or OPENAI_API_KEY",
    Trouble.QUOTA: "the account of the key has no credit left: top it up, or name another endpoint",
    Trouble.RATE: "ask again later, or fewer questions at once",
    Trouble.NOT_FOUND: "check SHARDPROOF_MODEL and SHARDPROOF_BASE_URL: /model says what they are",
    Trouble.REDIRECT: "set SHARDPROOF_BASE_URL to the address it redirects to, if you trust it",
    Trouble.NOT_A_REPLY: "check SHARDPROOF_BASE_URL; it often ends in /v1",
    Trouble.LENGTH: "raise max_tokens in the user's config",
    Trouble.REFUSED: "put it in other words",
}


def advice(answer: Unanswered) -> str:
    """What to try after a failure; empty where the message says it."""
    return _ADVICE.get(answer.kind, "") if isinstance(answer, Failed) else ""


def exit_of(answer: Unanswered) -> Exit:
    """What a command that needed an answer ends in."""
    match answer:
        case NoModel() | Failed():
            return Exit.ENDPOINT
        case OutOfBudget():
            return Exit.LIMIT
        case Cancelled():
            return Exit.INTERRUPTED
