"""The plan, or a repaired program, as a change of the owner's files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from shardproof.agent import patching
from shardproof.agent.chat.workspace import key
from shardproof.agent.patching import tree
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.run import Outcome
from shardproof.agent.verdict.verdicts import word

if TYPE_CHECKING:
    from shardproof.agent.chat.engine import Session
    from shardproof.agent.pipeline.pipeline import Job


def apply(session: Session, *, yes: bool, unsafe: bool) -> Outcome:
    """Prove, try and show the change, ask, and write it: every file of it, or none.

    Raises:
        InputError: it is not proved, or not for these files; nothing was written.
    """
    if session.state.subject == "programs":
        place, root = _program_directory(session)
        stands = standing(session)
    else:
        place, root, stands = _plan_directory(session)
    stopped = patching.recover(root, session.state_dir)  # before it is read what files hold
    if stopped is not None:
        session.run.warn(str(stopped))
    with session.run.phase("preview") as phase:
        seen = patching.preview(place, root)
        phase.summary = ", ".join(f"{f.path} +{f.added} -{f.removed}" for f in seen.files)
    tree.check_ready(seen, unsafe=unsafe)
    session.run.emit(events.PatchShown(diff=seen.diff, standing=stands))
    if not session.agreed(f"write {', '.join(f.path for f in seen.files)} in {root}?", yes):
        session.say("not applied")
        return Outcome(Exit.NOT_PROVED)
    done = patching.apply_patch(place, root, session.state_dir, unsafe=unsafe)
    return _done(session, done, "applied; /undo reverts it")


def again(session: Session, doing: Literal["undo", "redo"]) -> Outcome:
    """Take the last change back, or apply it again."""
    root = _root(session)
    done = getattr(patching, doing)(root, session.state_dir)
    hint = "undone; /redo applies it again" if doing == "undo" else "applied; /undo reverts it"
    return _done(session, done, hint)


def _done(session: Session, done: patching.Applied, text: str) -> Outcome:
    from shardproof.agent.patching.command import tell

    tell(session.run, done)
    session.say(f"{', '.join(done.files)}: {text}{_read_again(session, done)}")
    return Outcome(Exit.PROVED, "proved" if done.doing != "undo" else "unknown")


def _read_again(session: Session, done: patching.Applied) -> str:
    """Take the program of the ranks as its file is now: /verify is about that. What to do next."""
    programs = session.state.programs
    source = programs.distributed
    if session.state.subject != "programs" or source is None:
        return ""
    place = (session.root / source.path).resolve()
    if place not in [(done.root / name).resolve() for name in done.files] or not place.is_file():
        return ""
    kept = session.artifacts.keep(place.read_bytes().decode("utf-8"))
    if kept == source.sha256:
        return ""
    now = source.model_copy(update={"sha256": kept})
    session.change(
        programs=programs.model_copy(update={"distributed": now, "repaired": ""}), judged=None, at=0
    )
    return "\nnext: /verify, which is about the file as it is now"


def _root(session: Session) -> Path:
    """The folder that the paths of the change are relative to."""
    state = session.state
    path = ""
    if state.subject == "programs" and state.programs.distributed is not None:
        path = state.programs.distributed.path
    elif state.model is not None and state.model.files:
        path = state.model.files[0].path
    return Path(path).parent if Path(path).is_absolute() else session.root


def _plan_directory(session: Session) -> tuple[Path, Path, str]:
    """An out-directory of the plan, proved, checked and tried on local processes, the root of its
    paths, and what it rests on."""
    from shardproof.agent.run import outdir
    from shardproof.agent.verdict import reverify as recheck

    session.workspace.patch()
    planned, settings = session.state.planned, session.state.settings
    assert planned is not None
    place = session.journal.folder / "changes" / key(planned.of, settings.run)[:16]
    if place.is_dir() and not outdir.changed(place):
        outcome, _ = recheck.examined(session.run, place)
        if outcome.exit is Exit.PROVED:
            return place, _root(session), f"proved before; now {_reached(session)}"
    place.parent.mkdir(mode=0o700, exist_ok=True)
    outcome = _written(session, place, force=True)
    if outcome.verdict != "proved":
        raise InputError("the plan is not proved", where="/apply", got=outcome.verdict)
    return place, _root(session), _reached(session)


def _reached(session: Session) -> str:
    """The last verdict of this step in one line, with what was done with the patch."""
    found = session.reached()
    patch = f"; patch: {found.patch}" if found.patch else ""
    return f"{found.verdict}: {found.scope[0]}{patch}"


def _program_directory(session: Session) -> tuple[Path, Path]:
    """The repaired program as a patch of its file: proved once more as it is written."""
    from shardproof.agent.patching.record import describe
    from shardproof.agent.run import outdir
    from shardproof.synthesis.emit.patch import patch
    from shardproof.synthesis.repair.diagnosis import verify
    from shardproof.verifier.checker import Accepted, check
    from shardproof.verifier.problem import Problem
    from shardproof.verifier.text.contract import compose
    from shardproof.verifier.text.parser import parse_text
    from shardproof.verifier.verdict import Proof

    pair, programs = session.workspace.pair(), session.state.programs
    source = programs.distributed
    if not programs.repaired or source is None or pair.stated is None:
        raise InputError("there is nothing to apply", where="/apply", hint="/repair first")
    keep = session.artifacts
    old, new = keep.text(source.sha256), keep.text(programs.repaired)
    problem = Problem(pair.sequential, *compose(parse_text(new, source.path), pair.stated))
    with session.run.phase("verify") as phase:
        verdict = verify(problem)
        phase.summary = word(verdict)
    if not isinstance(verdict, Proof):
        raise InputError("the repaired program is not proved", where="/apply", got=word(verdict))
    with session.run.phase("check") as phase:
        checked = check(verdict.certificate, problem)
        if not isinstance(checked, Accepted):
            raise InputError("the checker rejects the certificate", got=checked.reason)
        phase.summary = str(checked)
    root = _root(session)
    shown = Path(source.path).name if Path(source.path).is_absolute() else source.path
    made = patch({shown: (old, new)}, (), "")
    place = session.journal.folder / "changes" / key(source.sha256, programs.repaired)[:16]
    place.parent.mkdir(mode=0o700, exist_ok=True)
    with outdir.staged(place, force=True) as out:
        out.write("patch.diff", made.diff)
        out.seal({"verdict": "proved", "patch": describe(made.files, {}, True)})
    return place, root


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
        where = judged.message.split("; ")[0]
        read = f"proved: {where}; patch: {judged.patch}"
        return read if judged.patch else f"the plan is proved: {where}; /apply reads its patch"
    return f"{judged.verdict}: {judged.message.splitlines()[0]}; it cannot be applied"


def _plan_diff(session: Session) -> str:
    session.workspace.model()
    return session.workspace.patch().diff


def _program_diff(session: Session) -> str:
    from shardproof.synthesis.emit.patch import unified

    programs = session.state.programs
    if not programs.repaired or programs.distributed is None:
        raise InputError("there is nothing to change", where="/diff", hint="/repair first")
    source = programs.distributed
    old, new = session.artifacts.text(source.sha256), session.artifacts.text(programs.repaired)
    return unified(source.path, old, new)


def report(session: Session, out: Path | None) -> Outcome:
    """Write the out-directory of the plan, with everything that `parallelize` writes."""
    session.workspace.model()
    place = out if out is not None else session.journal.folder / "report"
    outcome = _written(session, place, force=out is None)
    session.say(f"{outcome.verdict}: {session.shown(place / 'report.html')}")
    return Outcome(outcome.exit, outcome.verdict)


def _written(session: Session, place: Path, *, force: bool) -> Outcome:
    from shardproof.agent.pipeline.finishing import finish
    from shardproof.agent.pipeline.pipeline import priced_as
    from shardproof.agent.run import outdir

    outdir.check_free(place, force=force)
    job = _job(session, place, force)
    made = session.workspace.made()
    job = priced_as(session.run, job, session.workspace.captured(), made)
    verdict = replace(session.workspace.verdict(), relations=())
    if session.workspace.facts() is None:
        session.run.warn("no patch: the plan is one of a translation, whose source is not edited")
    planned, facts = session.state.planned, session.workspace.facts()
    assert planned is not None
    outcome = finish(
        session.run,
        job,
        session.workspace.captured(),
        facts,
        made,
        verdict,
        spent=session.asker.spent,
    )
    session.judged(planned.of)
    return outcome


def _job(session: Session, out: Path, force: bool) -> Job:
    from shardproof.agent.chat import planning
    from shardproof.agent.pipeline.pipeline import job_of

    planning.mesh(session)
    return job_of(session.workspace.asked(force=force), out)
