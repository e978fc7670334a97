"""The session itself: saved, resumed, forked, reported; help, settings, the end."""

import os
import re
import time
from pathlib import Path

from shardproof.agent.actions.runs import Doctor
from shardproof.agent.chat import changing, journal, registry
from shardproof.agent.chat.engine import Session
from shardproof.agent.chat.registry import Words, command
from shardproof.agent.chat.state import Settings
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.run import Outcome

GROUP = "the session"


@command(
    "[FILE | as TITLE]",
    group=GROUP,
    completes=("path",),
    examples=("/save", "/save as first try", "/save session.jsonl"),
    machine=True,
)
def save(session: Session, words: Words) -> Outcome:
    """Say where the session is kept; give it a title; or copy its transcript to a new file.

    Every step is on the disk when it ends: nothing needs to be saved. A transcript holds the files
    that were loaded and the words of the model, and `shardproof replay` runs it again.
    """
    given = list(words.words)
    if not given:
        return session.say(f"kept in {session.journal.folder} (session {session.id})")
    if given[0] == "as" and len(given) > 1:
        session.change(title=" ".join(given[1:])[:80])
        return session.say(f"titled {session.state.title!r}")
    target = session.root / given[0]
    data = session.journal.path.read_bytes()
    start = data.rfind(b'"event":"step.started"')
    whole = data[: data.rfind(b"\n", 0, start) + 1]  # without the step that saves
    try:
        file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise InputError(
            "the transcript cannot be written",
            where=given[0],
            got=error.strerror or "",
            hint="name a file that does not exist",
        ) from None
    with os.fdopen(file, "wb") as out:
        out.write(whole)
    return session.say(f"transcript in {given[0]}; shardproof replay {given[0]}")


@command("[ID]", group=GROUP, completes=("session",), examples=("/resume",), machine=True, most=1)
def resume(session: Session, words: Words) -> Outcome:
    """List the sessions that are kept, or go on with another one."""
    folder = session.journal.folder.parent
    if words.words:
        session.move_to = journal.place_of(folder, words.words[0])
        return session.say(f"going on with {session.move_to.name}")
    return session.say(sessions(journal.listed(folder), session.id))


def sessions(found: list[journal.Listed], here: str = "") -> str:
    """Sessions in lines, the newest first."""
    lines: list[str] = []
    for item in found[:20]:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(item.changed))
        lost = f"  lost: {item.lost.splitlines()[0][:40]}" if item.lost else ""
        mark = "  (this one)" if item.session == here else lost
        lines.append(f"{item.session}  {day}  {item.steps:3d} steps  {item.about}{mark}".rstrip())
    if len(found) > 20:
        lines.append(f"and {len(found) - 20} more in {journal.folder_of_all()}")
    return "\n".join(lines) or "no session is kept"


@command(group=GROUP, examples=("/fork",), machine=True)
def fork(session: Session, words: Words) -> Outcome:
    """Go on in a copy of this session; this one stays as it is."""
    session.move_to = session.journal.folder.parent / journal.new_id()
    return session.say(f"going on in a copy: {session.move_to.name}")


@command(
    "[DIRECTORY]",
    group=GROUP,
    effect="writes",
    completes=("path",),
    examples=("/report", "/report out/"),
    most=1,
)
def report(session: Session, words: Words) -> Outcome:
    """Write the out-directory of the plan: report, patch, programs, certificate, events.

    Without a directory the report stays in the folder of the session.
    """
    return changing.report(session, Path(words.words[0]) if words.words else None)


@command(group=GROUP, takes=(Doctor, ("probe",)), examples=("/doctor",), machine=True)
def doctor(session: Session, words: Words) -> Outcome:
    """Say what is installed here and what each missing part would give; --probe asks the model."""
    from shardproof.agent.cli import doctor as visit

    session.say(visit.table([*visit.parts(), visit.model(words.has("probe"))]))
    return Outcome(Exit.PROVED)


@command(
    "[NAME VALUE]",
    group=GROUP,
    effect="changes",
    completes=("setting", "value"),
    examples=("/settings", "/settings run never", "/settings hardware h200"),
)
def settings(session: Session, words: Words) -> Outcome:
    """Show the settings of this session and its constraints, or change one setting."""
    if words.words:
        session.change(settings=_set(session, words.words))
    state = session.state
    lines = [f"{name:<15} {value}" for name, value in state.settings.model_dump().items()]
    mesh = ",".join(f"{k}={v}" for k, v in state.mesh.items())
    lines.append(f"{'mesh':<15} {mesh or '-'}")
    lines += [f"{constraint.kind:<15} {constraint.words}" for constraint in state.constraints]
    return session.say("\n".join(lines))


def _set(session: Session, words: tuple[str, ...]) -> Settings:
    from pydantic import ValidationError

    now = session.state.settings.model_dump()
    name = words[0].replace("-", "_")
    if name not in now or name == "model" or len(words) != 2:
        known = ", ".join(n for n in now if n != "model")
        raise InputError(
            "no such setting, or no value",
            where="/settings",
            expected=f"one of {known}, and its value",
            got=" ".join(words),
        )
    if name == "hardware":
        from shardproof.synthesis import hardware

        hardware.load(words[1])
    try:
        return Settings.model_validate_strings(
            {**{k: str(v) for k, v in now.items()}, name: words[1]}
        )
    except ValidationError as error:
        said = error.errors()[0]["msg"]
        where = f"/settings {name}"
        raise InputError("no such value", where=where, expected=said, got=words[1]) from None


@command("[TEXT]", group=GROUP, free=True, examples=("/edit",), machine=True)
def edit(session: Session, words: Words) -> Outcome:
    """Write the next input in the editor that $VISUAL or $EDITOR names (also Ctrl-X Ctrl-E)."""
    raise InputError("an editor needs a terminal", where="/edit")


@command(
    "[COMMAND]",
    group=GROUP,
    effect="reads",
    completes=("command",),
    most=1,
    name="help",
    examples=("/help", "/help cex", "/help all"),
)
def help_(session: Session, words: Words) -> Outcome:
    """List the commands, or explain one of them; `/help all` has a line for each."""
    if words.words == ("all",):
        return session.say(every())
    if words.words:
        return session.say(explained(registry.find(words.words[0].removeprefix("/"))))
    return session.say(overview())


FIRST = ("load", "mesh", "plan", "pin", "why-not", "verify", "diff", "apply", "undo")
"""What a first session takes, in order."""


def overview() -> str:
    """The first commands, and the names of all, in less than 24 rows of 80 columns."""
    known = registry.registered()
    lines = ["to begin with", *(_line(known[name]) for name in FIRST), "", "all"]
    for group in registry.GROUPS:
        names = " ".join(f"/{c.name}" for c in known.values() if c.group == group)
        lines.append(f"  {group:<16} {names}")
    lines += ["", "words without a slash go to the model; /help COMMAND or /help all says more"]
    return "\n".join(lines)


def _line(found: registry.Command) -> str:
    first = found.summary.split(";")[0].split(". ")[0].rstrip(".")
    while len(first) > 64 and (shorter := re.sub(r"(?:[,:]| \()[^,:(]*$", "", first)) != first:
        first = shorter
    return f"  /{found.name:<11} {first}"


def every() -> str:
    """Every command in a line, by group."""
    lines: list[str] = []
    for group in registry.GROUPS:
        lines += [group, *(_line(c) for c in registry.registered().values() if c.group == group)]
    return "\n".join(lines)


def explained(found: registry.Command) -> str:
    """One command, with its options and examples."""
    lines = [registry.usage(found), found.summary, *([found.more] if found.more else [])]
    if found.options:
        shown = (f"--{n} VALUE" if takes else f"--{n}" for n, takes in found.options.items())
        lines.append("options: " + ", ".join(shown))
    return "\n".join([*lines, *(f"  {example}" for example in found.examples)])


@command(group=GROUP, name="quit", examples=("/quit",))
def quit_(session: Session, words: Words) -> Outcome:
    """End this process; the session is kept, and `shardproof resume` goes on with it."""
    session.leaving = True
    return Outcome(session.last.exit, session.last.verdict)
