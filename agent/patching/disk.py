"""Files of the owner's tree: what may be touched, read whole, replaced in one step."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from shardproof.agent.run.errors import InputError


@dataclass(frozen=True, slots=True)
class Content:
    """A regular file: its bytes and its permission bits."""

    data: bytes
    mode: int


def resolved_root(root: Path) -> Path:
    """The folder that paths of a patch are relative to.

    Raises:
        InputError: not there, or no folder.
    """
    try:
        found = root.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise InputError(
            "the root cannot be used", where=f"--root {root}", got=str(error)
        ) from None
    if not found.is_dir():
        raise InputError("the root is not a folder", where=f"--root {root}")
    return found


def place(root: Path, name: str) -> Path:
    """Where a path of a patch lies under `root` (resolved).

    Raises:
        InputError: absolute, with `..`, in `.git`, or led out of the root by a symbolic link.
    """
    path = root.joinpath(*check_name(name))
    parent = path.parent
    while not os.path.lexists(parent):
        parent = parent.parent
    try:
        real = parent.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise InputError("a folder cannot be used", where=str(parent), got=str(error)) from None
    if not real.is_relative_to(root):
        raise InputError(
            "a symbolic link leads out of the root",
            where=str(parent),
            got=str(real),
            hint="apply with --root at the folder that it leads to",
        )
    if not real.is_dir():
        raise InputError("a folder of the path is a file", where=str(parent))
    return path


def check_name(name: str) -> tuple[str, ...]:
    """The parts of a path of a patch, whatever the tree.

    Raises:
        InputError: absolute, with `..`, or in `.git`.
    """
    parts = PurePosixPath(name).parts
    plain = name and name.isprintable() and "\\" not in name and "/".join(parts) == name
    if not plain or name.startswith("/") or ".." in parts:
        raise InputError(
            "a path of the patch leaves the root",
            where=ascii(name),
            expected="a plain path relative to the root",
        )
    if any(part.lower() == ".git" for part in parts):
        raise InputError("a path of the patch lies in .git", where=name)
    return parts


def look(path: Path) -> Content | None:
    """The file as it is now; None where there is none.

    Raises:
        InputError: a symbolic link, a folder, a device, or a file that cannot be read.
    """
    try:
        facts = path.lstat()
        if stat.S_ISLNK(facts.st_mode):
            raise InputError(
                "the file is a symbolic link",
                where=str(path),
                got=f"-> {path.readlink()}",
                hint="apply where the file itself lies",
            )
        if not stat.S_ISREG(facts.st_mode):
            raise InputError("not a regular file", where=str(path))
        return Content(path.read_bytes(), stat.S_IMODE(facts.st_mode))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(
            "the file cannot be read", where=str(path), got=error.strerror or ""
        ) from None


def check_writable(path: Path) -> None:
    """Raise InputError where a file is read-only, or its folder is."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        mode = 0o200
    if not mode & 0o222:
        raise InputError("the file is read-only", where=str(path), hint=f"chmod u+w {path}")
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError("the folder cannot be written to", where=str(folder))


def missing_folders(root: Path, path: Path) -> list[Path]:
    """Folders between root and path that do not exist yet, outermost first."""
    return [p for p in reversed(path.parents) if p.is_relative_to(root) and not p.exists()]


def stage(temp: Path, content: Content, like: Path) -> None:
    """Write `temp` beside its final place, safely on disk, owned as `like` is where that exists."""
    made = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(made, "wb") as file:
        file.write(content.data)
        file.flush()
        if like.exists():
            owner, now = like.stat(), os.fstat(made)
            if (owner.st_uid, owner.st_gid) != (now.st_uid, now.st_gid):
                os.fchown(made, owner.st_uid, owner.st_gid)
        os.fchmod(made, content.mode)
        os.fsync(made)
