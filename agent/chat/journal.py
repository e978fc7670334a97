"""A session on disk: one line of JSON an event, appended, and on the disk when a step ends.

    $XDG_STATE_HOME/shardproof/sessions/ID/journal.jsonl    the event stream
                                          /artifacts/       captured models, programs, patches
                                          /changes/         what /apply wrote, for /undo

Folders are 0700 and files 0600. A line that was torn by a crash is cut off when a session goes on;
a step without its `step.completed` is lost, and said to be.
"""

import fcntl
import hashlib
import os
import re
import secrets
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from shardproof.agent.chat.state import Spent, State
from shardproof.agent.run import events
from shardproof.agent.run.errors import InputError
from shardproof.agent.run.files import sync, user_folder

JOURNAL = "journal.jsonl"
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")


def folder_of_all() -> Path:
    """Where sessions of this user lie."""
    return user_folder("STATE") / "sessions"


def new_id() -> str:
    """`20261121-093105-1f2e`: sorts by time."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


@dataclass
class Past:
    """A journal as it was read."""

    seen: list[events.Event]
    whole: int
    """Bytes up to the end of the last whole line."""
    state: State = field(default_factory=State)
    spent: Spent = field(default_factory=Spent)
    steps: int = 0
    """The number of the last step that was begun."""
    done: int = 0
    """Steps that ended."""
    session: str = ""
    root: str = ""
    lost: str = ""
    """The input of a step that never ended."""


def read(path: Path) -> Past:
    """Read a journal and fold it.

    Raises:
        InputError: no journal, or a line of it that is none; a torn last line is left out.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            "a session cannot be read", where=str(path), got=error.strerror or ""
        ) from None
    lines = data.split(b"\n")
    past = Past([], len(data) - len(lines[-1]))
    for number, line in enumerate(lines[:-1], 1):
        try:
            event = events.parse(line.decode("utf-8"))
            _fold(past, event)
        except (ValidationError, UnicodeDecodeError):
            raise InputError(
                "not an event of a session",
                where=f"{path}:{number}",
                hint="the file was changed, or another version of shardproof wrote it",
            ) from None
        past.seen.append(event)
    if not past.session:
        raise InputError("no session in this file", where=str(path))
    return past


def _fold(past: Past, event: events.Event) -> None:
    match event:
        case events.SessionOpened():
            past.session, past.root, past.lost = event.session, event.root, ""
        case events.StepStarted():
            past.steps, past.lost = event.step, event.input
        case events.StepCompleted():
            past.state = past.state.after(event.changes)
            past.done += 1
            past.lost = ""
        case events.ModelAnswered():
            past.spent = past.spent.plus(event)
        case _:
            pass


class Journal(events.Sink):
    """The sink that keeps events; held by one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: int | None = None

    @property
    def path(self) -> Path:
        return self.folder / JOURNAL

    def open(self, whole: int | None = None) -> None:
        """Take the session; what follows `whole` bytes is cut off.

        Raises:
            InputError: another process holds it, or it cannot be written.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise InputError(
                "a session cannot be kept",
                where=str(self.folder),
                got=error.strerror or "",
                hint="set XDG_STATE_HOME to a folder that you can write",
            ) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            raise InputError(
                "the session is open in another process",
                where=str(self.folder),
                hint="close it there, or take a copy: /fork",
            ) from None
        os.fchmod(file, 0o600)
        if whole is not None:
            os.ftruncate(file, whole)
        self._file = file
        sync(self.folder)

    def show(self, event: events.Event) -> None:
        if self._file is None:
            return
        data = (event.model_dump_json() + "\n").encode()
        try:
            while data:
                data = data[os.write(self._file, data) :]
            if isinstance(event, events.StepStarted | events.StepCompleted | events.SessionOpened):
                os.fsync(self._file)
        except OSError as error:
            os.close(self._file)
            self._file = None
            raise InputError(
                "the session cannot be kept any longer",
                where=str(self.path),
                got=error.strerror or "",
                hint="make room; shardproof resume continues with the last whole step",
            ) from None

    def close(self) -> None:
        if self._file is not None:
            os.fsync(self._file)
            os.close(self._file)
            self._file = None


class Artifacts:
    """Texts by their hash, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, text: str) -> str:
        """Store a text, on the disk before this returns; gives its SHA-256."""
        data = text.encode()
        name = hashlib.sha256(data).hexdigest()
        place = self.folder / name
        if not place.exists():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            staged = self.folder / f".{name}.{os.getpid()}"
            file = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(file, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            staged.replace(place)
            sync(self.folder)
        return name

    def text(self, name: str) -> str:
        """The text of that hash.

        Raises:
            InputError: it is gone, or it was changed.
        """
        path = self.folder / name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(
                "a part of the session is gone", where=str(path), got=error.strerror or ""
            ) from None
        if hashlib.sha256(data).hexdigest() != name:
            raise InputError("a part of the session was changed", where=str(path))
        return data.decode()


@dataclass(frozen=True)
class Listed:
    """A session in a list."""

    session: str
    root: str
    steps: int
    about: str
    lost: str
    changed: float
    """Seconds since the epoch."""


def listed(folder: Path) -> list[Listed]:
    """Sessions under a folder, the newest first; those that cannot be read are named as such."""
    found: list[Listed] = []
    for path in folder.glob(f"*/{JOURNAL}"):
        changed = path.stat().st_mtime
        try:
            past = read(path)
        except InputError as error:
            found.append(Listed(path.parent.name, "", 0, f"cannot be read: {error}", "", changed))
            continue
        about = past.state.title or (past.state.model.target if past.state.model else "")
        programs = past.state.programs.distributed
        about = about or (programs.path if programs else "")
        found.append(Listed(past.session, past.root, past.done, about, past.lost, changed))
    return sorted(found, key=lambda s: s.changed, reverse=True)


def place_of(folder: Path, session: str) -> Path:
    """The folder of the session that is named so, or whose name begins so.

    Raises:
        InputError: none, or several.
    """
    near = [s.session for s in listed(folder)]
    fits = [s for s in near if s == session] or [s for s in near if s.startswith(session)]
    if not _ID.fullmatch(session) or len(fits) != 1:
        raise InputError(
            "no such session" if not fits else "several sessions begin so",
            got=session,
            expected=", ".join((fits or near)[:5]) or "none is kept",
            hint="shardproof resume --list",
        )
    return folder / fits[0]


def copy(source: Path, target: Path) -> None:
    """Copy a session's folder, whole lines of its journal only."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(JOURNAL))
    target.chmod(0o700)
    data = (source / JOURNAL).read_bytes()
    file = os.open(target / JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "wb") as out:
        out.write(data[: data.rfind(b"\n") + 1])
        out.flush()
        os.fsync(out.fileno())
