"""What is kept of a tree outside of it: images of every file that was touched, and a journal.

`<state>/<key of the root>/` holds `lock`, `entries/<number>/` with `entry.json` and the files
before and after, and, while files are being replaced, `journal.json`. A journal that is found at
the start is of a run that was stopped: what it had replaced is put back.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from shardproof.agent.patching.disk import Content, look, place, stage
from shardproof.agent.patching.facts import Recovered
from shardproof.agent.run.errors import InputError
from shardproof.agent.run.files import sync, user_folder, write_whole

Doing = Literal["apply", "undo", "redo"]


class Image(BaseModel, frozen=True, extra="forbid"):
    """One file of an entry. The bytes lie beside, as `before.<at>` and `after.<at>`."""

    path: str
    before: str | None
    """SHA-256; None where there was no file."""
    after: str
    before_mode: int
    after_mode: int


class Record(BaseModel, frozen=True, extra="forbid"):
    """An entry as it is kept: a patch of the history of a tree."""

    format: Literal[1] = 1
    number: int
    state: Literal["pending", "applied", "undone", "dropped"]
    """`dropped`: undone, and another patch was applied since, so it cannot be redone."""
    at: str
    """When it was applied: ISO 8601, UTC."""
    patch: str
    """Path of the diff."""
    images: tuple[Image, ...]
    folders: tuple[str, ...]
    """Folders that the patch made, relative to the root, outermost first."""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(image.path for image in self.images)


class Journal(BaseModel, frozen=True, extra="forbid"):
    """What a run that replaces files is at."""

    format: Literal[1] = 1
    number: int
    state: Literal["pending", "applied", "undone"]
    doing: Doing
    temps: tuple[str, ...]


class Store:
    """The history of one tree. Use it under `locked`."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        self.root = root

    @property
    def entries(self) -> Path:
        return self.folder / "entries"

    def records(self) -> list[Record]:
        """Every entry, oldest first."""
        if not self.entries.is_dir():
            return []
        return [_record(p) for p in sorted(self.entries.glob("*/entry.json"))]

    def folder_of(self, number: int) -> Path:
        return self.entries / f"{number:06d}"

    def save(self, record: Record) -> None:
        text = record.model_dump_json(indent=1) + "\n"
        write_whole(self.folder_of(record.number) / "entry.json", text.encode())

    def add(self, record: Record, contents: Sequence[tuple[Content | None, Content]]) -> None:
        """Keep the images of a new entry; it counts once its `entry.json` is there."""
        folder = self.folder_of(record.number)
        folder.mkdir(parents=True)
        for at, (before, after) in enumerate(contents):
            if before is not None:
                write_whole(folder / f"before.{at}", before.data)
            write_whole(folder / f"after.{at}", after.data)
        self.save(record)

    def content(self, record: Record, at: int, side: Literal["before", "after"]) -> Content | None:
        """An image, checked against its hash."""
        image = record.images[at]
        digest = image.before if side == "before" else image.after
        if digest is None:
            return None
        path = self.folder_of(record.number) / f"{side}.{at}"
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(
                "an image cannot be read", where=str(path), got=str(error.strerror)
            ) from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise InputError("an image was changed; it is not used", where=str(path))
        return Content(data, image.before_mode if side == "before" else image.after_mode)

    def swap(self, record: Record, doing: Doing) -> None:
        """Replace every file of an entry by its other image, all or none, and say so in the entry.

        Raises:
            InputError: a file is not what the entry says; nothing was changed.
        """
        side = "before" if doing == "undo" else "after"
        names = record.paths
        olds = [_digest(self._at(i.path)) for i in record.images]
        expected = [i.after if doing == "undo" else i.before for i in record.images]
        self._check(names, olds, expected)
        temps = [self._temp(name, record.number) for name in names]
        journal = Journal.model_validate(
            {"number": record.number, "state": record.state, "doing": doing, "temps": temps}
        )
        write_whole(self.folder / "journal.json", journal.model_dump_json().encode())
        try:
            if doing != "undo":
                for made in record.folders:
                    (self.root / made).mkdir(exist_ok=True)
            for at, (name, temp) in enumerate(zip(names, temps, strict=True)):
                content = self.content(record, at, side)
                if content is not None:
                    self._stage(name, temp, content)
            for at, (name, temp) in enumerate(zip(names, temps, strict=True)):
                self._check([name], [_digest(self._at(name))], [expected[at]])
                if self.content(record, at, side) is None:
                    (self.root / name).unlink()
                else:
                    (self.root / temp).replace(self.root / name)
                sync((self.root / name).parent)
            if doing == "undo":
                self._remove_folders(record)
            state = "undone" if doing == "undo" else "applied"
            self.save(record.model_copy(update={"state": state}))
        except BaseException:
            self.recover()
            raise
        (self.folder / "journal.json").unlink()
        sync(self.folder)

    def recover(self) -> Recovered | None:
        """Put back what a run that was stopped had replaced; None where there was none."""
        path = self.folder / "journal.json"
        try:
            journal = Journal.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            self._clear()
            return None
        except ValueError as error:
            raise InputError("the journal is broken", where=str(path), got=str(error)) from None
        record, doing = _record(self.folder_of(journal.number) / "entry.json"), journal.doing
        side = "after" if doing == "undo" else "before"
        for temp in journal.temps:
            (self.root / temp).unlink(missing_ok=True)
        back: list[str] = []
        left: list[str] = []
        for at, image in enumerate(record.images):
            old, new = image.before, image.after
            if doing == "undo":
                old, new = image.after, image.before
            found = self._found(image.path)
            if found == new and old != new:
                if doing == "undo":
                    for made in record.folders:
                        (self.root / made).mkdir(exist_ok=True)
                self._restore(image.path, journal.temps[at], self.content(record, at, side))
                back.append(image.path)
            elif found != old:
                left.append(image.path)
        if doing != "undo":
            self._remove_folders(record)
        state = journal.state
        if state == "pending" and left:  # what these files were before is kept here alone
            state = "dropped"
        self.save(record.model_copy(update={"state": state}))
        path.unlink()
        sync(self.folder)
        self._clear()
        return Recovered(doing, tuple(back), tuple(left))

    def _clear(self) -> None:
        """Remove entries that a run began and did not come to apply."""
        for folder in self.entries.glob("*") if self.entries.is_dir() else ():
            whole = (folder / "entry.json").is_file()
            if not whole or _record(folder / "entry.json").state == "pending":
                shutil.rmtree(folder)

    def _restore(self, name: str, temp: str, content: Content | None) -> None:
        path = self.root / name
        if content is None:
            path.unlink()
        else:
            self._stage(name, temp, content)
            (self.root / temp).replace(path)
        sync(path.parent)

    def _stage(self, name: str, temp: str, content: Content) -> None:
        """Write the new file beside the old one, whose mode it gets."""
        now = self._at(name)
        kept = content if now is None else replace(content, mode=now.mode)
        stage(self.root / temp, kept, self.root / name)

    def _at(self, name: str) -> Content | None:
        return look(place(self.root, name))

    def _found(self, name: str) -> str | None:
        """Hash of a file; something else that lies there counts as another content."""
        try:
            return _digest(self._at(name))
        except InputError:
            return "something else"

    def _check(
        self, names: Sequence[str], found: Sequence[str | None], expected: Sequence[str | None]
    ) -> None:
        for name, is_now, was in zip(names, found, expected, strict=True):
            if is_now != was:
                raise InputError(
                    "the file changed since; nothing was written",
                    where=str(self.root / name),
                    expected=_short(was),
                    got=_short(is_now),
                    hint=f"as it was before and after it lies in {self.entries}",
                )

    def _temp(self, name: str, number: int) -> str:
        folder, _, file = name.rpartition("/")
        temp = f".{file[:100]}.shardproof-{number}-{os.getpid()}"
        return f"{folder}/{temp}" if folder else temp

    def _remove_folders(self, record: Record) -> None:
        for made in reversed(record.folders):
            with contextlib.suppress(OSError):
                (self.root / made).rmdir()


@contextlib.contextmanager
def locked(root: Path, state_dir: Path | None) -> Generator[tuple[Store, Recovered | None]]:
    """The store of a tree, alone on it; what was stopped in the middle is taken back first.

    Raises:
        InputError: another process is at it, or the state cannot be kept.
    """
    folder = (state_dir or default_state()) / key(root)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "root.txt").write_text(f"{root}\n", encoding="utf-8")
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, stat.S_IRUSR | stat.S_IWUSR)
    except OSError as error:
        raise InputError("state cannot be kept", where=str(folder), got=str(error)) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                "another shardproof is changing this tree", where=str(root), hint="wait for it"
            ) from None
        store = Store(folder, root)
        yield store, store.recover()
    finally:
        os.close(handle)


def default_state() -> Path:
    """`$XDG_STATE_HOME/shardproof/patches`, outside of every tree."""
    return user_folder("STATE") / "patches"


def key(root: Path) -> str:
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:16]


def _digest(content: Content | None) -> str | None:
    return None if content is None else hashlib.sha256(content.data).hexdigest()


def _short(digest: str | None) -> str:
    return "no file" if digest is None else f"SHA-256 {digest[:12]}"


def _record(path: Path) -> Record:
    try:
        return Record.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(
            "an entry of the history is broken", where=str(path), got=str(error)
        ) from None
