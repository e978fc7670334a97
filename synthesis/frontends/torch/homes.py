"""Where the owner's code lies: the name that a file is imported by, the folders that its imports
are looked up in, and which files are the owner's at all."""

import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from shardproof.installed import IMPORTED_FROM, OURS

_STDLIB = sysconfig.get_path("stdlib")
_PACKAGES = (f"site-packages{os.sep}", f"dist-packages{os.sep}")


@dataclass(frozen=True)
class Home:
    """A Python file as a module."""

    file: Path
    base: Path
    """The folder that it is imported from: the one that holds its topmost package, else its own."""
    name: str
    """`package.module`, or the file's stem."""

    @property
    def packaged(self) -> bool:
        """Whether it is a member of a package."""
        return self.base != self.file.parent


@dataclass(frozen=True)
class Moved:
    """A copy of a folder, which stands in its place."""

    old: Path
    new: Path

    def __call__(self, path: Path) -> Path:
        """Where a path lies now."""
        return self.new / path.relative_to(self.old) if path.is_relative_to(self.old) else path


def home_of(file: Path | str) -> Home:
    """A file as a member of its package: the folders above it that hold an `__init__.py`, up to the
    first that does not."""
    path = Path(file).resolve()
    names = [] if path.name == "__init__.py" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        names.insert(0, folder.name)
        folder = folder.parent
    if not all(name.isidentifier() for name in names) or folder == path.parent:
        return Home(path, path.parent, path.stem)
    return Home(path, folder, ".".join(names))


def patched_from(file: Path | str) -> Path:
    """The folder that paths of a patch of a file are relative to: the working directory where the
    file is imported from a folder in it, else that folder."""
    base, here = home_of(file).base, Path.cwd().resolve()
    return here if base.is_relative_to(here) else base


def python_path() -> tuple[Path, ...]:
    """The folders of the owner's PYTHONPATH."""
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    folders = [Path(p).resolve() for p in given]
    return tuple(p for p in folders if p != Path(IMPORTED_FROM).resolve())


def ways(home: Home, moved: Moved | None = None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The folders in which imports of a file are looked up before those of Python, and after them:
    that which it is imported from, the working directory, those of PYTHONPATH; last its own folder,
    where it is a member of a package."""
    moved = moved or Moved(home.base, home.base)
    first = (home.base, moved(Path.cwd().resolve()), *map(moved, python_path()))
    last = (home.file.parent,) if home.packaged else ()
    return tuple(dict.fromkeys(map(str, first))), tuple(map(str, last))


def make_importable(home: Home | None = None, moved: Moved | None = None) -> None:
    """Have this process look imports of a file up in its `ways`; without one, those of a library
    in the working directory and the folders of PYTHONPATH too."""
    first, last = ways(home, moved) if home is not None else (further(), ())
    sys.path[:0] = [p for p in first if p not in sys.path]
    sys.path += [p for p in last if p not in sys.path]


def root_of(target: str) -> str:
    """The folder that the owner's file is imported from; '' for a class of a library."""
    file, colon, _ = target.rpartition(":")
    return str(home_of(file).base) if colon and file.endswith(".py") else ""


@cache
def further() -> tuple[str, ...]:
    """Where besides the owner's code is imported from in this process. What watches the
    environment, or files that are opened, asks this first: whose code reads them is known then."""
    _installed()
    return tuple(map(str, (Path.cwd().resolve(), *python_path())))


@cache
def is_users(file: str) -> bool:
    """Whether a file is the user's: neither of a package, of Python nor of this project."""
    if file.startswith("<") or any(p in file for p in _PACKAGES):
        return False
    return not any(Path(file).is_relative_to(p) for p in (*FOREIGN, *_installed()))


@cache
def _installed() -> tuple[Path, ...]:
    """What pip installed into folders of PYTHONPATH (`pip install --target`), by the records of
    its packages: what else lies there is the owner's."""
    return tuple(_recorded(python_path()))


def _recorded(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in folders:
        tops: dict[str, None] = {}
        for record in folder.glob("*.dist-info/RECORD"):
            lines = record.read_text(encoding="utf-8", errors="replace").splitlines()
            tops.update(dict.fromkeys(re.split("[/,]", line, maxsplit=1)[0] for line in lines))
        # Scripts lie beside the folder.
        yield from (folder / top for top in tops if top not in ("", ".", ".."))


FOREIGN = (*OURS, _STDLIB)
"""Folders of which no file is the owner's."""


@cache
def own(root: str, file: str) -> bool:
    """Whether a file is the owner's: one below `root`, or imported as others of theirs are. Of
    a class of a library (`root` is empty) none is."""
    if not root or not file:
        return False
    below = any(file.startswith(f"{at.rstrip('/')}/") for at in (root, *further()))
    return below and is_users(file)


def loaded() -> Iterator[tuple[str, Any, str]]:
    """What this process has imported: name, module, file. A module that looks names up by itself,
    as one that is imported lazily, is asked for none."""
    for name, module in list(sys.modules.items()):
        yield name, module, getattr(module, "__dict__", {}).get("__file__") or ""


def imported(root: str) -> Sequence[str]:
    """The owner's Python files that this process has imported."""
    found = dict.fromkeys(file for _, _, file in loaded())
    return [f for f in found if f.endswith(".py") and own(root, f)]
