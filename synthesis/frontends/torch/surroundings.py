"""What the owner's code reads of the environment and the clock while a model is built and
called.

A run in which it reads something else is not covered: each read is an assumption. What libraries
read on their own account is not looked at.
"""

# pyright: basic

import datetime
import gc
import linecache
import os
import platform
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from shardproof.synthesis.frontends.torch.homes import loaded
from shardproof.synthesis.frontends.torch.process import DROPPED
from shardproof.synthesis.frontends.torch.ranks.places import Places

LAUNCHED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
"""Variables that a launcher sets, and that ranks are traced with."""
_HIDDEN = ("TOKEN", "KEY", "SECRET", "PASS")
_NOW = ("now", "utcnow", "today")
_TIME = re.compile(r"\b(time|times|datetime)\b")
_MAPPING = (os.__file__, "<frozen os>", "<frozen _collections_abc>")


_WATCHING: "list[Surroundings]" = []
COORDINATES: list[Callable[[Any], None]] = []
"""What is called with the frame in which the owner's code asks a mesh for its coordinates."""
_NUMBERS = (bool, int, float, complex, type(None))


def hashed(value: Any, frame: Any) -> None:
    """A hash is taken: of anything but numbers, each process has another."""
    if _differs(value):
        noted(frame, "a hash, which is another in each process")


_FILES = "a file"
_MACHINE = "which process or machine this is"
_USED = "what a process has used, which is another in each process"
_OUTSIDE: dict[Any, str] = {
    **dict.fromkeys((open, os.open, os.stat, os.listdir, os.scandir, os.walk, os.access), _FILES),
    **dict.fromkeys((os.path.exists, os.path.isfile, os.path.isdir, os.path.getsize), _FILES),
    **dict.fromkeys((os.path.getmtime, os.path.lexists, os.path.islink), _FILES),
    **dict.fromkeys((os.getpid, os.getppid, os.uname, os.cpu_count, os.getcwd), _MACHINE),
    **dict.fromkeys((socket.gethostname, platform.node, platform.machine), _MACHINE),
    **dict.fromkeys((threading.get_ident, threading.get_native_id), _MACHINE),
    id: "the address of an object, which is another in each process",
    **dict.fromkeys((gc.get_count, gc.get_stats), _USED),
    dist.get_backend: "the backend of a process group, which is gloo here",
}
"""Functions that tell what lies outside of the code, with what."""
_OF_PATHS = frozenset(
    ("exists", "is_file", "is_dir", "read_text", "read_bytes", "open", "stat", "iterdir", "glob")
)


def without_gradient(frame: Any) -> None:
    """A gradient is read of a parameter that has none."""
    noted(frame, "that a parameter has no gradient")


def asked_outside(function: Any, frame: Any) -> None:
    """A function is called that may tell what lies outside of the code."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, Path):
        if getattr(function, "__name__", "") in _OF_PATHS:
            noted(frame, _FILES)
    elif isinstance(owner, DeviceMesh):
        for asked in COORDINATES if function.__name__ == "get_coordinate" else ():
            asked(frame)
    elif owner is None or isinstance(owner, ModuleType):
        of_usage = getattr(function, "__module__", "") == "resource"
        what = _USED if of_usage else _OUTSIDE.get(function)
        if what:
            noted(frame, what)


def gone_through(value: Any, frame: Any) -> None:
    """Something is gone through: a set in the order of its hashes."""
    if isinstance(value, (set, frozenset)) and len(value) > 1 and any(map(_differs, value)):
        noted(frame, "the order of a set, which is another in each process")


def _differs(value: Any) -> bool:
    return any(map(_differs, value)) if type(value) is tuple else type(value) not in _NUMBERS


def noted(frame: Any, what: str) -> None:
    """A line of the owner's reads something."""
    for watching in _WATCHING[-1:]:
        if watching.places.own(frame.f_code.co_filename):
            watching._note(frame, what)


class Surroundings:
    """Writes down what the owner's files below a root read. `known` are variables of which the
    values are part of what is judged."""

    def __init__(self, places: Places, known: Sequence[str] = ()) -> None:
        self.places = places
        self.known = known
        self.read: dict[str, None] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """What is read meanwhile is written down."""
        environ: Any = type(os.environ)
        item, every = environ.__getitem__, environ.__iter__

        def variable(mine: Any, key: Any) -> Any:
            frame = self._reader(sys._getframe(1))
            try:
                found = item(mine, key)
            except KeyError:
                self._variable(frame, key, None)
                raise
            self._variable(frame, key, found)
            return found

        def variables(mine: Any) -> Any:
            frame = self._reader(sys._getframe(1))
            if frame is not None:
                self._note(frame, "all variables of the environment")
            return every(mine)

        _WATCHING.append(self)
        before = sys.getprofile()
        is_timed = any(_names_time(file) for file in self._files())
        with (
            patch.object(environ, "__getitem__", variable),
            patch.object(environ, "__iter__", variables),
        ):
            if is_timed:
                sys.setprofile(self._called)
            try:
                yield
            finally:
                _WATCHING.remove(self)
                if is_timed:
                    sys.setprofile(before)

    def _files(self) -> Iterator[str]:
        for _, _, file in loaded():
            if self.places.own(file):
                yield file
        if self.places.root:
            yield from map(str, Path(self.places.root).glob("*.py"))

    def _called(self, frame: Any, event: str, called: Any) -> None:
        if event == "c_call" and self.places.own(frame.f_code.co_filename) and _is_clock(called):
            self._note(frame, "the clock")

    def _reader(self, frame: Any) -> Any:
        """The frame that reads the environment, where it is the owner's."""
        while frame is not None and frame.f_code.co_filename in _MAPPING:
            frame = frame.f_back
        return frame if frame and self.places.own(frame.f_code.co_filename) else None

    def _variable(self, frame: Any, key: Any, found: Any) -> None:
        if frame is None or key in self.known:
            return
        name = str(key)
        if found is None and name in os.environ.get(DROPPED, "").split():
            was = f"which is not passed on (--env {name} does)"
        elif found is None:
            was = "which was not set here"
        elif any(part in name.upper() for part in _HIDDEN):
            was = "which was set here"
        else:
            was = f"which was {str(found)!r:.60} here"
        self._note(frame, f"the environment variable {name}, {was}")

    def _note(self, frame: Any, what: str) -> None:
        file, line, _ = self.places.of(frame)
        said = f"{file}:{line} reads {what}: a run that reads something else is not covered."
        self.read[said] = None


@cache
def _names_time(file: str) -> bool:
    return any(_TIME.search(line) for line in linecache.getlines(str(Path(file))))


def _is_clock(called: Any) -> bool:
    owner = getattr(called, "__self__", None)
    name = getattr(called, "__name__", "")
    if owner is time:
        return name not in ("sleep", "strptime", "mktime")
    if isinstance(owner, type) and issubclass(owner, datetime.date):
        return name in _NOW
    return called is os.times
