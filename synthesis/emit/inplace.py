"""Which modules give a result that the owner's code then writes into.

The local tensor of a DTensor is a view that autograd lets nobody write to.
"""

import ast
from collections.abc import Iterator, Sequence

from shardproof.synthesis.emit.facts import ModelFacts
from shardproof.synthesis.planner.plan import ModulePlan

INNER = frozenset({"column", "fused_column", "kv_column"})
"""Styles of modules whose result the block itself works on, not its caller."""


def written_into(facts: ModelFacts, modules: Sequence[ModulePlan]) -> set[str]:
    """Paths of planned modules whose result a method changes, `y = self.mlp(x); y += r`, or a
    module beside them that works in place."""
    writers = [m.path for m in facts.modules if m.writes]
    views = [m.path for m in modules if not m.splits or m.style == "product"]
    out = {path for path in views if any(_before(path, w) for w in writers)}
    for kind, forward in facts.forwards.items():
        for name in (name for text in (forward.text, *forward.others) for name in _changed(text)):
            paths = [
                f"{m.path}.{name}" if m.path else name for m in facts.modules if m.kind == kind
            ]
            out |= {
                m.path
                for m in modules
                if any(_lies_in(m, path) for path in paths)
                and (m.style not in INNER or any(_same(m.path, path) for path in paths))
            }
    return out


def _before(pattern: str, path: str) -> bool:
    """Whether a module may be called on the result of another: it stands beside it, in a sequence
    right after it."""
    around, _, name = pattern.rpartition(".")
    beside, _, writer = path.rpartition(".")
    if not _same(around, beside):
        return False
    return not (name.isdigit() and writer.isdigit()) or int(writer) == int(name) + 1


def _lies_in(m: ModulePlan, path: str) -> bool:
    parts = path.split(".")
    return _same(".".join(m.path.split(".")[: len(parts)]), path)


def _same(pattern: str, path: str) -> bool:
    names, parts = pattern.split("."), path.split(".")
    pairs = zip(names, parts, strict=False)
    return len(names) == len(parts) and all(a in ("*", b) for a, b in pairs)


def _changed(text: str) -> Iterator[str]:
    """Attributes `f` of which some `y = self.f(...)` or `y = self.f[i](...)` is changed in place
    after it."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    changed = {
        n.target.id
        for n in ast.walk(tree)
        if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)
    }
    changed |= {
        n.func.value.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and isinstance(n.func.value, ast.Name)
        and n.func.attr.endswith("_")
        and not n.func.attr.endswith("__")
    }
    assigned = [n for n in ast.walk(tree) if isinstance(n, ast.Assign | ast.AnnAssign)]
    for node in sorted(assigned, key=lambda n: -n.lineno):
        names = {t.id for t in _targets(node) if isinstance(t, ast.Name)}
        if names & changed and isinstance(node.value, ast.Name):
            changed.add(node.value.id)
    for node in assigned:
        names = {n.id for t in _targets(node) for n in ast.walk(t) if isinstance(n, ast.Name)}
        if names & changed:
            yield from _calls(node.value)


def _calls(value: ast.expr | None) -> Iterator[str]:
    """Attributes of `self` whose calls a value may be the memory of: `self.drop(self.f(x))` in eval
    mode is that of `self.f`."""
    while isinstance(value, ast.Call):
        func = value.func.value if isinstance(value.func, ast.Subscript) else value.func
        if not isinstance(func, ast.Attribute):
            return
        if isinstance(func.value, ast.Name):
            if func.value.id != "self":
                return
            yield func.attr
            value = value.args[0] if value.args else None
        else:
            value = func.value


def _targets(node: ast.Assign | ast.AnnAssign) -> Sequence[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]
