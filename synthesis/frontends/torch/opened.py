"""Which files the owner's code opens to read while a model is built and called."""

import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

_WATCHES: list[tuple[str, dict[str, None]]] = []
_HOOKED: list[bool] = []


@contextmanager
def watched() -> Generator[dict[str, None]]:
    """Collects the files that are opened to be read inside, where code of a file that is no
    library's is on the stack.

    Opens of C++ code raise no audit event and are not seen.
    """
    if not _HOOKED:
        sys.addaudithook(_heard)
        _HOOKED.append(True)
    found: dict[str, None] = {}
    watch = (str(Path.cwd()), found)
    _WATCHES.append(watch)
    try:
        yield found
    finally:
        _WATCHES.remove(watch)


def below(root: str, opened: Iterator[str] | dict[str, None]) -> list[str]:
    """Those of the files that lie under a folder; none of a library, none that Python compiled."""
    if not root:
        return []
    top = Path(root).resolve()
    out: list[str] = []
    for name in opened:
        path = Path(name).resolve()
        apart = {"site-packages", "__pycache__", ".git"}.intersection(path.parts)
        if path.is_relative_to(top) and not apart and path.is_file():
            out.append(str(path))
    return list(dict.fromkeys(out))


def _heard(event: str, args: tuple[Any, ...]) -> None:
    if event != "open" or not _WATCHES:
        return
    name, _, flags = args
    if not isinstance(name, (str, bytes)) or not isinstance(flags, int):
        return
    if flags & (os.O_WRONLY | os.O_RDWR) or not _owned(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage]
        return
    for folder, found in _WATCHES:
        found[str(Path(folder) / os.fsdecode(name))] = None


def _owned(frame: FrameType | None) -> bool:
    """Whether code of a file outside of all libraries and of this project is running."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(("<", *_LIBRARIES)):
            return True
        frame = frame.f_back
    return False


_LIBRARIES = tuple(
    {
        str(Path(os.__file__).resolve().parent) + os.sep,
        str(Path(os.__file__).parent) + os.sep,
        *(p.rstrip("/") + os.sep for p in sys.path if p.rstrip("/").endswith("-packages")),
        *(f"{Path(__file__).resolve().parents[3] / name}/" for name in ("agent", "synthesis")),
    }
)
