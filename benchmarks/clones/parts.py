"""Modules of large packages, without what their `__init__` imports."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType


def part(name: str) -> ModuleType:
    """A module by its dotted name; packages above it are left empty."""
    above = name.split(".")[:-1]
    for depth in range(1, len(above) + 1):
        package = ".".join(above[:depth])
        if package not in sys.modules:
            module = sys.modules[package] = ModuleType(package)
            folder = Path(*above[:depth])
            module.__path__ = [
                str(p / folder) for p in map(Path, sys.path) if (p / folder).is_dir()
            ]
    return importlib.import_module(name)
