"""The role of a partner: words about a session, and placements, judged before they count."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.llm import vocabulary
from agent.llm.client import Form, Model
from agent.llm.dialogue import Result, put
from agent.llm.hygiene import clean, one_line
from agent.llm.proposing import Proposed, Task, points, row
from agent.llm.replies import Conversation, Explanation, ReplyError, read, schema
from agent.llm.source import bare, boundary, excerpt
from agent.verdicts import message, word
from prompts import render
from synthesis.tactics import TACTICS
from verifier.kernel.program.program import Program
from verifier.text.parser import to_text
from verifier.verdict import Counterexample, Trace, Verdict

FORM = Form("explanation", schema(Explanation))


def explain(
    model: Model, verdict: Verdict, program: Program | None = None, question: str = ""
) -> Result[Explanation]:
    """Ask for an explanation: plain text, cleaned, to be shown as the model's words."""
    traced = isinstance(verdict, Counterexample) and isinstance(verdict.witness, Trace)
    location = getattr(verdict, "location", None)
    focus = location.text.split(" = ")[0] if location else ""
    shown = excerpt(clean(to_text(bare(program))).strip(), 12_000, focus) if program else ""
    prompt = render(
        "explain",
        boundary=boundary(),
        verdict=word(verdict),
        finding=excerpt(clean(message(verdict)), 6000),
        program=shown,
        checks=vocabulary.checks() if traced else [],
        question=clean(question)[:2000],
    )
    return put(model, prompt, FORM, lambda text: read(Explanation, text))


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
    words = {
        "Proposal.tactic": sorted(TACTICS),
        "Proposal.stream": list(vocabulary.STREAMS),
        "Placement.style": list(vocabulary.STYLES),
    }
    form = Form("conversation", schema(Conversation, words))
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
