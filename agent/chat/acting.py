"""Commands that a model asks for: those that read are run, the others after the owner's Enter.

Nothing else of a reply reaches the session: a line is parsed by the registry, which says
what a command may do, and options that agree for the owner are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardproof.agent.chat import tools
from shardproof.agent.llm.hygiene import clean
from shardproof.agent.llm.secret import redacted
from shardproof.agent.run import events
from shardproof.agent.run.errors import InputError

if TYPE_CHECKING:
    from shardproof.agent.chat.engine import Session

MOST = 8
"""Commands of one reply."""
QUESTION = "run them?"
"""Answered by Enter; every other question by a `y`."""
SHORT = 3000
"""Characters of what a command said that go to the model."""


@dataclass(frozen=True)
class Ran:
    """What became of the commands of one reply."""

    said: tuple[str, ...]
    """For each command, in short form, for the model."""
    declined: bool = False
    """The owner did not want some of them, or was not there."""


def run(session: Session, lines: Sequence[str]) -> Ran:
    """Run what reads; from the first command on that does more, ask once for all that is left."""
    said: list[str] = []
    taken: list[str] = []
    effects: list[str] = []
    for line in lines:
        try:
            if len(taken) >= MOST:
                raise InputError("too many commands in one reply", expected=f"at most {MOST}")
            shown, found, _ = tools.admitted(line, session.withheld)
        except InputError as error:
            said.append(f"refused: {error}")
            session.run.warn(f"a command of the model is refused: {error}")
            continue
        said.append("")
        taken.append(shown)
        effects.append(found.effect)
    first = next((i for i, effect in enumerate(effects) if effect != "reads"), len(taken))
    results = [_one(session, line) for line in taken[:first]]
    declined = False
    if first < len(taken):
        declined = not _agreed(session, taken[first:])
        if declined:
            results += ["not run: the owner did not agree"] * (len(taken) - first)
        else:
            results += [_one(session, line) for line in taken[first:]]
    rest = iter(results)
    return Ran(tuple(text or next(rest) for text in said), declined)


def _agreed(session: Session, lines: Sequence[str]) -> bool:
    """Show the commands; whether the owner, where they are there, has them run."""
    shown = "\n".join(f"  {line}" for line in lines)
    session.say(f"the model asks to run\n{shown}")
    if session.agree is None:
        session.say("not run: nobody is there to agree; type them to run them")
        return False
    yes = session.agreed(QUESTION, False)
    if not yes:
        session.say("not run")
    return yes


def _one(session: Session, line: str) -> str:
    """Run one command; what it said, in short."""
    session.run.emit(events.CommandRun(command=line))
    start = len(session.run.seen)
    session.attempt(line)
    return short(session, session.run.seen[start:])


def short(session: Session, seen: Sequence[events.Event]) -> str:
    """What was said, for the model: no line of the owner's source, no diff, no key."""
    text = "\n".join(part for event in seen if (part := _told(event)))
    text = redacted(clean(without_source(session, text)))
    return text if len(text) <= SHORT else text[:SHORT] + "\n..."


def _told(event: events.Event) -> str:
    match event:
        case events.Said(by="shardproof", text=text):
            return text.partition("--- a/")[0].rstrip() + (
                "\n(a diff, shown to the owner)" if "--- a/" in text else ""
            )
        case events.VerdictReached(verdict=verdict, message=message):
            return "\n".join([f"{verdict}: {message}", *event.assumptions[:4]])
        case events.PatchShown(diff=diff, standing=standing):
            rows = diff.split("\n")
            plus = sum(r.startswith("+") and not r.startswith("+++") for r in rows)
            minus = sum(r.startswith("-") and not r.startswith("---") for r in rows)
            files = ", ".join(r[6:] for r in rows if r.startswith("+++ b/"))
            return f"a diff of {files}, +{plus} -{minus}, was shown to the owner; {standing}"
        case events.PlanChosen(strategy=strategy):
            return f"plan: {strategy}"
        case events.RepairCandidate(edits=edits, verdict=verdict, holds=holds):
            return f"tried {'; '.join(edits)}: {verdict} {holds}".rstrip()
        case events.Warned(message=message):
            return f"note: {message}"
        case events.Problem():
            named = (f"{name}: {text}" for name, text in event.details().items())
            return "\n".join([f"error: {event.message}", *named])
        case _:
            return ""


def without_source(session: Session, text: str) -> str:
    """A text without lines of source that programs of the session carry."""
    for line in sorted(_source_lines(session), key=len, reverse=True):
        text = text.replace(line, "(a line of source)")
    return text


def _source_lines(session: Session) -> set[str]:
    from shardproof.verifier.kernel.program.program import Program

    state = session.state
    programs: list[Program] = []
    if state.model is not None:
        programs.append(session.workspace.captured().program)
    for source in (state.programs.sequential, state.programs.distributed):
        if source is not None:
            programs.append(session.workspace.program(source))
    found: set[str] = set()
    while programs:
        for node in programs.pop().nodes:
            programs += [node.body] if node.body is not None else []
            found.add(node.source.text.strip())
    return {line for line in found if len(line) > 3}
