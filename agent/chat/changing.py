"""The plan, or a repaired program, as a change of the owner's files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agent import events
from agent.errors import Exit, InputError
from agent.run import Outcome

if TYPE_CHECKING:
    from agent.chat.engine import Session
    from agent.pipeline import Job


def show(session: Session) -> Outcome:
    """Emit the diff, with what it rests on."""
    found = _program_diff(session) if session.state.subject == "programs" else _plan_diff(session)
    session.run.emit(events.PatchShown(diff=found, standing=standing(session)))
    return Outcome(Exit.PROVED)


def standing(session: Session) -> str:
    """What the change rests on, in one line."""
    judged, planned = session.state.judged, session.state.planned
    if session.state.subject == "programs":
        return "proved: the repaired program, under the contract"
    if judged is None or planned is None or judged.of != planned.of:
        return "not judged yet: /verify"
    if judged.verdict == "proved":
        return f"proved: {judged.message.split('; ')[0]}"
    return f"{judged.verdict}: {judged.message.splitlines()[0]}; it cannot be applied"


def _plan_diff(session: Session) -> str:
    session.desk.model()
    return session.desk.patch().diff


def _program_diff(session: Session) -> str:
    from synthesis.emit.patch import unified

    programs = session.state.programs
    if not programs.repaired or programs.distributed is None:
        raise InputError("there is nothing to change", where="/diff", hint="/repair first")
    source = programs.distributed
    old, new = session.artifacts.text(source.sha256), session.artifacts.text(programs.repaired)
    return unified(source.path, old, new)


def report(session: Session, out: Path | None) -> Outcome:
    """Write the out-directory of the plan, with everything that `parallelize` writes."""
    session.desk.model()
    place = out if out is not None else session.journal.folder / "report"
    outcome = _written(session, place, force=out is None)
    session.say(f"{outcome.verdict}: {session.shown(place / 'report.html')}")
    return Outcome(outcome.exit, outcome.verdict)


def _written(session: Session, place: Path, *, force: bool) -> Outcome:
    from agent import outdir, pipeline

    outdir.check_free(place, force=force)
    job = _job(session, place, force)
    made = session.desk.made()
    verdict = session.desk.verdict()
    return pipeline.finish(
        session.run, job, session.desk.captured(), session.desk.facts(), made, verdict
    )


def _job(session: Session, out: Path, force: bool) -> Job:
    from agent import pipeline
    from agent.chat import planning
    from synthesis import hardware

    model, settings = session.desk.model(), session.state.settings
    mesh = planning.mesh(session)
    words = ["parallelize", model.target, "--mesh", ",".join(f"{n}={s}" for n, s in mesh.dims)]
    for name, values in (("--config", model.config), ("--input", model.inputs)):
        for value in values:
            words += [name, value]
    words += ["--batch", str(model.batch)] if model.batch else []
    words += ["--seq", str(model.seq)] if model.seq else []
    words += ["--full-depth"] if model.full_depth else []
    words += ["--hardware", settings.hardware, "--out", str(out)]
    return pipeline.Job(
        mesh=mesh,
        request=session.desk.request(),
        cluster=hardware.load(settings.hardware),
        out=out,
        execute={"auto": None, "always": True, "never": False}[settings.run],
        force=force,
        arguments=tuple(words),
    )
