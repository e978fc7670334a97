"""Shapes in methods of library modules that must become local, where no attribute says them."""

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from shardproof.synthesis.emit.attributes import attributes_of, created, owner_of, telling
from shardproof.synthesis.emit.extents import (
    Site,
    alike,
    differing,
    function_at,
    of_kind,
    shape_edit,
    sites_of,
)
from shardproof.synthesis.emit.facts import ModelFacts, ModuleFact
from shardproof.synthesis.emit.patch import EmitError
from shardproof.synthesis.emit.source import Edit, SourceText
from shardproof.synthesis.emit.values import assigned, calls_with, fields, unpacked
from shardproof.synthesis.planner.plan import LocalExtent


@dataclass(frozen=True, slots=True)
class MethodChange:
    """In the source of method `name` of `<path>` some texts are replaced by others."""

    path: str
    name: str
    texts: tuple[str, ...]
    """Each old text, and after it the new one."""


@lru_cache(16)
def _source(path: str, text: str) -> SourceText:
    return SourceText(path, text)


def method_changes(
    facts: ModelFacts,
    extents: Sequence[LocalExtent],
    read: Callable[[str], str],
    made_only: bool = False,
) -> list[MethodChange]:
    """The shapes of which an extent is that of a tensor given to `forward`, or a number: it stays
    as it is on one device, and becomes -1, or is divided where a tensor is made. So it does in all
    modules of a class that has a change: capture does not see code of which no output is made.

    Args:
        read: gives the text of a source file.
        made_only: only tensors that are made; the other shapes are edited where they stand.
    """
    found: dict[tuple[str, str], dict[str, str]] = {}
    paths: dict[tuple[str, str], dict[str, None]] = {}
    for extent in extents:
        source = _source(extent.file, read(extent.file))
        owner = owner_of(facts, source.tree, extent)
        if owner is None or owner[1].replaced or not differing(extent):
            continue
        path, fact = owner
        written = [] if made_only else sites_of(source.tree, extent)
        for site in written:
            function = _method_at(source.tree, site.call.lineno)
            if site.method == "split" or function is None:
                continue
            changed = _changed(fact, source.tree, function, site, extent)
            for twin in alike(source.tree, site):
                texts = _replaced(source, twin, _free(source, twin, changed))
                if texts:
                    found.setdefault((fact.kind, function.name), {}).update(texts)
                    paths.setdefault((fact.kind, function.name), {})[path] = None
        for method, site in created(fact, source.tree, extent):
            texts = _replaced(source, site, _divided(source, site, extent))
            found.setdefault((fact.kind, method.name), {}).update(texts)
            paths.setdefault((fact.kind, method.name), {})[path] = None
    return [
        MethodChange(path, key[1], tuple(text for pair in texts.items() for text in pair))
        for key, texts in found.items()
        for path in paths[key]
    ]


def _changed(
    fact: ModuleFact,
    tree: ast.Module,
    function: ast.FunctionDef,
    site: Site,
    extent: LocalExtent,
) -> LocalExtent:
    """An extent of which what is not to be changed in the method stays whole."""
    local = list(extent.local)
    for index in differing(extent):
        node = site.extents[index]
        attributes = attributes_of(tree, function, node)
        named = any(name in fact.ints for name in attributes)
        told = bool(telling(fact, tree, function, site, extent, index))
        if told or not (named or _given(tree, function, node)):
            local[index] = extent.whole[index]
    return replace(extent, local=tuple(local))


def _method_at(tree: ast.Module, line: int) -> ast.FunctionDef | None:
    """The method that a line lies in, where it can be made again outside of its class."""
    function = function_at(tree, line)
    if function is None or not any(function in c.body for c in of_kind(tree, ast.ClassDef)):
        return None
    return None if any(n.id == "super" for n in of_kind(function, ast.Name)) else function


def _free(source: SourceText, site: Site, extent: LocalExtent) -> list[Edit]:
    """Edits that make extents -1; none where that cannot be written."""
    try:
        return shape_edit(source, site, extent)
    except EmitError:
        return []


def _divided(source: SourceText, site: Site, extent: LocalExtent) -> list[Edit]:
    """Edits that divide the extents of what is made by as many as share them."""
    spans = [(source.span(site.extents[i]), i) for i in differing(extent)]
    ranks = {i: extent.whole[i] // extent.local[i] for _, i in spans}
    return [Edit(*at, f"{source.text[at[0] : at[1]]} // {ranks[i]}") for at, i in spans]


def _replaced(source: SourceText, site: Site, edits: Sequence[Edit]) -> dict[str, str]:
    """The text of a call from the name of the method on, or the lines where its shape is made,
    and what it becomes."""
    if not edits:
        return {}
    assert isinstance(site.call.func, ast.Attribute)
    start, end = source.span(site.call.func.value)[1], source.span(site.call)[1]
    first, last = min(e.start for e in edits), max(e.end for e in edits)
    if not start <= first <= last <= end:
        start = source.text.rfind("\n", 0, first) + 1
        end = source.text.find("\n", last)
    old = source.text[start:end]
    new = old
    for edit in sorted(edits, reverse=True):
        new = new[: edit.start - start] + edit.new + new[edit.end - start :]
    return {old.strip(): new.strip()}


def _given(tree: ast.Module, function: ast.FunctionDef, extent: ast.expr) -> bool:
    """Whether an extent is a number, or read from the shape of a tensor given to `forward`."""
    return isinstance(extent, ast.Constant) or any(
        _is_input(tree, inside, name) for inside, name in _measured(tree, function, extent, set())
    )


def _measured(
    tree: ast.Module, function: ast.FunctionDef, node: ast.expr, seen: set[tuple[str, str]]
) -> Iterator[tuple[ast.FunctionDef, str]]:
    """The names of tensors, and the function of each, whose shapes an expression is taken from."""
    if isinstance(node, ast.Attribute) and node.attr in ("size", "shape"):
        if isinstance(node.value, ast.Name):
            yield function, node.value.id
    elif isinstance(node, ast.Attribute | ast.Name):
        if (key := (function.name, ast.unparse(node))) not in seen:
            seen.add(key)
            for inside, value in _values(tree, function, node):
                yield from _measured(tree, inside, value, seen)
    elif not isinstance(node, ast.Call) or isinstance(node.func, ast.Attribute):
        parts = [node.func] if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
        for part in parts:
            if isinstance(part, ast.expr):
                yield from _measured(tree, function, part, seen)


def _values(
    tree: ast.Module, function: ast.FunctionDef, leaf: ast.Attribute | ast.Name
) -> Iterator[tuple[ast.FunctionDef, ast.expr]]:
    """What a name, or `d.n`, may stand for, and the function that says so."""
    name = leaf.id if isinstance(leaf, ast.Name) else getattr(leaf.value, "id", "")
    if isinstance(leaf, ast.Attribute):
        yield from ((function, value) for value in fields(function, leaf))
    else:
        yield from ((function, value) for value in assigned(function, name))
        yield from ((function, value) for value in unpacked(function, name))
    for value in calls_with(tree, function, name):
        caller = function_at(tree, value.lineno)
        if caller is None or caller is function:
            continue
        if isinstance(leaf, ast.Name):
            yield caller, value
        elif isinstance(value, ast.Name):
            yield from _values(tree, caller, ast.Attribute(value, leaf.attr, ast.Load()))


def _is_input(tree: ast.Module, function: ast.FunctionDef, name: str) -> bool:
    """Whether a name is an argument of `forward`, or of a method that is given one."""
    if name not in [a.arg for a in function.args.args]:
        return False
    if function.name == "forward":
        return True
    callers = [(function_at(tree, v.lineno), v) for v in calls_with(tree, function, name)]
    return any(
        inside is not None and inside is not function and _is_input(tree, inside, value.id)
        for inside, value in callers
        if isinstance(value, ast.Name)
    )
