"""Lines to look at beside the one that is blamed. They follow from the text alone.

What was traced shows where numbers go wrong. The fault may lie in the line that calls the function
there, in a hand-written backward, where a number that is read was set, in the entry of a plan, or
in what reduces gradients afterwards.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

from shardproof.synthesis.repair.in_source import (
    Function,
    Module,
    SourceFile,
    applied,
    base_name,
    call_name,
    regions,
)
from shardproof.synthesis.repair.plan_entries import RULES, STYLES
from shardproof.verifier.kernel.program.types import Source

REDUCES, AVERAGES, RETURNED = "reduces gradients", "averages gradients", "is the module"
MOST = 3
"""Lines that are shown."""
HOOKS = {"register_post_accumulate_grad_hook", "register_hook"}
Definition = ast.ClassDef | Function | ast.Assign


@dataclass(frozen=True)
class Lead:
    """A line, and why it is looked at."""

    file: str
    line: int
    said: str
    text: str


def leads(module: Module, place: Source) -> list[Lead]:
    """At most three lines other than the blamed one, likeliest first."""
    reached = reached_from(module)
    found: dict[tuple[str, int], Lead] = {}
    for said, file, node in _found(module, reached, place):
        line = node.lineno
        if (file.path, line) != (place.file, place.line):
            text = file.text.splitlines()[line - 1].strip()
            found.setdefault((file.path, line), Lead(file.path, line, said, text))
    return list(found.values())[:MOST]


Found = Iterator[tuple[str, SourceFile, ast.expr | ast.stmt]]
Reached = Mapping[str, tuple[SourceFile, Definition]]


def _found(module: Module, reached: Reached, place: Source) -> Found:
    file = module.files.get(place.file)
    here = _at(file, place.line) if file is not None else []
    yield from in_plans(module, reached, place)
    if file is not None:
        yield from _callers(reached, here, file)
        yield from _inside(module, reached, here)
        yield from methods(module, reached, place)
    if module.wrong and module.only_gradients:
        yield from afterwards(module, reached)
    if file is not None:
        yield from _set_at(reached, here, file)


def reached_from(module: Module) -> Reached:
    """The classes, functions and values of files that a target names, and those that they do."""
    made: dict[str, tuple[SourceFile, Definition]] = {}
    for file in reversed(list(module.files.values())):
        for node in file.tree.body:
            if isinstance(node, ast.ClassDef | Function):
                made[node.name] = file, node
            elif isinstance(node, ast.Assign):
                made |= {t.id: (file, node) for t in node.targets if isinstance(t, ast.Name)}
    out: dict[str, tuple[SourceFile, Definition]] = {}
    ahead = [module.target, module.finish]
    while ahead:
        name = ahead.pop(0)
        if name in made and name not in out:
            out[name] = made[name]
            for node in ast.walk(made[name][1]):
                if isinstance(node, ast.Name | ast.Attribute):
                    ahead.append(node.id if isinstance(node, ast.Name) else node.attr)
    return out


def _at(file: SourceFile, line: int) -> list[ast.expr | ast.stmt]:
    """What begins on a line."""
    found = [n for n in ast.walk(file.tree) if isinstance(n, ast.expr | ast.stmt)]
    return [n for n in found if n.lineno == line]


def _callers(reached: Reached, here: Sequence[ast.AST], file: SourceFile) -> Found:
    """Calls of the function, or of the autograd function, that a line is in."""
    inside = {
        n.name
        for node in here[:1]
        for n in file.up(node)
        if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name in reached
    }
    for other, made in reached.values():
        for node in ast.walk(made):
            called = applied(node) or call_name(node)
            if isinstance(node, ast.Call) and called in inside:
                yield f"calls {called}", other, node


def _inside(module: Module, reached: Reached, here: Sequence[ast.AST]) -> Found:
    """Autograd functions that are applied on a line, and those that call no collective at all."""
    used = [applied(n) for n in here if applied(n)]
    known = regions(module.files).values()
    silent = [r.name for r in known if r.name in reached and not _talks(r.forward | r.backward)]
    method = "backward" if module.only_gradients else "forward"
    for name in (n for n in [*silent, *used] if n in reached):
        file, made = reached[name]
        for node in ast.walk(made):
            if isinstance(node, ast.FunctionDef) and node.name == method:
                yield f"{name}.{method}", file, node.body[0]


def methods(module: Module, reached: Reached, place: Source) -> Found:
    """Methods of the module that a line calls."""
    file = module.files.get(place.file)
    here = _at(file, place.line) if file is not None else []
    called = {
        n.func.attr
        for n in here
        if isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and ast.unparse(n.func.value) in ("self", "super()")
    }
    for name, (file, made) in reached.items():
        for node in made.body if isinstance(made, ast.ClassDef) else ():
            if isinstance(node, Function) and node.name in called:
                yield f"{name}.{node.name}", file, node.body[-1]


def _talks(called: frozenset[str]) -> bool:
    words = ("reduce", "gather", "scatter", "all_to_all", "send", "recv", "broadcast", "exchange")
    return any(word in name for name in called for word in words)


def _set_at(reached: Reached, here: Sequence[ast.AST], file: SourceFile) -> Found:
    """Where attributes that a line reads, or local values that it reads are made of, are set to
    what is no module."""
    function = file.function(here[0]) if here else None
    if function is None:
        return
    names, wanted, read = set[str](), list(here), set[str]()
    while wanted:
        for node in ast.walk(wanted.pop()):
            if isinstance(node, ast.Attribute) and base_name(node) == "self":
                read.add(node.attr)
            elif isinstance(node, ast.Name) and node.id not in names:
                names.add(node.id)
                wanted += [n for n in ast.walk(function) if sets(n, node.id)]
    for other, made in reached.values():
        for node in ast.walk(made) if isinstance(made, ast.ClassDef) else ():
            if isinstance(node, ast.Assign) and not _builds(node.value):
                parts = [n for t in node.targets for n in ast.walk(t)]
                own = {n.attr for n in parts if isinstance(n, ast.Attribute)} & read
                if own:
                    yield f"sets {' and '.join(sorted(own))}", other, node


def sets(node: ast.AST, name: str) -> bool:
    """Whether a statement gives a local name another value."""
    targets = node.targets if isinstance(node, ast.Assign) else ()
    return any(isinstance(n, ast.Name) and n.id == name for t in targets for n in ast.walk(t))


def _builds(value: ast.expr) -> bool:
    """Whether a value is a module, or several."""
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return all(call_name(p)[:1].isupper() for p in parts)


def afterwards(module: Module, reached: Reached) -> Found:
    """What changes gradients after they were computed."""
    if module.finish in reached:
        file, node = reached[module.finish]
        assert isinstance(node, ast.stmt)
        yield "is called after the backward", file, node
    for file, made in reached.values():
        for node in ast.walk(made):
            if call_name(node) in HOOKS:
                assert isinstance(node, ast.Call)
                names = {ast.unparse(a) for a in node.args}
                hooks = [n for n in ast.walk(made) if isinstance(n, Function) and n.name in names]
                yield from (("is a hook of gradients", file, hook) for hook in hooks)
                if not hooks:
                    yield "registers a hook of gradients", file, node


WRAPPERS = ("set_gradient_divide_factor", "DistributedDataParallel", "fully_shard")


def wrappers(module: Module, reached: Reached) -> Found:
    """What makes a module average its gradients; else what the function of the target returns."""
    called = [(f, n) for f, made in reached.values() for n in ast.walk(made) if call_name(n)]
    for name in WRAPPERS:
        for file, node in called:
            if isinstance(node, ast.Call) and call_name(node) == name:
                yield AVERAGES, file, node
    for file, node in called:
        if isinstance(node, ast.Call) and any(k.arg == "scale_grads" for k in node.keywords):
            yield AVERAGES, file, node
    file, made = reached.get(module.target, (None, None))
    if file is not None and isinstance(made, Function):
        yield RETURNED, file, made.body[-1]


def in_plans(module: Module, reached: Reached, place: Source) -> Found:
    """The entries of plans for the modules whose numbers are wrong; else the plan."""
    modules = [p.rpartition(".")[0] for p in module.wrong] or [place.module]
    for file, made in reached.values():
        for plan in (n for n in ast.walk(made) if isinstance(n, ast.Dict)):
            if not any(call_name(v) in STYLES or _word(v) in RULES for v in plan.values):
                continue
            keys = [k for k in plan.keys if k is not None and any(_names(k, m) for m in modules)]
            found = keys[:MOST]
            for key in found:
                yield "is its entry in the plan", file, key
            if not found:
                yield "is the plan", file, plan


def _word(node: ast.AST) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _names(key: ast.expr, module: str) -> bool:
    """Whether a key of a plan is a module, or a pattern of it."""
    pattern = str(_word(key))
    return fnmatch(module, pattern) or fnmatch(module, f"*.{pattern}")
