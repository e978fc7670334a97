"""Source files of a parallel module, and small changes of their text. Nothing is judged here.

A change is a few edits of the text, so whatever it does not touch stays as it was written.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from shardproof.synthesis.emit.patch import EmitError
from shardproof.synthesis.emit.source import Edit, Place, SourceText

MOST_FILES = 40
"""Files of a module that are read."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Rewrite:
    """A file after a change."""

    file: str
    """Relative to the folder of the module."""
    line: int
    tactic: str
    """What is changed: `drop`, `insert`, `reduce`, `group`, `dim`, `scale`, `order`, `plan`, ..."""
    text: str


class SourceFile(SourceText):
    """A file of a module, and small changes of it."""

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {c: p for p in ast.walk(self.tree) for c in ast.iter_child_nodes(p)}

    @cached_property
    def functions(self) -> list[Function]:
        return [n for n in ast.walk(self.tree) if isinstance(n, Function)]

    @cached_property
    def expressions(self) -> dict[int, list[ast.expr]]:
        """Those that stand on each line."""
        out: dict[int, list[ast.expr]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr):
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    out.setdefault(line, []).append(node)
        return out

    @cached_property
    def said(self) -> dict[int, str]:
        """The innermost statement of each line, without what it is written like; of a block its
        first line."""
        out: dict[int, str] = {}
        found = [n for n in ast.walk(self.tree) if isinstance(n, ast.stmt)]
        for node in sorted(found, key=lambda n: n.lineno):
            text = ast.unparse(node).partition("\n")[0]
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            out |= dict.fromkeys(lines, text)
        return out

    @cached_property
    def aliases(self) -> dict[str, str]:
        """The names of what the file imports by another."""
        found = (n for n in ast.walk(self.tree) if isinstance(n, ast.ImportFrom))
        return {a.asname: a.name for node in found for a in node.names if a.asname}

    def calls(self, node: ast.AST) -> str:
        """The last word of what is called, by the name that it has where it is made."""
        return self.aliases.get(name := call_name(node), name)

    def has(self, name: str) -> bool:
        """Whether the file imports or defines a name."""
        return not self.names().isdisjoint((name, "*"))

    def up(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node is in, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def function(self, node: ast.AST) -> Function | None:
        return next((n for n in self.up(node) if isinstance(n, Function)), None)

    def owner(self, node: ast.AST) -> ast.ClassDef | None:
        return next((n for n in self.up(node) if isinstance(n, ast.ClassDef)), None)

    def put(self, node: Place, new: str) -> Edit:
        """Another text in place of a node."""
        return Edit(*self.span(node), new)

    def without(self, stmt: ast.stmt) -> Edit | None:
        """A statement less; `pass` where nothing else is in its block. None where it shares its
        lines."""
        start, end = self.span(stmt)
        first, last = self.starts[stmt.lineno - 1], self.starts[stmt.end_lineno or stmt.lineno]
        if self.text[first:start].strip() or self.text[end:last].partition("#")[0].strip():
            return None
        block = getattr(self.parents[stmt], "body", [])
        if isinstance(block, list) and block == [stmt]:
            return Edit(start, end, "pass")
        return Edit(first, last, "")

    def beside(self, stmt: ast.stmt, lines: Sequence[str], *, before: bool = False) -> Edit:
        """Lines of the indentation of a statement, after it or before it."""
        at = self.starts[stmt.lineno - 1 if before else stmt.end_lineno or stmt.lineno]
        pad = " " * stmt.col_offset
        text = "".join(f"{pad}{line}\n" for line in lines)
        ended = before or self.text[:at].endswith("\n")
        return Edit(at, at, text if ended else f"\n{text}")

    def dropped(self, items: Sequence[Place], at: int) -> Edit:
        """A list in the text without one of its items, its comma gone too."""
        return less([self.span(item) for item in items], at)

    def spliced(self, *edits: Edit) -> str | None:
        """The text after all of them; None where it cannot be parsed or is the same."""
        try:
            text = self.apply(edits)
        except (EmitError, ValueError):
            return None
        return text if text != self.text else None

    def made(
        self, node: ast.expr | ast.stmt, tactic: str, *edits: Edit | None
    ) -> Iterator[Rewrite]:
        """The change that edits make at a node; none where one lacks, or the text is as it was."""
        whole = [e for e in edits if e is not None]
        text = self.spliced(*whole) if len(whole) == len(edits) else None
        if text is not None:
            yield Rewrite(self.path, node.lineno, tactic, text)


def less(spans: Sequence[tuple[int, int]], at: int) -> Edit:
    """What takes one of several items out of a text, its comma too."""
    start, end = spans[at]
    if at + 1 < len(spans):
        end = spans[at + 1][0]
    elif at:
        start = spans[at - 1][1]
    return Edit(start, end, "")


def assigned(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """What an assignment sets, each with its value where several are set at once."""
    if not isinstance(node, ast.Assign):
        return []
    out: list[tuple[ast.expr, ast.expr]] = []
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            out += zip(target.elts, node.value.elts, strict=False)
        else:
            out.append((target, node.value))
    return out


@dataclass(frozen=True)
class Module:
    """What is to be repaired."""

    files: Mapping[str, SourceFile]
    """Those that may be changed, by name, the module's own first."""
    mesh: Mapping[str, int]
    params: Sequence[str]
    """Names of parameters, as the parallel module calls them."""
    wrong: Sequence[str]
    """Names of parameters whose gradients are wrong."""
    only_gradients: bool
    """Whether all outputs are right."""
    finish: str = ""
    """The function that is called after the backward."""
    target: str = ""
    """The class or function of the module."""
    shared: frozenset[tuple[str, int]] = frozenset()
    """Files and lines that the model on one device runs: they are right."""
    rows: frozenset[str] = frozenset()
    """Mesh dims that inputs are split over."""
    step: str = ""
    """The function that is a training step, of the module's file."""
    step_of_one: str = ""
    """That of the model's file."""
    model: str = ""
    """The class or function of the model."""
    model_files: Mapping[str, SourceFile] = field(default_factory=dict[str, SourceFile])


def read_module(root: Path, first: str) -> dict[str, SourceFile]:
    """The file of a module and what it imports from the same folder, by name, nearest first."""
    out: dict[str, SourceFile] = {}
    ahead = [first]
    while ahead and len(out) < MOST_FILES:
        name = ahead.pop(0)
        path = root / name
        if name in out or not path.is_file():
            continue
        try:
            out[name] = SourceFile(name, path.read_bytes().decode("utf-8"))
        except (EmitError, OSError, ValueError):
            continue
        ahead += _imported(out[name].tree, Path(name).parent)
    return out


def _imported(tree: ast.Module, folder: Path) -> Iterator[str]:
    """Files that a module may import, relative to the root."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [(a.name, Path()) for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = (
                Path(*folder.parts[: len(folder.parts) - node.level + 1]) if node.level else Path()
            )
            module = node.module or ""
            found = [(module, base)] if module else []
            found += [(f"{module}.{a.name}".lstrip("."), base) for a in node.names]
        else:
            continue
        for dotted, base in found:
            path = base.joinpath(*dotted.split("."))
            yield path.with_suffix(".py").as_posix() if path.name else ""
            yield (path / "__init__.py").as_posix()


def call_name(node: ast.AST) -> str:
    """The last word of what is called: `all_reduce` of `dist.all_reduce(...)`."""
    if not isinstance(node, ast.Call):
        return ""
    func = node.func
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def applied(node: ast.AST) -> str:
    """`Copy` of `Copy.apply(...)`."""
    if isinstance(node, ast.Call) and call_name(node) == "apply":
        assert isinstance(node.func, ast.Attribute)
        return getattr(node.func.value, "attr", getattr(node.func.value, "id", ""))
    return ""


def base_name(node: ast.AST) -> str:
    """`self` of `self.group`."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


@dataclass(frozen=True)
class Region:
    """An autograd function: which collectives its forward and its backward call."""

    name: str
    takes: int
    """Arguments of its forward, without `ctx`."""
    forward: frozenset[str]
    backward: frozenset[str]


def regions(files: Mapping[str, SourceFile]) -> dict[str, Region]:
    """The autograd functions of some files; what they call is what their helpers do too."""
    out: dict[str, Region] = {}
    helpers = {
        node.name: {call_name(n) for n in ast.walk(node)}
        for file in files.values()
        for node in file.tree.body
        if isinstance(node, Function)
    }
    for file in files.values():
        for node in ast.walk(file.tree):
            if not isinstance(node, ast.ClassDef):
                continue
            made = {f.name: f for f in node.body if isinstance(f, ast.FunctionDef)}
            bases = [
                b.attr if isinstance(b, ast.Attribute) else getattr(b, "id", "") for b in node.bases
            ]
            if "Function" in bases and {"forward", "backward"} <= set(made):
                takes = len(made["forward"].args.args) - 1
                called: list[frozenset[str]] = []
                for method in ("forward", "backward"):
                    walked = list(ast.walk(made[method]))
                    names = set(map(call_name, walked))
                    if node.name in map(applied, walked):
                        names |= set(map(call_name, ast.walk(made["forward"])))
                    more = {m for n in names for m in helpers.get(n, ())}
                    called.append(frozenset(names | more) - {""})
                out[node.name] = Region(node.name, takes, *called)
    return out


def group_attributes(files: Mapping[str, SourceFile]) -> set[str]:
    """Attributes that hold process groups: of `self.group = ...`."""
    return {
        target.attr
        for file in files.values()
        for node in ast.walk(file.tree)
        for target, value in assigned(node)
        if isinstance(target, ast.Attribute) and ("group" in target.attr or is_group(value))
    }


def is_group(value: ast.expr) -> bool:
    """Whether an expression is a process group, by its name."""
    if isinstance(value, ast.Call):
        return call_name(value) in ("get_group", "new_group")
    return isinstance(value, ast.Name | ast.Attribute) and "group" in ast.unparse(value).lower()


def groups_at(
    file: SourceFile,
    function: Function | None,
    attributes: set[str],
    files: Mapping[str, SourceFile],
) -> list[str]:
    """Expressions for process groups that a function may write."""
    if function is None:
        return []
    names = [a.arg for a in (*function.args.args, *function.args.kwonlyargs)]
    around = [f for f in file.up(function) if isinstance(f, Function)]
    out = [n for n in names if "group" in n]
    out += [a.arg for f in around for a in f.args.args if "group" in a.arg]
    if around:
        names = []
    first = names[0] if names else ""
    if first and first not in ("ctx", "mesh") and function.name not in ("__init__",):
        held = _held(first, file, function, attributes, files)
        out += [f"{first}.{a}" for a in held]
    if first == "ctx":
        used = {
            n.attr
            for n in ast.walk(file.owner(function) or function)
            if isinstance(n, ast.Attribute)
        }
        out += [f"ctx.{a}" for a in sorted(attributes & used)]
    local = [
        n.targets[0].id
        for n in ast.walk(function)
        if isinstance(n, ast.Assign)
        and isinstance(n.targets[0], ast.Name)
        and "get_group" in ast.unparse(n.value)
    ]
    return list(dict.fromkeys([*local, *out]))


def _of_class(
    file: SourceFile, function: Function, files: Mapping[str, SourceFile]
) -> Iterator[ast.AST]:
    """All that stands in the class of a method, and in those that it derives from."""
    made = {n.name: n for f in files.values() for n in f.tree.body if isinstance(n, ast.ClassDef)}
    owner = file.owner(function)
    ahead = [owner] if owner is not None else []
    for kind in ahead:
        yield from ast.walk(kind)
        bases = [made.get(ast.unparse(b)) for b in kind.bases]
        ahead += [b for b in bases if b is not None and b not in ahead]


def _held(
    first: str,
    file: SourceFile,
    function: Function,
    attributes: set[str],
    files: Mapping[str, SourceFile],
) -> list[str]:
    """Group attributes of `self`, or of the module that a function is given; used ones first."""
    here = {
        n.attr
        for n in ast.walk(file.tree)
        if isinstance(n, ast.Attribute) and base_name(n) == first
    }
    own = {n.attr for n in _of_class(file, function, files) if isinstance(n, ast.Attribute)}
    attributes = attributes & own or attributes
    if first != "self":
        here |= {
            n.attr
            for f in files.values()
            for n in ast.walk(f.tree)
            if isinstance(n, ast.Attribute) and base_name(n) == "self"
        }
    mine = {n.attr for n in ast.walk(function) if isinstance(n, ast.Attribute)}
    return sorted(attributes & (here | attributes), key=lambda a: (a not in mine, a not in here, a))
