"""The classes and functions a patch needs where PyTorch has none: those of `shardproof.runtime`.

A patch imports them, or has their source pasted in, in the order that it has there.
"""

import ast
from dataclasses import dataclass

from shardproof.runtime.source import text as runtime_text

RUNTIME = "shardproof.runtime"

TENSOR = "torch.distributed.tensor"
PARALLEL = "torch.distributed.tensor.parallel"


@dataclass(frozen=True, slots=True)
class Snippet:
    """One definition and what it needs."""

    name: str
    imports: tuple[tuple[str, str], ...]
    """(module, name); an empty name is `import module`."""
    needs: tuple[str, ...]
    """Other snippets."""
    text: str


def _imported(node: ast.Import | ast.ImportFrom) -> dict[str, tuple[str, str]]:
    """By the name that each import binds."""
    if isinstance(node, ast.ImportFrom):
        return {a.name: (node.module or "", a.name) for a in node.names}
    (alias,) = node.names
    if alias.asname is None:
        return {alias.name: (alias.name, "")}
    module, _, name = alias.name.rpartition(".")
    return {alias.asname: (module, f"{name} as {alias.asname}")}


def _read(source: str) -> dict[str, Snippet]:
    imports: dict[str, tuple[str, str]] = {}
    found: dict[str, Snippet] = {}
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports |= _imported(node)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            read = dict.fromkeys(n.id for n in ast.walk(node) if isinstance(n, ast.Name))
            text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            found[node.name] = Snippet(
                node.name,
                tuple(imports[n] for n in read if n in imports),
                tuple(n for n in read if n in found),
                f"\n{text}\n",
            )
    return found


SNIPPETS = _read(runtime_text())
"""By name. None needs one that stands behind it."""
