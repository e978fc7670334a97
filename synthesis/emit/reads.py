"""Parameters that code outside of their module reads: there the patch makes them whole again."""

import ast
from collections.abc import Collection, Iterator

from shardproof.synthesis.emit.facts import ModelFacts
from shardproof.synthesis.emit.source import Edit, SourceText

TELLING = frozenset(
    {"shape", "size", "dtype", "device", "ndim", "dim", "numel", "requires_grad", "is_cuda"}
)
"""What is asked of a parameter as it is on one device, and of a DTensor alike."""


def edit_reads(source: SourceText, facts: ModelFacts, split: Collection[str]) -> list[Edit]:
    """Edits that make a parameter whole where a method reads it as `self.path.name`.

    Args:
        split: paths of the modules whose parameters are DTensors, `*` for a layer index.
    """
    edits: list[Edit] = []
    for owner in source.tree.body:
        if not isinstance(owner, ast.ClassDef):
            continue
        held = _held(facts, owner.name, split)
        for read, path in _reads(owner) if held else ():
            if path in held:
                start, end = source.span(read)
                edits += [Edit(start, start, "whole_param("), Edit(end, end, ")")]
    return edits


def _held(facts: ModelFacts, kind: str, split: Collection[str]) -> set[str]:
    """Paths of parameters of split modules, as instances of a class reach them."""
    starts = [m.path for m in facts.modules if m.kind == kind]
    found: set[str] = set()
    for module in facts.modules:
        if not any(matches(module.path, pattern) for pattern in split):
            continue
        for start in starts:
            below = f"{start}." if start else ""
            if module.path.startswith(below) and module.path != start:
                found |= {f"{module.path.removeprefix(below)}.{name}" for name in module.params}
    return found


def matches(path: str, pattern: str) -> bool:
    """Whether a path is one of a pattern, in which `*` stands for a layer index."""
    parts, wanted = path.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(
        p == w or (w == "*" and p.isdigit()) for p, w in zip(parts, wanted, strict=True)
    )


def _reads(owner: ast.ClassDef) -> Iterator[tuple[ast.Attribute, str]]:
    """What methods read of their instance, as expressions and as paths below it."""
    for method in owner.body:
        if not isinstance(method, ast.FunctionDef) or method.name == "__init__":
            continue
        own = method.args.args[0].arg if method.args.args else ""
        asked = {
            id(node.value)
            for node in ast.walk(method)
            if isinstance(node, ast.Attribute) and node.attr in TELLING
        }
        for node in ast.walk(method):
            if isinstance(node, ast.Attribute) and id(node) not in asked:
                path = _path(node, own) if isinstance(node.ctx, ast.Load) else None
                if path is not None:
                    yield node, path


def _path(node: ast.expr, own: str) -> str | None:
    """`a.0.b` of `self.a[0].b`; None of another expression."""
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr=attr) if name == own:
            return attr
        case ast.Attribute(value=value, attr=attr):
            before = _path(value, own)
            return None if before is None else f"{before}.{attr}"
        case ast.Subscript(value=value, slice=ast.Constant(value=int(index))) if index >= 0:
            before = _path(value, own)
            return None if before is None else f"{before}.{index}"
        case _:
            return None
