"""Models that are not: a list of replies, and a transcript played again."""

from __future__ import annotations

from collections.abc import Sequence

from shardproof.agent.llm.answers import Answer, Completion, NoModel, OutOfBudget, Unanswered, Usage
from shardproof.agent.llm.budget import UNLIMITED, Ledger, Limits, Price
from shardproof.agent.llm.client import Form, Message


class Scripted:
    """Says its lines in order, within a budget; afterwards there is no model any more."""

    def __init__(
        self,
        lines: Sequence[str | Unanswered],
        limits: Limits = UNLIMITED,
        price: Price | None = None,
    ) -> None:
        self.lines = list(lines)
        self.ledger = Ledger(limits, price)
        self.heard: list[list[dict[str, str]]] = []
        """The messages of every question."""
        self.forms: list[Form | None] = []

    def ask(self, messages: Sequence[Message], form: Form | None = None) -> Answer:
        """The next line."""
        self.heard.append([dict(m) for m in messages])
        self.forms.append(form)
        if not self.lines:
            return NoModel("the script is at its end")
        ticket = self.ledger.admit(sum(len(m["content"]) for m in messages), 4096)
        if isinstance(ticket, OutOfBudget):
            return ticket
        line = self.lines.pop(0)
        if not isinstance(line, str):
            self.ledger.settle(ticket, Usage())
            return line
        usage = self.ledger.settle(ticket, None, len(line))
        return Completion(line, usage, model="scripted")
