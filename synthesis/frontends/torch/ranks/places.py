"""The innermost line of the user's code that is being run."""

# pyright: basic

import linecache
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from shardproof.synthesis.frontends.torch.errors import shown
from shardproof.synthesis.frontends.torch.homes import further, own
from shardproof.synthesis.frontends.torch.provenance import Provenance

_OURS = str(Path(__file__).parents[1]) + os.sep
_MODULES = nn.modules.module.__file__
_PACKAGES = ("site-packages" + os.sep, "dist-packages" + os.sep)


@dataclass
class Places:
    """Frames of files below `root` are the user's; else those of a package other than torch."""

    root: str
    files: frozenset[str] = frozenset()
    """Files of packages whose frames are told of as the user's are."""
    home: Any = None
    """The frame that is told of where there is none: what made a schedule, say."""

    def frame(self, frame: Any) -> Any:
        """The innermost frame of the user's, going out from one; None where there is none."""
        library = None
        while frame is not None:
            kind = _kind(self.root, frame.f_code.co_filename)
            if kind == "ours" and frame.f_code.co_name in ("joint", "forward"):
                break
            if kind == "own" or frame.f_code.co_filename in self.files:
                return frame
            if kind == "package" and library is None:
                library = frame
            frame = frame.f_back
        return library

    def in_hook(self, frame: Any) -> bool:
        """Whether what runs in a frame is a hook of a library's, which a module calls beside its
        forward: the user's line does not write it."""
        called = ""
        while frame is not None and _kind(self.root, frame.f_code.co_filename) != "own":
            if frame.f_code.co_filename == _MODULES:
                return called not in ("forward", "_slow_forward")
            called, frame = frame.f_code.co_name, frame.f_back
        return False

    def line(self, frame: Any) -> str:
        """`file:line` of the innermost frame of the user's."""
        found = self.frame(frame)
        if found is None:
            return "a line that is not known"
        file = Provenance(self.root).shown(found.f_code.co_filename)
        return f"{file}:{found.f_lineno}"

    def calls(self, frame: Any) -> list[Any]:
        """The frame, and those of the user's that called it, outermost first."""
        out: list[Any] = []
        while frame is not None:
            kind = _kind(self.root, frame.f_code.co_filename)
            if kind == "ours" and frame.f_code.co_name in ("joint", "forward"):
                break
            if kind == "own" or frame.f_code.co_filename in self.files or not out:
                out.insert(0, frame)
            frame = getattr(frame, "f_back", None)
        return out

    def __post_init__(self) -> None:
        further()  # read of the environment before anything watches what is

    def own(self, file: str) -> bool:
        return own(self.root, file)

    def of(self, frame: Any) -> tuple[str, int, str]:
        """File as it is shown, line and text of a frame."""
        frame = frame or self.home
        if frame is None:
            return "", 0, ""
        file, line = frame.f_code.co_filename, frame.f_lineno
        text = linecache.getline(file, line).strip()
        if self.own(file):
            file = shown(file, self.root)
        return file, line, text


@cache
def _kind(root: str, file: str) -> str:
    """Whose a file is: `ours`, the user's `own`, a `package` other than torch, or nobody's."""
    if file.startswith(_OURS):
        return "ours"
    if file.startswith("<"):
        return ""
    if own(root, file):
        return "own"
    return "package" if _package(file) else ""


def _package(file: str) -> bool:
    inside = next((file.partition(p)[2] for p in _PACKAGES if p in file), "")
    return bool(inside) and not inside.startswith(("torch" + os.sep, "numpy" + os.sep))
