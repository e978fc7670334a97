"""Integer attributes of library modules that must become local, because their source stays."""

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from shardproof.synthesis.emit.axes import groups_of, made, over_dims
from shardproof.synthesis.emit.extents import (
    Site,
    differing,
    function_at,
    of_kind,
    site_of,
    sites,
    sites_of,
)
from shardproof.synthesis.emit.facts import ModelFacts, ModuleFact
from shardproof.synthesis.emit.values import assigned, called, calls_with, fields, unpacked
from shardproof.synthesis.planner.plan import CUT, LocalExtent, ModulePlan


@dataclass(frozen=True, slots=True)
class AttributeChange:
    """`<path>.<name>` becomes `value`, or itself divided by `divisor` (a Python expression)."""

    path: str
    name: str
    divisor: str = ""
    value: int | tuple[int, ...] = 0
    replaced: bool = False
    """Whether `forward` puts another module in the place of this one."""


@dataclass(frozen=True, slots=True)
class LengthChange:
    """The layer of einops at `path` is told of some axes that they are shorter, by `divisor`."""

    path: str
    names: tuple[str, ...]
    divisor: str


@lru_cache(16)
def parsed(text: str) -> ast.Module:
    """What a file says, to be read and not changed."""
    return ast.parse(text)


def _names(node: ast.AST) -> list[str]:
    """Names of the attributes of plain names in an expression: `self.heads`, `module.heads`."""
    return [
        leaf.attr
        for leaf in ast.walk(node)
        if isinstance(leaf, ast.Attribute) and isinstance(leaf.value, ast.Name)
    ]


@lru_cache(4096)
def attributes_of(tree: ast.AST, function: ast.FunctionDef, node: ast.expr) -> list[str]:
    """Instance attributes that `node` may take its value from, through names and calls."""
    out, told = _names(node), set[ast.AST]()
    for leaf in ast.walk(node):
        if isinstance(leaf, ast.Attribute):
            given = list(fields(function, leaf))
            told |= {leaf.value} if given else set()
            out += [name for value in given for name in _names(value)]
        elif isinstance(leaf, ast.Name) and leaf not in told:
            for value in (*assigned(function, leaf.id), *calls_with(tree, function, leaf.id)):
                out += _names(value)
    return list(dict.fromkeys(out))


def _class_at(tree: ast.AST, line: int) -> ast.AST:
    """The class that `line` lies in, else the whole file."""
    found = tree
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.lineno <= line <= (node.end_lineno or line):
            found = node
    return found


@lru_cache(512)
def _reached(tree: ast.Module, line: int) -> list[ast.FunctionDef]:
    """The function at `line` and those of the file that it calls."""
    first, known = function_at(tree, line), _functions(tree, line)
    todo, out = [first] if first else [], list[ast.FunctionDef]()
    while todo:
        function = todo.pop()
        if function in out:
            continue
        out.append(function)
        calls = (c for c in ast.walk(function) if isinstance(c, ast.Call))
        todo += [known[name] for name in map(called, calls) if name in known]
    return out


def _functions(tree: ast.Module, line: int) -> dict[str, ast.FunctionDef]:
    """What `line` may call by name: functions of the file, and methods of its class, which come
    first."""
    methods = [n for n in ast.walk(_class_at(tree, line)) if isinstance(n, ast.FunctionDef)]
    return {n.name: n for n in (*tree.body, *methods) if isinstance(n, ast.FunctionDef)}


def calls_another(tree: ast.Module, line: int) -> bool:
    """Whether a line calls a function of the file: that may write the extents."""
    known = {*_functions(tree, line), *_lambdas(tree)}
    return any(called(c) in known for c in of_kind(tree, ast.Call) if c.lineno == line)


def _lambdas(tree: ast.Module) -> list[str]:
    """Names that a lambda is assigned to."""
    given = (n for n in of_kind(tree, ast.Assign) if isinstance(n.value, ast.Lambda))
    return [t.id for n in given for t in n.targets if isinstance(t, ast.Name)]


def _change(fact: ModuleFact, path: str, name: str, local: int, tp: int) -> AttributeChange:
    whole = fact.ints[name]
    if whole == local * tp:
        return AttributeChange(path, name, divisor="tp.size()", replaced=fact.replaced)
    return AttributeChange(path, name, value=local, replaced=fact.replaced)


def owner_of(
    facts: ModelFacts, tree: ast.Module, extent: LocalExtent
) -> tuple[str, ModuleFact] | None:
    """The module that runs the line of an extent: the one that is named, or where the line is of
    another class, the one inside of it that has that class and was made in `forward`."""
    fact, kind = facts.find(extent.module), _class_at(tree, extent.line)
    if fact is not None and isinstance(kind, ast.ClassDef) and fact.kind != kind.name:
        made = [
            m
            for m in facts.modules
            if m.replaced and m.kind == kind.name and m.path.startswith(f"{fact.path}.")
        ]
        if len(made) == 1:
            return extent.module + made[0].path.removeprefix(fact.path), made[0]
    return None if fact is None else (extent.module, fact)


def attribute_changes(
    facts: ModelFacts,
    extents: Sequence[LocalExtent],
    tp: int,
    read: Callable[[str], str],
) -> list[AttributeChange]:
    """The attributes that extents of the source are written with.

    An extent that the source takes from a tensor's own shape, or writes as -1, needs no change.
    Capture sees no reshape that changes nothing, and names the line of `forward` where a method
    that it calls reshapes; so all that `forward` reaches is looked through for the same extents.

    Args:
        tp: size of the tensor-parallel mesh dim.
        read: gives the text of a source file.
    """
    out: list[AttributeChange] = []
    places: list[tuple[str, ModuleFact, ast.Module, ast.FunctionDef, Site, LocalExtent]] = []
    for extent in extents:
        tree = parsed(read(extent.file))
        owner = owner_of(facts, tree, extent)
        if owner is None:
            continue
        path, fact = owner
        if extent.op == CUT:
            out += _bounds(path, fact, tree, extent, tp)
            continue
        for site in sites_of(tree, extent):
            function = function_at(tree, site.call.lineno)
            if function is None:
                continue
            if site.method == "split":
                for name in attributes_of(tree, function, site.extents[0]):
                    if name in fact.ints:
                        out.append(_change(fact, path, name, fact.ints[name] // tp, tp))
                continue
            places.append((path, fact, tree, function, site, extent))
        for function in _reached(tree, extent.line):
            for site in _shaped(tree, function, len(extent.whole)):
                if _alike(fact, tree, function, site, extent):
                    places.append((path, fact, tree, function, site, extent))
    out += (change for place in places for change in _local(*place, tp))
    for place in places:
        known = {change.name for change in out if change.path == place[0]}
        out += _shorter_factors(*place, tp, known)
    return list(dict.fromkeys(out))


def _bounds(
    path: str, fact: ModuleFact, tree: ast.Module, extent: LocalExtent, tp: int
) -> Iterator[AttributeChange]:
    """The attributes that a cut is written with: `qkv[..., : self.width]`."""
    function, line = function_at(tree, extent.line), extent.line
    local = {extent.whole[i]: extent.local[i] for i in differing(extent)}
    bounds = [s.extents[0] for s in sites(tree, line) if s.method == "split"]
    for node in of_kind(tree, ast.Slice):
        if node.lineno <= line <= (node.end_lineno or line):
            bounds += filter(None, (node.lower, node.upper))
    for bound in bounds if function is not None else ():
        for name in attributes_of(tree, function, bound):
            if fact.sizes.get(name) == extent.whole:
                yield AttributeChange(path, name, value=extent.local, replaced=fact.replaced)
            if fact.ints.get(name) in local:
                yield _change(fact, path, name, local[fact.ints[name]], tp)


@lru_cache(512)
def _shaped(tree: ast.AST, function: ast.FunctionDef, rank: int) -> list[Site]:
    """The calls of a function that write a shape of so many extents."""
    out = [s for s in map(_created, ast.walk(function)) if s and len(s.extents) == rank]
    lines = {n.lineno for n in ast.walk(function) if isinstance(n, ast.Call)}
    seen: set[int] = set()
    for line in sorted(lines):
        for site in sites(tree, line, rank):
            if site.method != "split" and id(site.call) not in seen:
                seen.add(id(site.call))
                out.append(site)
    return out


def _created(node: ast.AST) -> Site | None:
    """Read `torch.zeros((a, b))` and `torch.zeros(a, b)`."""
    func = node.func if isinstance(node, ast.Call) else None
    if not isinstance(node, ast.Call) or not isinstance(func, ast.Attribute):
        return None
    made = isinstance(func.value, ast.Name) and func.value.id == "torch"
    if not made or func.attr not in ("zeros", "ones", "empty"):
        return None
    first = node.args[0] if node.args else None
    extents = first.elts if isinstance(first, ast.Tuple | ast.List) else node.args
    return Site(node, func.attr, tuple(extents))


def created(
    fact: ModuleFact, tree: ast.Module, extent: LocalExtent
) -> Iterator[tuple[ast.FunctionDef, Site]]:
    """The calls that make a tensor of the same extents, each with its method, where those that
    differ are written as integers of what the instance holds: `torch.zeros(b, self.config.n)`."""
    for function in _reached(tree, extent.line):
        for site in map(_created, ast.walk(function)):
            if site is None or len(site.extents) != len(extent.whole):
                continue
            written = [ast.unparse(site.extents[i]).partition(".") for i in differing(extent)]
            known = [fact.held.get(name) for owner, _, name in written if owner == "self"]
            if known == [extent.whole[i] for i in differing(extent)] != []:
                yield function, site


def _local(
    path: str,
    fact: ModuleFact,
    tree: ast.AST,
    function: ast.FunctionDef,
    site: Site,
    extent: LocalExtent,
    tp: int,
) -> list[AttributeChange]:
    return [
        _change(fact, path, name, extent.local[index], tp)
        for index in differing(extent)
        for name in telling(fact, tree, function, site, extent, index)
        if fact.ints[name] == extent.whole[index]
    ]


def _shorter_factors(
    path: str,
    fact: ModuleFact,
    tree: ast.AST,
    function: ast.FunctionDef,
    site: Site,
    extent: LocalExtent,
    tp: int,
    known: set[str],
) -> list[AttributeChange]:
    """Of an extent that is a product of attributes one is shorter: that which is `known` to be."""
    out: list[AttributeChange] = []
    for index in differing(extent):
        factors, (whole, local) = (
            _factors(function, site.extents[index]),
            (extent.whole[index], extent.local[index]),
        )
        told = [n for n in telling(fact, tree, function, site, extent, index) if n in factors]
        even = [n for n in told if fact.ints[n] % tp == 0]
        if even and known.isdisjoint(even):
            out.append(_change(fact, path, even[0], fact.ints[even[0]] * local // whole, tp))
    return out


def _factors(function: ast.FunctionDef, written: ast.expr) -> list[str]:
    """The attributes that are factors of a product: of `b * self.heads` the heads, and of `b * h`
    where `h = self.heads`."""
    if isinstance(written, ast.BinOp) and isinstance(written.op, ast.Mult):
        return _factors(function, written.left) + _factors(function, written.right)
    values = [*assigned(function, written.id)] if isinstance(written, ast.Name) else [written]
    return [name for v in values if isinstance(v, ast.Attribute) for name in _names(v)]


def telling(
    fact: ModuleFact,
    tree: ast.AST,
    function: ast.FunctionDef,
    site: Site,
    extent: LocalExtent,
    index: int,
) -> list[str]:
    """The attributes that an extent of a shape may be written with. Not one that also makes another
    extent, which stays, of what is no attribute: `width // self.heads` beside `self.heads`, unless
    that width is of a tensor that the function makes, and so is local too."""

    def known(at: int) -> list[str]:
        return [n for n in attributes_of(tree, function, site.extents[at]) if n in fact.ints]

    changed = differing(extent)
    kept = [i for i in range(len(site.extents)) if i not in changed]
    alone = (i for i in kept if len(known(i)) == 1)
    bound = {known(i)[0] for i in alone if not _is_of_made(tree, function, site.extents[i])}
    same = {n for i in kept for n in known(i) if fact.ints[n] == extent.whole[i]}
    return [name for name in known(index) if name not in bound - same]


def _is_of_made(tree: ast.AST, function: ast.FunctionDef, extent: ast.expr) -> bool:
    """Whether an extent is taken from the shape of a tensor that a function makes, or is given by
    those that make it."""
    given, todo, seen = {a.arg for a in function.args.args}, [extent], set[str]()
    while todo:
        for leaf in ast.walk(todo.pop()):
            owner = leaf.value if isinstance(leaf, ast.Attribute) else None
            if isinstance(leaf, ast.Attribute) and isinstance(owner, ast.Name):
                if leaf.attr in ("shape", "size"):
                    return owner.id not in given or _is_made_by_callers(tree, function, owner.id)
            elif isinstance(leaf, ast.Name) and leaf.id not in seen:
                seen.add(leaf.id)
                todo += (*assigned(function, leaf.id), *unpacked(function, leaf.id))
    return False


def _is_made_by_callers(tree: ast.AST, function: ast.FunctionDef, name: str) -> bool:
    """Whether what calls in the file pass for a parameter is assigned where they are, or made
    there by a call: `self.split(self.query(x))`."""
    passed = list(calls_with(tree, function, name))
    return bool(passed) and all(isinstance(v, ast.Call) or _is_assigned(tree, v) for v in passed)


def _is_assigned(tree: ast.AST, value: ast.expr) -> bool:
    caller = function_at(tree, value.lineno)
    return caller is not None and isinstance(value, ast.Name) and any(assigned(caller, value.id))


def _alike(
    fact: ModuleFact, tree: ast.AST, function: ast.FunctionDef, site: Site, extent: LocalExtent
) -> bool:
    """Whether no extent that is written with one attribute says another number.

    An extent of 1 may stand for any in what is broadcast.
    """
    for written, whole in zip(site.extents, extent.whole, strict=True):
        if isinstance(written, ast.Constant) and written.value not in (1, whole):
            return False
        known = [n for n in attributes_of(tree, function, written) if n in fact.ints]
        values = [written]
        if isinstance(written, ast.Name):
            values += [*assigned(function, written.id), *calls_with(tree, function, written.id)]
        single = all(isinstance(v, ast.Attribute | ast.Name) for v in values) and len(known) == 1
        if single and fact.ints[known[0]] != whole:
            return False
    return True


def length_changes(
    facts: ModelFacts, extents: Iterable[LocalExtent], tp: int
) -> list[LengthChange]:
    """The layers of einops whose pattern takes an axis apart that is shorter on a rank."""
    out: list[LengthChange] = []
    for extent in extents:
        fact = facts.find(extent.module)
        if fact is None:
            continue
        taken = [name for group in groups_of(fact.pattern) for name in group]
        for names in (over_dims(taken, len(extent.whole)), made(fact.pattern)):
            if len(names) != len(extent.whole):
                continue
            shorter = tuple(names[i] for i in differing(extent) if names[i] in fact.lengths)
            local = (extent.local[names.index(n)] * tp == fact.lengths[n] for n in shorter)
            if shorter and all(local):
                out.append(LengthChange(extent.module, shorter, "tp.size()"))
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
        tree = parsed(read(forward.file))
        for site in [s for s in map(site_of, ast.walk(tree)) if s and s.method == "expand"]:
            function = function_at(tree, site.call.lineno)
            names = (
                [n for e in site.extents for n in attributes_of(tree, function, e)]
                if function
                else []
            )
            for name in [n for n in names if n in fact.ints]:
                local = fact.ints[name] * m.parts // tp
                out.append(_change(fact, path, name, local, tp))
    return list(dict.fromkeys(out))
