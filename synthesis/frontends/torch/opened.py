"""Which files of the owner's are read while a model is imported, built and called: its modules,
also those that `forward` imports, and what it opens."""

# pyright: basic

import importlib.util
import linecache
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from shardproof.synthesis.frontends.torch.homes import further, own


class Opened:
    """The owner's files that this process, and those that are forked of it, read from now on:
    those below a folder, and code of theirs that is imported from elsewhere.

    A hook of Python's is told of every file that is opened (PEP 578). It cannot be taken off: a
    process has one of these.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.scratch = f"{Path(os.environ.get('HOME', os.devnull)).parent}{os.sep}"
        """Of the process itself: what it writes there is nobody's code."""
        further()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  (for as long as the process lives)
        os.set_inheritable(self.log.fileno(), True)
        sys.addaudithook(self._told)

    def _told(self, event: str, args: tuple[Any, ...]) -> None:
        if event != "open" or not isinstance(args[0], (str, bytes)):
            return
        writes = isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        path = os.path.abspath(os.fsdecode(args[0]))  # noqa: PTH100  (Path would open nothing else)
        if writes or path.startswith(self.scratch) or not own(self.root, path):
            return
        inside = path.startswith(f"{self.root}{os.sep}") or path.endswith((".py", ".pyc"))
        if inside and not _shown():
            os.lseek(self.log.fileno(), 0, os.SEEK_END)
            os.write(self.log.fileno(), path.encode() + b"\n")

    def files(self) -> list[str]:
        """The files, in the order in which they were read first; the source of a compiled one."""
        self.log.seek(0)
        out: dict[str, None] = {}
        for line in self.log.read().decode().splitlines():
            path = Path(line)
            if path.suffix == ".pyc" and path.parent.name == "__pycache__":
                path = Path(importlib.util.source_from_cache(line))
            if path.is_file():
                out[str(path)] = None
        return list(out)


def _shown() -> bool:
    """Whether a file is read for its lines to be shown, which is no reading of the owner's."""
    frame = sys._getframe(2)
    for _ in range(4):
        if frame is None or frame.f_code.co_filename == linecache.__file__:
            break
        frame = frame.f_back
    else:
        return False
    return frame is not None
