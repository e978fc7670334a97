"""What a run may spend on a model, and what it has spent. Asked before and told after each call."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass

from shardproof.agent.llm.answers import OutOfBudget, Usage

CHARS_PER_TOKEN = 3.5
"""Where an endpoint does not count: a rough figure for code in English."""


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens."""

    input: float
    output: float

    def of(self, usage: Usage) -> float:
        return (self.input * usage.prompt + self.output * usage.completion) / 1e6


@dataclass(frozen=True, slots=True)
class Limits:
    """None: no limit."""

    calls: int | None = 60
    tokens: int | None = 1_000_000
    usd: float | None = None
    seconds: float | None = 3600.0
    """Spent inside calls, retries and waits included."""

    def at_most(self, other: Limits) -> Limits:
        """The lower of both, one by one."""
        calls, tokens = _low(self.calls, other.calls), _low(self.tokens, other.tokens)
        return Limits(
            None if calls is None else int(calls),
            None if tokens is None else int(tokens),
            _low(self.usd, other.usd),
            _low(self.seconds, other.seconds),
        )


DEFAULT = Limits()
UNLIMITED = Limits(None, None, None, None)
LEAST_REPLY = 64
"""Tokens of reply below which asking is not worth a call."""


def _low(a: float | None, b: float | None) -> float | None:
    return min((x for x in (a, b) if x is not None), default=None)


def estimate(chars: int) -> int:
    """Tokens of so many characters, roughly."""
    return round(chars / CHARS_PER_TOKEN) + 1


@dataclass(frozen=True, slots=True)
class Ticket:
    """Leave for one call: what was set aside for it, and what it may at most write."""

    prompt: int
    max_tokens: int
    usd: float
    begun: float
    most_chars: float = math.inf
    """Characters of a reply at which what is left of the limits is used up, and a little more."""


class Ledger:
    """Limits and what was spent. One for a run; threads may share it."""

    def __init__(self, limits: Limits, price: Price | None = None) -> None:
        self.limits = limits
        self.price = price
        self.calls = 0
        self.usage = Usage()
        self.seconds = 0.0
        self._held: list[Ticket] = []
        self._lock = threading.Lock()

    @property
    def usd(self) -> float | None:
        """None where the price is not known."""
        return self.price.of(self.usage) if self.price else None

    def seconds_left(self) -> float:
        limit = self.limits.seconds
        return float("inf") if limit is None else limit - self.seconds

    def admit(self, chars: int, max_tokens: int) -> Ticket | OutOfBudget:
        """Leave for a call with a prompt of so many characters, the reply cut to what is left."""
        prompt, most = estimate(chars), math.inf
        with self._lock:
            limits = self.limits
            if limits.calls is not None and self.calls >= limits.calls:
                return OutOfBudget("calls", limits.calls, self.calls)
            if limits.seconds is not None and self.seconds >= limits.seconds:
                return OutOfBudget("seconds", limits.seconds, self.seconds)
            if limits.tokens is not None:
                held = sum(t.prompt + t.max_tokens for t in self._held)
                left = limits.tokens - self.usage.total - held - prompt
                if left < min(LEAST_REPLY, max_tokens):
                    note = f"{self.usage.total} of {limits.tokens} spent, {prompt} asked for"
                    return OutOfBudget("tokens", limits.tokens, self.usage.total, note)
                max_tokens, most = min(max_tokens, left), left
            usd = 0.0
            if limits.usd is not None:
                if self.price is None:
                    note = "the price of the model is not known; give [model.prices], or no limit"
                    return OutOfBudget("usd", limits.usd, 0.0, note)
                spent = self.price.of(self.usage) + sum(t.usd for t in self._held)
                left_usd = limits.usd - spent - self.price.of(Usage(prompt))
                worth = self.price.of(Usage(0, min(LEAST_REPLY, max_tokens)))
                if left_usd < worth or (left_usd <= 0 and limits.usd - spent <= 0):
                    return OutOfBudget("usd", limits.usd, spent)
                if self.price.output:
                    worthy = left_usd * 1e6 / self.price.output
                    max_tokens, most = min(max_tokens, int(worthy)), min(most, worthy)
                usd = self.price.of(Usage(prompt, max_tokens))
            self.calls += 1
            most_chars = 1.05 * most * CHARS_PER_TOKEN
            ticket = Ticket(prompt, max_tokens, usd, time.monotonic(), most_chars)
            self._held.append(ticket)
            return ticket

    def settle(self, ticket: Ticket, usage: Usage | None, chars: int = 0) -> Usage:
        """Book what a call took; estimated from `chars` of reply where `usage` is not known."""
        spent = usage or Usage(ticket.prompt, estimate(chars) if chars else 0, estimated=True)
        with self._lock:
            self._held = [t for t in self._held if t is not ticket]
            self.usage += spent
            self.seconds += time.monotonic() - ticket.begun
        return spent

    def waited(self, seconds: float) -> None:
        """Book a wait between two attempts."""
        with self._lock:
            self.seconds += seconds

    def near(self, share: float = 0.8) -> str:
        """Which limits are nearly used up, in one line; empty where none is."""
        limits = self.limits
        pairs: tuple[tuple[str, float | None, float | None], ...] = (
            ("calls", self.calls, limits.calls),
            ("tokens", self.usage.total, limits.tokens),
            ("usd", self.usd, limits.usd),
            ("seconds", self.seconds, limits.seconds),
        )
        told = [
            f"{spent:.4g} of {limit:g} {name}"
            for name, spent, limit in pairs
            if spent is not None and limit is not None and spent >= share * limit
        ]
        return f"budget of the model: {', '.join(told)} spent" if told else ""

    def __str__(self) -> str:
        about = "about " if self.usage.estimated else ""
        usd = self.usd
        cost = "cost not known" if usd is None else f"{usd:.4f} USD"
        if usd is not None and self.limits.usd is not None:
            cost += f" of {self.limits.usd:g}"
        return (
            f"{self.calls} calls, {about}{self.usage.prompt} tokens in, "
            f"{self.usage.completion} out, {self.seconds:.1f} s, {cost}"
        )
