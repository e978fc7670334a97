"""One question with a form: asked, read, and where it cannot be read answered once with why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from agent.llm.answers import Completion, Unanswered, Usage
from agent.llm.client import Form, Model
from agent.llm.hygiene import one_line
from agent.llm.replies import ReplyError
from prompts import Rendered

T = TypeVar("T")
SHOWN = 4000
"""Characters of a malformed reply that are sent back with what is wrong in it."""


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """A reply that was read, and the prompt that it answers."""

    value: T
    usage: Usage
    template: str
    """Hash of the prompt as written."""
    rendering: str
    """Hash of the prompt as sent."""
    corrected: bool = False
    """It took a second try."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """Two replies in a row that could not be read."""

    problems: tuple[str, ...]
    """Of the second one."""
    usage: Usage
    template: str = ""
    rendering: str = ""

    def __str__(self) -> str:
        return f"the model's reply cannot be used: {one_line('; '.join(self.problems))}"


Result = Read[T] | Malformed | Unanswered


def put(model: Model, prompt: Rendered, form: Form, reader: Callable[[str], T]) -> Result[T]:
    """Ask, read, and ask once more where the reply is malformed.

    `reader` raises `ReplyError` for a reply that it cannot use.
    """
    form = replace(form, template=prompt.template, rendering=prompt.rendering)
    messages = prompt.messages
    first = model.ask(messages, form)
    if not isinstance(first, Completion):
        return first
    try:
        return Read(reader(first.text), first.usage, prompt.template, prompt.rendering)
    except ReplyError as error:
        problems = error.problems
    told = "\n".join(f"- {one_line(problem)}" for problem in problems[:8])
    again = [
        *messages,
        {"role": "assistant", "content": first.text[:SHOWN] or "(nothing)"},
        {
            "role": "user",
            "content": f"That reply cannot be used:\n{told}\n"
            "Send the whole reply again, corrected, and nothing else.",
        },
    ]
    second = model.ask(again, form)
    if not isinstance(second, Completion):
        return second
    usage = first.usage + second.usage
    try:
        return Read(reader(second.text), usage, prompt.template, prompt.rendering, True)
    except ReplyError as error:
        return Malformed(error.problems, usage, prompt.template, prompt.rendering)
