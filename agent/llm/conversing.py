"""The role of a partner: words about a session, commands of it, and placements to be judged.

Words alone are an answer. Of a reply with a part that cannot be used the rest counts, and what is
left out is said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from shardproof.agent.llm import vocabulary
from shardproof.agent.llm.answers import Call, Completion
from shardproof.agent.llm.client import Form, Message, Model
from shardproof.agent.llm.dialogue import Result, put
from shardproof.agent.llm.hygiene import clean, one_line
from shardproof.agent.llm.proposing import Proposed, Task, points, row
from shardproof.agent.llm.replies import (
    Conversation,
    Proposal,
    Proposals,
    ReplyError,
    fit,
    read_parts,
    schema,
)
from shardproof.agent.llm.source import boundary, excerpt
from shardproof.prompts import render

Pairs = Sequence[tuple[str, str]]
Tool = Mapping[str, Any]
LONGEST = 8000
"""Characters of an answer."""
PROPOSE = "propose"
"""The tool that takes placements."""


@dataclass(frozen=True)
class Answered:
    """What the model said, what it asks for, and the points that it proposed: nothing is judged."""

    answer: str
    proposed: tuple[Proposed, ...]
    left_out: tuple[str, ...] = ()
    """What is wrong with the parts that cannot be used."""
    commands: tuple[str, ...] = ()
    reply: str = ""
    """As it came."""
    calls: tuple[Call, ...] = ()

    def told(self, said: Sequence[str], judged: str, word: str, last: bool) -> list[Message]:
        """The reply, what its commands said and how its proposals were `judged`, as messages for
        the next question."""
        *fenced, ideas = (
            f"<<< {word}\n{excerpt(clean(text), 4000)}\n{word} >>>" for text in (*said, judged)
        )
        close = "Now answer the owner in words; no further commands are run." if last else ""
        if not self.calls:
            rows = [*zip(self.commands, fenced, strict=False)]
            rows += [("the proposals were judged, which", ideas)] if self.proposed else []
            shown = "\n".join(f"{line} said:\n{text}" for line, text in rows)
            asked = f"{shown}\n{close or 'Go on, or answer the owner in words.'}"
            reply = {"role": "assistant", "content": self.reply}
            return [reply, {"role": "user", "content": asked}]
        made: list[dict[str, Any]] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in self.calls
        ]
        results = iter(fenced)
        asked_for = [c for c in self.calls if c.name != PROPOSE]
        texts = {id(c): next(results, "not run") for c in asked_for}
        messages: list[Message] = [
            {"role": "assistant", "content": self.reply, "tool_calls": made},
            *(
                {"role": "tool", "tool_call_id": c.id, "content": texts.get(id(c), ideas)}
                for c in self.calls
            ),
        ]
        return [*messages, {"role": "user", "content": close}] if close else messages


def converse(
    model: Model,
    question: str,
    facts: Pairs,
    task: Task | None,
    earlier: Pairs = (),
    *,
    commands: Sequence[Mapping[str, str]] = (),
    tools: Sequence[Tool] = (),
    past: Sequence[Message] = (),
    word: str = "",
) -> Result[Answered]:
    """Ask. `facts` are (name, text); without a `task` there is nothing to propose.

    `commands` are described in the prompt, `tools` are the same for endpoints that have them, and
    `past` is what was said and run for this question so far, with `word` as its boundary.
    """
    prompt = render(
        "converse",
        boundary=word or boundary(),
        commands=list(commands),
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
    form = Form(
        "conversation",
        schema(Conversation, vocabulary.of_proposals()),
        tools=(*tools, *([_propose()] if task and tools else [])),
    )
    return put(model, prompt, form, lambda reply: _read(task, reply), past)


def _propose() -> Tool:
    about = "Proposes placements; each is planned, priced and proved before it is an idea."
    shape = schema(Proposals, vocabulary.of_proposals())
    return {"name": PROPOSE, "description": about, "parameters": shape}


def _read(task: Task | None, reply: Completion) -> Answered:
    if reply.calls:
        return _called(task, reply)
    parts, is_json = read_parts(reply.text)
    known = Conversation.model_fields
    left_out = [f"{one_line(name, 40)}: no such field" for name in parts if name not in known]
    answer = parts.get("answer", "")
    words = clean(answer).strip()[:LONGEST] if isinstance(answer, str) else ""
    commands, bad = _commands(parts.get("commands", []))
    if not words and not commands:
        raise ReplyError(["answer: empty, or no text"])
    found, wrong = _proposed(task, parts.get("proposals", [])) if is_json else ((), [])
    problems = tuple([*left_out, *bad, *wrong][:8])
    return Answered(words, found, problems, commands, reply.text)


def _commands(value: Any) -> tuple[tuple[str, ...], list[str]]:
    items = cast(list[Any], value) if isinstance(value, list) else [value]
    found = tuple(item for item in items if isinstance(item, str) and item.strip())
    bad = [] if len(found) == len(items) else ["commands: one that is not text"]
    return found, bad


def _called(task: Task | None, reply: Completion) -> Answered:
    """Tool calls as commands; one whose arguments cannot be read is a command without words."""
    commands: list[str] = []
    proposals: list[Any] = []
    for call in reply.calls:
        try:
            given, _ = read_parts(call.arguments or "{}")
        except ReplyError:
            given = {}
        if call.name == PROPOSE:
            proposals += cast(list[Any], given.get("proposals") or [])
        else:
            words = given.get("words", "")
            name = call.name.replace("_", "-")
            commands.append(f"/{name} {words if isinstance(words, str) else ''}".rstrip())
    found, wrong = _proposed(task, proposals)
    words = clean(reply.text).strip()[:LONGEST]
    return Answered(words, found, tuple(wrong[:8]), tuple(commands), reply.text, reply.calls)


def _proposed(task: Task | None, value: Any) -> tuple[tuple[Proposed, ...], list[str]]:
    """The proposals that are points of the search, and what is wrong with the others."""
    items = cast(list[Any], value) if isinstance(value, list) else [value]
    if task is None:
        return (), ["there is nothing to place here"] if items else []
    fitting: list[Proposal] = []
    wrong: list[str] = []
    for index, item in enumerate(items):
        try:
            fitting.append(fit(Proposal, item))
        except ReplyError as error:
            wrong.append(f"proposals[{index}]: {error}")
    try:
        found = points(task, fitting)
    except ReplyError as error:
        return (), [*wrong, *error.problems]
    return found.points, [*wrong, *found.left_out]
