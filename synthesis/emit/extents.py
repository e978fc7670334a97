"""Turns literal extents of one device into local ones: in the user's source, or as attributes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from synthesis.emit.facts import ModelFacts, ModuleFact
from synthesis.emit.patch import EmitError
from synthesis.emit.source import Edit, SourceText
from synthesis.plan import LocalExtent, ModulePlan

SHAPED = frozenset({"view", "reshape", "expand", "repeat", "unflatten"})
SPLITS = frozenset({"split", "split_with_sizes"})


@dataclass(frozen=True, slots=True)
class AttributeChange:
    """`<path>.<name>` becomes `value`, or itself divided by `divisor` (a Python expression)."""

    path: str
    name: str
    divisor: str = ""
    value: int = 0


@dataclass(frozen=True, slots=True)
class _Site:
    """A call whose arguments are extents."""

    call: ast.Call
    method: str
    extents: tuple[ast.expr, ...]
    """One expression for each dim of the result (or the sizes of a split)."""


def _site(node: ast.AST) -> _Site | None:
    """Read `x.view(a, b)`, `x.view((a, b))`, `torch.reshape(x, (a, b))`, `x.split(n, dim)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    method = node.func.attr
    if method not in SHAPED | SPLITS:
        return None
    owner = node.func.value
    free = isinstance(owner, ast.Name) and owner.id == "torch"
    arguments = node.args[1:] if free else node.args
    if method in SPLITS:
        return _Site(node, "split", tuple(arguments[:1]))
    if len(arguments) == 1 and isinstance(arguments[0], ast.Tuple | ast.List):
        arguments = arguments[0].elts
    return _Site(node, method, tuple(arguments))


def _sites(tree: ast.AST, line: int, rank: int = 0) -> list[_Site]:
    """Calls with extents whose text covers `line`; of shapes those with `rank` extents.

    A shape given by name (`x.view(shape)`) is looked up where the function assigns it; `*sizes` in
    a shape stands for as many extents as are missing.
    """
    out: list[_Site] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.lineno <= line <= (node.end_lineno or line):
            continue
        site = _site(node)
        if site is None:
            continue
        extents = site.extents
        if len(extents) == 1 and isinstance(extents[0], ast.Name) and rank > 1:
            extents = _assigned(tree, line, extents[0].id) or extents
        stars = [i for i, e in enumerate(extents) if isinstance(e, ast.Starred)]
        if len(stars) == 1 and rank >= len(extents) - 1:
            at, missing = stars[0], rank - len(extents) + 1
            extents = (*extents[:at], *[extents[at]] * missing, *extents[at + 1 :])
        if site.method == "split" or len(extents) == rank:
            out.append(_Site(site.call, site.method, extents))
    return out


def _assigned(tree: ast.AST, line: int, name: str) -> tuple[ast.expr, ...] | None:
    """The elements of the tuple last assigned to `name` above `line` in the same function."""
    found: tuple[ast.expr, ...] | None = None
    for node in ast.walk(_function_at(tree, line) or tree):
        if (
            isinstance(node, ast.Assign)
            and node.lineno <= line
            and isinstance(node.value, ast.Tuple)
            and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
        ):
            found = tuple(node.value.elts)
    return found


def _is_minus_one(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
        and node.operand.value == 1
    )


def _error(extent: LocalExtent, why: str) -> EmitError:
    return EmitError(
        f"{extent.file}:{extent.line}: {extent.op} has extents {list(extent.whole)} on one device "
        f"and needs {list(extent.local)} on a rank: {why}"
    )


def _differing(extent: LocalExtent) -> list[int]:
    if len(extent.whole) != len(extent.local):
        raise _error(extent, "the two have different lengths")
    return [i for i, (a, b) in enumerate(zip(extent.whole, extent.local, strict=True)) if a != b]


def _split_edit(source: SourceText, site: _Site, extent: LocalExtent) -> list[Edit]:
    """`split(n, dim=d)` into equal parts becomes `chunk(parts, dim=d)`."""
    targets = [
        node.targets[0]
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assign) and node.value is site.call
    ]
    if not targets or not isinstance(targets[0], ast.Tuple):
        raise _error(extent, "a split can be made local where its parts are unpacked by name")
    sizes = site.extents[0]
    if isinstance(sizes, ast.List | ast.Tuple) and len({source.of(e) for e in sizes.elts}) > 1:
        raise _error(extent, "the parts of the split are not of one written size")
    assert isinstance(site.call.func, ast.Attribute)
    name_end = source.span(site.call.func)[1]
    name_start = name_end - len(site.call.func.attr)
    return [
        Edit(name_start, name_end, "chunk"),
        Edit(*source.span(sizes), str(len(targets[0].elts))),
    ]


def _shape_edit(source: SourceText, site: _Site, extent: LocalExtent) -> list[Edit]:
    """The argument of the sharded dim becomes `-1` (or the operand's own last extent)."""
    edits: list[Edit] = []
    free = [i for i, e in enumerate(site.extents) if _is_minus_one(e)]
    for index in _differing(extent):
        node = site.extents[index]
        if index in free or isinstance(node, ast.Starred) or _reads_shape(node):
            continue
        if site.method == "expand":
            raise _error(extent, f"write {source.of(node)!r} from the operand's own shape")
        if not free:
            free.append(index)
            edits.append(Edit(*source.span(node), "-1"))
            continue
        owner = site.call.func.value if isinstance(site.call.func, ast.Attribute) else None
        if index == len(site.extents) - 1 and isinstance(owner, ast.Name):
            edits.append(Edit(*source.span(node), f"{owner.id}.size(-1)"))
            continue
        raise _error(extent, f"{source.of(node)!r} cannot become -1, another extent is -1 already")
    return edits


def edit_extents(source: SourceText, extents: Iterable[LocalExtent]) -> list[Edit]:
    """Edits of the user's file that make its literal extents local; right on one device too.

    An extent whose line writes no shape of that rank comes from inside an operation (a linear
    flattens its input) and needs no edit.

    Raises:
        EmitError: an extent that cannot be made local, with file and line.
    """
    edits: list[Edit] = []
    for extent in extents:
        if not _differing(extent) and extent.op not in SPLITS:
            continue
        sites = _sites(source.tree, extent.line, len(extent.whole))
        splits = [s for s in sites if s.method == "split"]
        shaped = [s for s in sites if s.method != "split"]
        if splits and (extent.op in ("slice", *SPLITS) or not shaped):
            edits += _split_edit(source, splits[0], extent)
        elif shaped:
            for site in _alike(source.tree, shaped[0]):
                edits += _shape_edit(source, site, extent)
        elif extent.op in SPLITS:
            raise _error(extent, f"no split is found in {_line(source, extent.line)!r}")
    return list(dict.fromkeys(edits))


def _alike(tree: ast.AST, site: _Site) -> list[_Site]:
    """`site`, and the calls of its function that write the same method and extents.

    Capture merges a reshape with the next one, so not every place is seen on its own.
    """
    written = list(map(ast.dump, site.extents))
    out = [site]
    for node in ast.walk(_function_at(tree, site.call.lineno) or tree):
        other = _site(node)
        if (
            other is not None
            and other.call is not site.call
            and other.method == site.method
            and list(map(ast.dump, other.extents)) == written
        ):
            out.append(other)
    return out


def _line(source: SourceText, number: int) -> str:
    return source.text.split("\n")[number - 1].strip()


def _reads_shape(node: ast.expr) -> bool:
    """`x.size(-1)`, `x.shape[2]`: the extent of a tensor at hand, local where the tensor is."""
    return any(isinstance(n, ast.Attribute) and n.attr in ("size", "shape") for n in ast.walk(node))


def _function_at(tree: ast.AST, line: int) -> ast.FunctionDef | None:
    found: ast.FunctionDef | None = None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or line):
            found = node
    return found


def _attributes(tree: ast.AST, function: ast.FunctionDef, node: ast.expr) -> list[str]:
    """Instance attributes that `node` may take its value from, through names and calls."""
    out: list[str] = []
    for leaf in ast.walk(node):
        if isinstance(leaf, ast.Attribute) and isinstance(leaf.value, ast.Name):
            out.append(leaf.attr)
        if not isinstance(leaf, ast.Name):
            continue
        for statement in ast.walk(function):
            if isinstance(statement, ast.Assign) and any(
                isinstance(t, ast.Name) and t.id == leaf.id for t in statement.targets
            ):
                out += [
                    a.attr
                    for a in ast.walk(statement.value)
                    if isinstance(a, ast.Attribute) and isinstance(a.value, ast.Name)
                ]
        names = [a.arg for a in function.args.args]
        if leaf.id in names:
            position = names.index(leaf.id)
            for call in ast.walk(tree):
                if (
                    isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Name)
                    and call.func.id == function.name
                    and len(call.args) > position
                    and isinstance(call.args[position], ast.Attribute)
                ):
                    argument = call.args[position]
                    assert isinstance(argument, ast.Attribute)
                    out.append(argument.attr)
    return list(dict.fromkeys(out))


def _change(fact: ModuleFact, path: str, name: str, local: int, tp: int) -> AttributeChange:
    whole = fact.ints[name]
    if whole == local * tp:
        return AttributeChange(path, name, divisor="tp.size()")
    return AttributeChange(path, name, value=local)


def attribute_changes(
    facts: ModelFacts,
    extents: Sequence[LocalExtent],
    tp: int,
    read: Callable[[str], str],
) -> list[AttributeChange]:
    """Integer attributes of library modules that must become local, because their source stays.

    An extent that the source takes from a tensor's own shape, or writes as -1, needs no change.

    Args:
        tp: size of the tensor-parallel mesh dim.
        read: gives the text of a source file.
    """
    out: list[AttributeChange] = []
    for extent in extents:
        fact = facts.find(extent.module)
        tree = ast.parse(read(extent.file))
        if fact is None:
            continue
        sites = _sites(tree, extent.line, len(extent.whole))
        for site in sites:
            function = _function_at(tree, site.call.lineno)
            if function is None:
                continue
            if site.method == "split":
                names = _attributes(tree, function, site.extents[0])
                for name in [n for n in names if n in fact.ints]:
                    out.append(_change(fact, extent.module, name, fact.ints[name] // tp, tp))
                continue
            for index in _differing(extent):
                for name in _attributes(tree, function, site.extents[index]):
                    if fact.ints.get(name) == extent.whole[index]:
                        out.append(_change(fact, extent.module, name, extent.local[index], tp))
    return list(dict.fromkeys(out))


def group_changes(
    facts: ModelFacts, modules: Iterable[ModulePlan], tp: int, read: Callable[[str], str]
) -> list[AttributeChange]:
    """The number of times a key/value head is repeated, where each rank has one such head.

    It is the attribute that reaches an `expand` in the source of the attention module.
    """
    out: list[AttributeChange] = []
    for m in [m for m in modules if m.style == "kv_column"]:
        path = m.path.rpartition(".")[0]
        fact = facts.find(path)
        forward = facts.forwards.get(fact.kind) if fact else None
        if fact is None or forward is None:
            continue
        tree = ast.parse(read(forward.file))
        for site in [s for s in map(_site, ast.walk(tree)) if s and s.method == "expand"]:
            function = _function_at(tree, site.call.lineno)
            names = (
                [n for e in site.extents for n in _attributes(tree, function, e)]
                if function
                else []
            )
            for name in [n for n in names if n in fact.ints]:
                local = fact.ints[name] * m.parts // tp
                out.append(_change(fact, path, name, local, tp))
    return list(dict.fromkeys(out))
