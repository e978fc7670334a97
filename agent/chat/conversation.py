"""Words for the model. What it says is shown as its words; what it proposes is judged first."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shardproof.agent.chat import acting, tools
from shardproof.agent.chat.state import Idea, Turn
from shardproof.agent.llm.answers import Unanswered, advice, exit_of
from shardproof.agent.llm.dialogue import Malformed, Read
from shardproof.agent.llm.hygiene import one_line
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit
from shardproof.agent.run.run import Outcome
from shardproof.agent.verdict import verdicts

if TYPE_CHECKING:
    from shardproof.agent.chat.engine import Session
    from shardproof.agent.llm.client import Message
    from shardproof.agent.llm.conversing import Answered
    from shardproof.agent.llm.proposing import Proposed, Task
    from shardproof.synthesis.planner.scoring import Search
    from shardproof.verifier.verdict import Verdict

ROUNDS = 6
"""Questions of one input: commands run between them, and the last one is for words."""
MOST = 2
"""Proposals of one answer."""
REMEMBERED = 4
"""Questions and answers that go along with the next question."""


def answer(session: Session, line: str) -> Outcome:
    """Ask the model, and judge what it proposes."""
    from shardproof.agent.llm.conversing import converse
    from shardproof.agent.llm.source import boundary

    offered = tools.offered(session.withheld)
    ask = partial(
        converse,
        session.asker,
        line,
        facts(session),
        earlier=[(turn.asked, turn.answered) for turn in session.state.said],
        commands=tools.entries(offered),
        tools=[tools.tool(command) for command in offered],
        word=(word := boundary()),
    )
    past: list[Message] = []
    for left in reversed(range(ROUNDS)):
        found = ask(task=_task(session), past=past)
        if not isinstance(found, Read):
            return unanswered(session, found, line)
        said = found.value
        _told_by_model(session, line, said)
        if said.commands and not left:
            session.run.warn(f"the model asked for commands {ROUNDS} times; no more are run")
        ran = acting.run(session, said.commands if left else ())
        judged, told = _judged(session, said.proposed)
        if ran.declined:
            break
        if not left or not (said.commands or said.calls):
            return judged or _backed(session)
        past += said.told(ran.said, told, word, last=left == 1)
    return Outcome(Exit.NOT_PROVED)


def _told_by_model(session: Session, line: str, said: Answered) -> None:
    """Show and remember what a reply says, and what of it cannot be used."""
    if said.answer:
        session.run.emit(events.Said(by="model", text=said.answer))
        turn = Turn(asked=line[:2000], answered=said.answer)
        earlier = [t for t in session.state.said if t.asked != turn.asked]
        session.change(said=[*earlier, turn][-REMEMBERED:])
    for why in said.left_out:
        session.run.warn(f"a part of the model's reply is left out: {why}")


def unanswered(session: Session, answer: Unanswered | Malformed, line: str = "") -> Outcome:
    """Say in one line what became of a question, and what works instead."""
    from shardproof.agent.chat import registry

    code = Exit.ENDPOINT if isinstance(answer, Malformed) else exit_of(answer)
    known = advice(answer) if not isinstance(answer, Malformed) else ""
    hint = known or "/plan, /why-not, /explain, /cex and /repair need no model; /help lists them"
    if line.split(maxsplit=1)[:1] and line.split(maxsplit=1)[0] in registry.registered():
        hint = f"commands begin with a slash: /{line.splitlines()[0][:80]}"
    session.run.emit(
        events.Problem(
            kind="model",
            message=str(answer),
            hint=hint,
        )
    )
    return Outcome(code)


def explained(session: Session, question: str) -> Outcome:
    """The verdict in the model's words."""
    from shardproof.agent.llm.explaining import explain

    pair = session.workspace.pair()
    verdict = session.workspace.verdict()
    found = explain(session.asker, verdict, pair.distributed, question)
    if not isinstance(found, Read):
        return unanswered(session, found)
    reply = found.value
    parts = [reply.summary, reply.cause, reply.advice]
    session.run.emit(events.Said(by="model", text="\n".join(part for part in parts if part)))
    return _stands(session, verdict)


def _stands(session: Session, verdict: Verdict) -> Outcome:
    line = verdicts.message(verdict).split("\n")[0]
    session.say(f"the verdict itself: {verdicts.word(verdict)}: {line}")
    return Outcome(verdicts.exit_of(verdict), verdicts.word(verdict))


def _backed(session: Session) -> Outcome:
    """What is decided about what was talked of; words alone change nothing of it."""
    judged = session.state.judged
    if judged is None:
        session.say("nothing is decided yet; these are the model's words alone: /verify decides")
        return Outcome(Exit.PROVED)
    session.say(f"what is decided: {judged.verdict}: {judged.message.splitlines()[0]}")
    return Outcome(Exit.PROVED, judged.verdict)


def facts(session: Session) -> list[tuple[str, str]]:
    """What the session knows, for the model: names and findings, no source."""
    from shardproof.agent.chat.planning import estimated
    from shardproof.synthesis.planner.plan import table

    state = session.state
    found: list[tuple[str, str]] = []
    if state.model is not None:
        captured = session.workspace.captured()
        found.append(
            ("model", f"{captured.facts.class_name}, {captured.facts.param_count:,} parameters")
        )
    if state.mesh:
        found.append(("mesh", ", ".join(f"{k}={v}" for k, v in state.mesh.items())))
        found.append(("cluster", state.settings.hardware))
    found += [(constraint.kind, constraint.words) for constraint in state.constraints]
    if state.planned is not None and state.planned.of == session.workspace.planned_of():
        made = session.workspace.made()
        found.append(("plan", state.planned.strategy))
        found += [(f"module {r[0]}", f"{r[2]}; {r[3]}; {r[4]}") for r in table(made.plan)]
        found.append(("cost", estimated(made.plan)))
    if state.subject == "programs":
        for kind in ("sequential", "distributed"):
            source = getattr(state.programs, kind)
            if source is not None:
                from shardproof.agent.llm.source import bare
                from shardproof.verifier.text.parser import to_text

                text = to_text(bare(session.workspace.program(source)))
                found.append((f"{kind} program", "\n" + text.strip()))
    if state.judged is not None:
        found.append(("verdict", f"{state.judged.verdict}: {state.judged.message}"))
    return found or [("session", "nothing is loaded")]


def _search(session: Session) -> Search | None:
    """The space that proposals would be points of; None where there is nothing to place."""
    from shardproof.agent.chat import planning

    state = session.state
    if state.subject != "model" or state.model is None or state.mesh.get("tp", 1) < 2:
        return None
    return planning.space(session)


def _task(session: Session) -> Task | None:
    from shardproof.agent.llm.proposing import Task, described
    from shardproof.synthesis.hardware import load

    searched = _search(session)
    if searched is None:
        return None
    tried = tuple((idea.name, idea.told) for idea in session.state.ideas)
    cluster = described(load(session.state.settings.hardware))
    assert searched.tp is not None
    modules = tuple(searched.modules)
    return Task(modules, searched.mesh, searched.tp, cluster, rejected=tried, most=MOST)


def _judged(session: Session, proposed: tuple[Proposed, ...]) -> tuple[Outcome | None, str]:
    """Price and prove every proposal, on the model and mesh as they are now; say what became of it.

    Gives no outcome where nothing was proposed, and what was said.
    """
    searched = _search(session) if proposed else None
    if searched is None:
        if proposed:
            session.run.warn("what the model proposed is left out: there is nothing to place")
        return None, "nothing was proposed that can be judged"
    ideas, new = list(session.state.ideas), len(session.state.ideas)
    last = Outcome(Exit.NOT_PROVED)
    for point in proposed:
        name = f"idea-{len(ideas) + 1}"
        with session.run.phase(f"judge {name}") as phase:
            verdict, told = _one(session, searched, point)
            phase.summary = told
        outcome = Outcome(Exit.PROVED, "proved") if verdict == "proved" else last
        ideas.append(
            Idea(
                name=name,
                tactic=point.tactic,
                stream=point.point.stream,
                styles={p: s for p, s in point.point.styles if s != "replicate"},
                reason=one_line(point.reason),
                verdict=verdict,
                told=told,
            )
        )
        session.run.emit(events.VerdictReached(verdict=verdict, message=f"{name}: {told}"))
        session.say(_told(ideas[-1], session))
        last = outcome
    session.change(ideas=ideas)
    return last, "\n".join(_told(idea, session) for idea in ideas[new:])


def _one(session: Session, searched: Search, proposed: Proposed) -> tuple[events.VerdictWord, str]:
    """What became of one proposal: (verdict, one line)."""
    from shardproof.synthesis.planner.scoring import Candidate
    from shardproof.synthesis.repair.diagnosis import verify
    from shardproof.verifier.kernel.inline import inline
    from shardproof.verifier.kernel.program.program import live
    from shardproof.verifier.problem import Problem
    from shardproof.verifier.verdict import Proof

    found = searched.score(proposed.point, proposed.tactic)
    if not isinstance(found, Candidate):
        return "unknown", f"cannot be planned: {one_line(found.reason)}"
    captured = session.workspace.captured()
    one = live(inline(captured.program))
    lowered = found.lowered
    verdict = verify(Problem(one, lowered.program, lowered.contract, consts=captured.consts))
    word = verdicts.word(verdict)
    if not isinstance(verdict, Proof):
        return word, f"{word}: {one_line(verdicts.message(verdict))}"
    price = f"step {found.price.seconds * 1e3:.3f} ms"
    planned = session.state.planned
    if planned is not None and planned.of == session.workspace.planned_of():
        share = found.estimate.step_s / session.workspace.made().found.best.estimate.step_s
        price += f", {share:.2f} times what the ops of the plan cost"
    return "proved", f"proved, {price}"


def _told(idea: Idea, session: Session) -> str:
    styles = ", ".join(f"{path} {style}" for path, style in idea.styles.items()) or "all whole"
    lines = [f"{idea.name} ({idea.tactic}): {styles}", f"  {idea.told}"]
    if idea.verdict == "proved":
        pins = "  ".join(f"/pin {path} {style}" for path, style in idea.styles.items())
        lines.append(f"  /plan starts from it too; to insist: {pins}")
    return "\n".join(lines)
