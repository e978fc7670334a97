"""Stands in for packages that a file imports and this machine does not have.

A stand-in can be imported, named, subclassed and used as a decorator, so that the rest of the file
can be looked at. Once the file is imported nothing in it can be called: the code that would run is
not here.
"""

# pyright: basic
# (Modules and classes are made on the fly.)

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardproof.synthesis.frontends.torch.errors import CaptureError

MOST = 8
"""Packages of one file that may be missing."""


@dataclass(frozen=True)
class Missing:
    """A package that is not installed, and the line that imports it."""

    package: str
    line: int
    text: str


class _Importing:
    """Whether the user's file is being imported: only then may a stand-in be called."""

    now = False


class _Absent(type):
    """A class for every name of a missing package."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _absent(f"{cls.__qualname__}.{name}")

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if _Importing.now:
            return _absent(cls.__qualname__)
        name = next((c.__qualname__ for c in cls.__mro__ if c.__dict__.get("_absent")), "")
        package = name.partition(".")[0]
        raise CaptureError(
            f"{name} is called, but {package} is not installed",
            hint=f"install {package}, or let the file use its own code where it is missing",
        )

    def __getitem__(cls, key: Any) -> Any:
        return cls


def _absent(name: str) -> Any:
    return _Absent(name.rpartition(".")[2], (), {"_absent": True, "__qualname__": name})


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _absent(f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, packages: set[str]) -> None:
        self.packages = packages

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname.partition(".")[0] not in self.packages:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        return _Module(spec.name)

    def exec_module(self, module: Any) -> None:
        module.__path__ = []


@contextmanager
def stand_ins(packages: set[str]) -> Iterator[None]:
    """Let these packages be imported while the user's file is."""
    finder = _Finder(packages)
    sys.meta_path.append(finder)
    _Importing.now = True
    try:
        yield
    finally:
        _Importing.now = False
        sys.meta_path.remove(finder)


def missing_package(problem: ModuleNotFoundError, file: Path) -> Missing | None:
    """The package whose import in `file`, or in a file beside it, failed; None for others."""
    if not problem.name:
        return None
    trace, line, text = problem.__traceback__, 0, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    if line:
        text = file.read_text(encoding="utf-8", errors="replace").split("\n")[line - 1].strip()
    package = problem.name.partition(".")[0]
    if (file.parent / package).exists() or (file.parent / f"{package}.py").exists():
        return None
    return Missing(package, line, text)
