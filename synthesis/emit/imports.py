"""Import statements of emitted code."""

import sys
from collections.abc import Collection, Iterable

from shardproof.synthesis.emit.styles import Import


def bound_name(name: str, module: str) -> str:
    """The name that `from module import name` (or `import module`) binds."""
    return name.split(" as ")[-1] if name else module.split(".")[0]


def import_lines(
    imports: Iterable[Import], bound: Collection[str] = (), width: int = 88
) -> tuple[list[str], list[str]]:
    """(standard library, other) import statements, one module a statement, sorted.

    Args:
        bound: names the file has already.
        width: columns of a line at most.
    """
    modules: dict[str, list[str]] = {}
    statements: list[tuple[bool, str, str]] = []
    for module, name in dict.fromkeys(imports):
        if bound_name(name, module) in bound:
            continue
        if " as " in name:
            statements.append((False, module, f"import {module}.{name}"))
        elif name:
            modules.setdefault(module, []).append(name)
        else:
            statements.append((False, module, f"import {module}"))
    for module, names in modules.items():
        line = f"from {module} import {', '.join(sorted(names))}"
        if len(line) > width:
            line = f"from {module} import (\n    " + ",\n    ".join(sorted(names)) + ",\n)"
        statements.append((True, module, line))
    groups: tuple[list[str], list[str]] = ([], [])
    for _, module, line in sorted(statements):
        groups[module.split(".")[0] not in sys.stdlib_module_names].append(line)
    return groups
