"""One question with a form: asked, read, and where it cannot be read answered once with why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from shardproof.agent.llm.answers import Completion, Failed, Trouble, Unanswered, Usage
from shardproof.agent.llm.client import Form, Message, Model
from shardproof.agent.llm.hygiene import one_line
from shardproof.agent.llm.replies import ReplyError
from shardproof.prompts import Rendered

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


def put(
    model: Model,
    prompt: Rendered,
    form: Form,
    reader: Callable[[Completion], T],
    earlier: Sequence[Message] = (),
) -> Result[T]:
    """Ask, read, and ask once more where the reply is malformed.

    `reader` raises `ReplyError` for a reply that it cannot use. `earlier` are the replies of this
    context and what was said to them.
    """
    form = replace(form, template=prompt.template, rendering=prompt.rendering)
    messages = [*prompt.messages, *earlier]
    first = model.ask(messages, form)
    spent = Usage()
    if isinstance(first, Completion):
        spent = first.usage
        try:
            return Read(reader(first), spent, prompt.template, prompt.rendering)
        except ReplyError as error:
            problems, text = error.problems, first.text
    elif isinstance(first, Failed) and first.kind is Trouble.LENGTH:
        problems, text = ("it was cut off at the limit of tokens; be brief",), ""
    else:
        return first
    second = model.ask([*messages, *_correction(text, problems)], form)
    if not isinstance(second, Completion):
        return second
    spent += second.usage
    try:
        return Read(reader(second), spent, prompt.template, prompt.rendering, True)
    except ReplyError as error:
        return Malformed(error.problems, spent, prompt.template, prompt.rendering)


def _correction(text: str, problems: tuple[str, ...]) -> list[dict[str, str]]:
    """What was said, where it is known, and what is wrong with it."""
    told = "\n".join(f"- {one_line(problem)}" for problem in problems[:8])
    asked = (
        f"That reply cannot be used:\n{told}\n"
        "Send the whole reply again, corrected, and nothing else."
    )
    said = text[:SHOWN] or "(nothing that can be shown)"
    return [{"role": "assistant", "content": said}, {"role": "user", "content": asked}]
