"""Import statements of emitted code."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable

from synthesis.emit.styles import Import

WIDTH = 100


def bound_name(name: str, module: str) -> str:
    """The name that `from module import name` (or `import module`) binds."""
    return name.split(" as ")[-1] if name else module.split(".")[0]


def import_lines(
    imports: Iterable[Import], bound: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    """(standard library, other) import statements, one module a statement, sorted.

    Args:
        bound: names the file has already.
    """
    modules: dict[str, list[str]] = {}
    for module, name in imports:
        if bound_name(name, module) in bound:
            continue
        names = modules.setdefault(module, [])
        if name and name not in names:
            names.append(name)
    standard: list[tuple[bool, str, str]] = []
    other: list[tuple[bool, str, str]] = []
    for module, names in modules.items():
        line = f"from {module} import {', '.join(sorted(names))}" if names else f"import {module}"
        if len(line) > WIDTH:
            line = f"from {module} import (\n    " + ",\n    ".join(sorted(names)) + ",\n)"
        group = standard if module.split(".")[0] in sys.stdlib_module_names else other
        group.append((bool(names), module, line))
    return [line for *_, line in sorted(standard)], [line for *_, line in sorted(other)]
