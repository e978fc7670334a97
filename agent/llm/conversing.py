"""The role of a partner: words about a session, and placements, judged before they count."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.llm import vocabulary
from agent.llm.client import Form, Model
from agent.llm.dialogue import Result, put
from agent.llm.hygiene import clean, one_line
from agent.llm.proposing import Proposed, Task, points, row
from agent.llm.replies import Conversation, ReplyError, read, schema
from agent.llm.source import boundary, excerpt
from prompts import render

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Answered:
    """What the model said, and the points that it proposed: nobody has judged them yet."""

    answer: str
    proposed: tuple[Proposed, ...]
    left_out: tuple[str, ...] = ()
    """What is wrong with the proposals that are no points."""


def converse(
    model: Model, question: str, facts: Pairs, task: Task | None, earlier: Pairs = ()
) -> Result[Answered]:
    """Ask. `facts` are (name, text); without a `task` there is nothing to propose."""
    form = Form("conversation", schema(Conversation, vocabulary.of_proposals()))
    prompt = render(
        "converse",
        boundary=boundary(),
        facts=[{"name": name, "text": excerpt(clean(text).strip(), 6000)} for name, text in facts],
        modules=[row(m, task.mesh[task.tp]) for m in task.modules] if task else [],
        tactics=vocabulary.tactics() if task else [],
        styles=vocabulary.styles() if task else [],
        streams=vocabulary.streams() if task else [],
        most=task.most if task else 0,
        earlier=[
            {"asked": one_line(asked, 500), "answered": one_line(said, 1500)}
            for asked, said in earlier
        ],
        question=clean(question)[:8000],
    )
    return put(model, prompt, form, lambda text: _read(task, text))


def _read(task: Task | None, text: str) -> Answered:
    reply = read(Conversation, text)
    if not reply.answer:
        raise ReplyError(["answer: empty"])
    if task is None:
        dropped = ("there is nothing to place here",) if reply.proposals else ()
        return Answered(reply.answer, (), dropped)
    found = points(task, reply.proposals)
    return Answered(reply.answer, found.points, found.left_out)
