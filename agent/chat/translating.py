"""`/translate`: code that capture refuses, written down by a model and held to the code.

Only a `Bound` becomes the model of a session. Anything else is shown, and the session stays about
what it was about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardproof.agent.chat.state import Model, Refused, Source, Translated
from shardproof.agent.llm.answers import NoModel
from shardproof.agent.run.errors import InputError
from shardproof.agent.run.run import Outcome

if TYPE_CHECKING:
    from shardproof.agent.chat.engine import Session
    from shardproof.agent.translation.trust import Bound
    from shardproof.synthesis.frontends.torch.captured import ModelFacts
    from shardproof.synthesis.frontends.torch.errors import CaptureError

LONGEST_SHOWN = 60
"""Lines of a program that are shown."""
FROM_FILE = "/translate --reply FILE takes a reply from a file"


def offer(session: Session, refused: Refused, error: CaptureError) -> Outcome:
    """Say why capture refuses a target, and how it can be translated. Nothing is sent."""
    from shardproof.agent.chat.wording import in_session
    from shardproof.agent.run.run import failed

    outcome = failed(session.run, in_session(error), [])
    session.change(refused=refused)
    session.workspace.forget("observed")
    model = session.asker.model()
    asks = (
        f"no language model is asked; {FROM_FILE}"
        if isinstance(model, NoModel)
        else f"/translate asks the model; {FROM_FILE}"
    )
    session.say(
        "code that capture cannot take can be translated; the translation is compared with it\n"
        f"next: /prompt /translate shows what would be sent; {asks}"
    )
    return outcome


def translate(session: Session, refused: Refused, reply: str, whole: bool) -> Outcome:
    """Translate a target; plan from it where the translation is bound to the code.

    Raises:
        InputError, CaptureError: a target or a file that cannot be used.
    """
    from shardproof.agent.chat.commands.subject import read
    from shardproof.agent.chat.workspace import key
    from shardproof.agent.translation.command import ended, sat, trial_of, tried
    from shardproof.agent.translation.rounds import GivenUp, Replies
    from shardproof.agent.translation.trust import Bound, DisplayOnly
    from shardproof.verifier.text.parser import to_text

    files = [read(session, path) for path in refused.reads()]
    given = [session.artifacts.text(read(session, reply).sha256)] if reply else []
    request = refused.request()
    of = key(refused.model_dump(), [file.sha256 for file in files])
    observed = tried(session.run, request, lambda r, n: session.workspace.observed(of, r, n))
    if observed.problem is None:
        return session.say(f"capture takes it as it is; next: /load {refused.target}")
    trial = trial_of(request, observed, whole)
    report = sat(session.run, trial, Replies(given) if given else session.asker)
    end = report.end
    if isinstance(end, GivenUp) and isinstance(end.unanswered, NoModel) and not report.asked:
        raise InputError(
            "nobody translates it"
            if not given
            else "the reply is not a program with the inputs and outputs that are asked for",
            where=refused.target,
            got=str(end.unanswered) if not given else reply,
            hint=f"/prompt /translate shows what would be sent; {FROM_FILE}"
            if not given
            else "/prompt /translate lists them; --input x=f32[4,8] says what is not known",
        )
    lines = ended(session.run, report)
    if isinstance(end, Bound) and observed.captured is not None:
        _adopt(session, refused, files, end, observed.captured.facts)
        lines.append("next: /plan" if session.state.mesh else "next: /mesh dp=2, then /plan")
    elif isinstance(end, GivenUp) and given and end.differences:
        lines = ["not bound to the code", *end.differences[-1].lines()]
    elif isinstance(end, DisplayOnly):
        lines.append("nothing is planned from it: the session stays as it was")
    if isinstance(end, Bound | DisplayOnly):
        lines = [*_cut(to_text(end.forward)), *lines]
    session.say("\n".join(lines))
    return Outcome(report.exit)


def _cut(text: str) -> list[str]:
    lines = text.rstrip("\n").split("\n")
    more = len(lines) - LONGEST_SHOWN
    return [*lines[:LONGEST_SHOWN], *([f"  and {more} more lines"] if more > 0 else [])]


def _adopt(
    session: Session, refused: Refused, files: list[Source], bound: Bound, facts: ModelFacts
) -> None:
    """The session is about the bound translation from now on."""
    from shardproof.agent.chat.workspace import packed
    from shardproof.synthesis.frontends.torch.captured import Captured

    captured = Captured(bound.program, dict(bound.consts), facts)
    session.about(
        Model(
            **refused.model_dump(),
            captured=session.workspace.keep(packed(captured)),
            facts="",
            files=tuple(files),
            translated=Translated(assumptions=list(bound.assumptions)),
        )
    )
