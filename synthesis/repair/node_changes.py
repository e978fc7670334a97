"""Changes of source at one node of a file: a statement, a call, an expression, a name."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from shardproof.synthesis.emit.source import Edit
from shardproof.synthesis.repair.in_source import (
    Function,
    Module,
    Region,
    Rewrite,
    SourceFile,
    applied,
    assigned,
    base_name,
    call_name,
    groups_at,
    is_group,
)
from shardproof.synthesis.repair.looked import sets

REDUCING = {"all_reduce", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single"}
GATHERING = {"all_gather", "all_gather_into_tensor", "all_gather_tensor", "all_to_all_single"}
FOLDS = ("SUM", "AVG", "MAX")
OPPOSITE: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">", ">="),
    ast.LtE: ("<", ">=", ">"),
    ast.Gt: (">=", "<", "<="),
    ast.GtE: (">", "<=", "<"),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
}


@dataclass(frozen=True)
class At:
    """Changes of one file."""

    module: Module
    known: Mapping[str, Region]
    attributes: set[str]
    file: SourceFile
    near: set[int]
    """Lines near a fault."""

    def changes(self, node: ast.expr | ast.stmt) -> Iterator[Rewrite]:
        if isinstance(node, ast.stmt):
            yield from self.statements(node)
        elif isinstance(node, ast.Call):
            yield from self.calls(node)
        if isinstance(node, ast.expr) and node.lineno in self.near:
            yield from self.expressions(node)
        yield from self.names(node)

    def groups(self, node: ast.AST) -> list[str]:
        function = self.file.function(node)
        return groups_at(self.file, function, self.attributes, self.module.files)

    def statements(self, node: ast.stmt) -> Iterator[Rewrite]:
        file = self.file
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            name = call_name(node.value)
            talks = name in REDUCING | GATHERING or _is_dist(node.value)
            if talks or node.lineno in self.near or name.endswith("_factor"):
                yield from self.file.made(node, "drop" if talks else "scale", file.without(node))
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult | ast.Div):
            yield from self.file.made(node, "scale", file.without(node))
        if isinstance(node, ast.For) and any(map(_is_dist, ast.walk(node))):
            yield from self.file.made(node, "drop", file.without(node))
        if node.lineno not in self.near:
            return
        if isinstance(node, ast.Return):
            yield from self.addends(node)
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                function = self.file.function(node)
                if function is None or not _is_number(value, function):
                    yield from self.inserted(node, name, before=False)
            case ast.AugAssign(target=ast.Attribute(attr="grad") as target):
                yield from self.inserted(node, self.file.of(target), before=True)
            case ast.Return(value=value) if value is not None:
                first = value.elts[0] if isinstance(value, ast.Tuple) and value.elts else value
                if isinstance(first, ast.Name):
                    yield from self.inserted(node, first.id, before=True)
            case _:
                pass

    def inserted(self, node: ast.stmt, name: str, *, before: bool) -> Iterator[Rewrite]:
        """A reduction of what a statement makes or gives back."""
        function = self.file.function(node)
        forward = function is not None and function.name == "forward"
        if not self.file.has("dist") or (forward and self.module.only_gradients):
            return
        for group in self.groups(node):
            lines = [f"dist.all_reduce({name}, group={group})"]
            if before and name.isidentifier():
                lines = [f"{name} = {name}.clone()", *lines]
            yield from self.file.made(node, "insert", self.file.beside(node, lines, before=before))
            mean = [*lines[:-1], lines[-1][:-1] + ", op=dist.ReduceOp.AVG)"]
            yield from self.file.made(node, "insert", self.file.beside(node, mean, before=before))

    def calls(self, node: ast.Call) -> Iterator[Rewrite]:
        file, name = self.file, call_name(node)
        region = applied(node)
        if region and node.args:
            yield from self.file.made(node, "drop", file.put(node, file.of(node.args[0])))
            takes = self.known[region].takes if region in self.known else len(node.args)
            assert isinstance(node.func, ast.Attribute)
            for other in self.known.values():
                if other.name != region and other.takes == takes and file.has(other.name):
                    yield from self.file.made(node, "swap", file.put(node.func.value, other.name))
        elif name in REDUCING | GATHERING and node.args and not self.alone(node):
            yield from self.file.made(node, "drop", file.put(node, file.of(node.args[0])))
        if name in REDUCING:
            yield from self.folds(node)
        yield from self.grouped(node, bool(region))
        for at, keyword in enumerate(node.keywords):
            plain = isinstance(keyword.value, ast.Constant)
            if plain and (node.lineno in self.near or keyword.arg in ("scale_grads", "async_op")):
                items = [*node.args, *node.keywords]
                dropped = file.dropped(items, len(node.args) + at)
                tactic = "wait" if keyword.arg == "async_op" else "scale"
                yield from self.file.made(node, tactic, dropped)
        if region in self.known or name in REDUCING:
            yield from self.after(node)

    def alone(self, node: ast.Call) -> bool:
        """Whether nothing reads the result."""
        return isinstance(self.file.parents[node], ast.Expr)

    def folds(self, node: ast.Call) -> Iterator[Rewrite]:
        """Another reduction."""
        given = [k for k in node.keywords if k.arg == "op"]
        for fold in FOLDS:
            if given:
                value = given[0].value
                if isinstance(value, ast.Attribute) and value.attr != fold:
                    new = f"{self.file.of(value.value)}.{fold}"
                    yield from self.file.made(node, "reduce", self.file.put(value, new))
            elif fold != "SUM" and _is_dist(node):
                end = self.file.span(node)[1] - 1
                new = f", op=dist.ReduceOp.{fold}"
                yield from self.file.made(node, "reduce", Edit(end, end, new))
        for word in (a for a in node.args if isinstance(a, ast.Constant)):
            for other in ("sum", "avg", "mean") if word.value in ("sum", "avg", "mean") else ():
                yield from self.file.made(node, "reduce", self.file.put(word, f'"{other}"'))

    def grouped(self, node: ast.Call, region: bool) -> Iterator[Rewrite]:
        """Another group."""
        file = self.file
        given = [k.value for k in node.keywords if k.arg == "group"]
        if not given and region:
            given = [a for a in node.args[1:] if "group" in file.of(a) or base_name(a) == "self"]
        for group in self.groups(node):
            for now in given:
                yield from self.file.made(node, "group", file.put(now, group))
            if not given and call_name(node) in REDUCING | GATHERING and _is_dist(node):
                end = file.span(node)[1] - 1
                yield from self.file.made(node, "group", Edit(end, end, f", group={group}"))

    def after(self, node: ast.Call) -> Iterator[Rewrite]:
        """What is added before a sum over ranks is added after it."""
        file = self.file
        if not node.args:
            return
        inner, whole = node.args[0], file.function(node)
        stmt = next((n for n in file.up(node) if isinstance(n, ast.stmt)), None)
        if whole is None or stmt is None:
            return
        if isinstance(inner, ast.Name):
            makers = [
                n
                for n in ast.walk(whole)
                if isinstance(n, ast.Assign)
                and ast.unparse(n.targets[0]) == inner.id
                and n.lineno < node.lineno
            ]
            if not makers:
                return
            made = max(makers, key=lambda n: n.lineno).value
        else:
            made = inner
        for splice, addend in _addends(file, made):
            if isinstance(stmt, ast.Expr) and isinstance(inner, ast.Name):
                later = file.beside(stmt, [f"{inner.id} = {inner.id} + {addend}"])
                yield from self.file.made(node, "order", splice, later)
                continue
            start, end = file.span(node)
            if made is inner:  # the splice lies inside of the call
                text = file.text[start : splice.start] + splice.new
                text += file.text[splice.end : end]
                yield from self.file.made(node, "order", Edit(start, end, f"({text} + {addend})"))
            else:
                both = Edit(end, end, f" + {addend}"), Edit(start, start, "")
                yield from self.file.made(node, "order", splice, *both)

    def expressions(self, node: ast.expr) -> Iterator[Rewrite]:
        """Changes that only make sense close to the fault."""
        file = self.file
        if isinstance(node, ast.Constant):
            yield from self.numbers(node)
        yield from self.rows(node)
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.Mult | ast.Div):
                yield from self.file.made(node, "scale", file.put(node, file.of(node.left)))
            if isinstance(node.op, ast.Mult):
                yield from self.file.made(node, "scale", file.put(node, file.of(node.right)))
            if isinstance(node.op, ast.Add | ast.Sub):
                yield from self.file.made(node, "number", file.put(node, file.of(node.left)))
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = file.of(node.left), file.of(node.comparators[0])
            for word in OPPOSITE.get(type(node.ops[0]), ()):
                yield from self.file.made(node, "compare", file.put(node, f"{left} {word} {right}"))
        if self.is_value(node):
            yield from self.operands(node)
            yield from self.wrapped(node)

    def operands(self, node: ast.expr) -> Iterator[Rewrite]:
        """A local value that nothing reads joins a value that is made after it."""
        function, code = self.file.function(node), self.file.of(node)
        match self.file.parents[node]:
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                return  # as where the whole sum is
            case ast.BinOp():
                form = "({} {} {})"
            case _:
                form = "{} {} {}"
        if isinstance(node, ast.Name | ast.Attribute | ast.BinOp) and function is not None:
            for name in unread(function, node.lineno):
                for sign in "+-":
                    put = self.file.put(node, form.format(code, sign, name))
                    yield from self.file.made(node, "operand", put)

    def rows(self, node: ast.expr) -> Iterator[Rewrite]:
        """Another count of rows: of the next rank, of one rank, from the first of this rank on."""
        file, parent, function = self.file, self.file.parents[node], self.file.function(node)
        if function is None or not isinstance(node, ast.Name | ast.Constant):
            return
        code, args = file.of(node), [a.arg for a in function.args.args]
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mult):
            if "rank" in code:
                for more in ("+ 1", "- 1"):
                    yield from self.file.made(node, "rows", file.put(node, f"({code} {more})"))
            for group in self.groups(node) if code == "0" else ():
                yield from self.file.made(node, "rows", file.put(node, f"dist.get_rank({group})"))
        whole = file.parents[parent] if isinstance(parent, ast.Tuple) else parent
        if not isinstance(whole, ast.Assign) or is_group(node):
            return
        sizes = [a for a in args if a.endswith("_size")]
        for size in (*sizes, *(f"{a}.size()" for a in args if a.endswith("_group"))):
            yield from self.file.made(node, "rows", file.put(node, f"{code} // {size}"))
        if not isinstance(node, ast.Name) or whole is not parent:
            return
        for group in self.groups(node) if function.name == "forward" else ():
            for held in self.counts:
                new = f"{code} - dist.get_rank({group}) * self.{held}"
                yield from self.file.made(node, "rows", file.put(node, new))

    @cached_property
    def counts(self) -> list[str]:
        """Attributes of modules that are numbers: quotients of sizes."""
        pairs = [pair for node in ast.walk(self.file.tree) for pair in assigned(node)]
        out = [
            target.attr
            for target, value in pairs
            if isinstance(target, ast.Attribute)
            and isinstance(value, ast.BinOp)
            and isinstance(value.op, ast.FloorDiv)
        ]
        return list(dict.fromkeys(out))

    def addends(self, node: ast.Return) -> Iterator[Rewrite]:
        """A parameter that is nowhere read joins what is returned."""
        file, function = self.file, self.file.function(node)
        if node.value is None or function is None or function.name != "forward":
            return
        owner = file.owner(function)
        read = {ast.unparse(n) for n in ast.walk(owner or function) if isinstance(n, ast.Attribute)}
        called = {
            ast.unparse(n.func) for n in ast.walk(owner or function) if isinstance(n, ast.Call)
        }
        for name in self.module.params:
            path = f"self.{name}"
            if path not in read and path.rpartition(".")[0] not in called:
                new = f"{file.of(node.value)} + {path}"
                yield from self.file.made(node, "addend", file.put(node.value, new))

    def is_value(self, node: ast.expr) -> bool:
        """Whether a node is a tensor that something reads: an argument, a result, an operand."""
        parent = self.file.parents[node]
        if isinstance(node, ast.Constant | ast.Starred | ast.Tuple | ast.List):
            return False
        if isinstance(parent, ast.Call):
            method = isinstance(parent.func, ast.Attribute) and call_name(parent) != "apply"
            return node in parent.args[: 1 if applied(parent) or method else None]
        if isinstance(parent, ast.Tuple):
            return isinstance(self.file.parents[parent], ast.Return) and parent.elts[0] is node
        return (
            isinstance(parent, ast.Return | ast.Assign | ast.BinOp)
            and node is not getattr(parent, "op", None)
            and node not in getattr(parent, "targets", ())
        )

    def wrapped(self, node: ast.expr) -> Iterator[Rewrite]:
        """A region around a value, or a factor."""
        file, code = self.file, self.file.of(node)
        function = self.file.function(node)
        if applied(node) or function is None or function.name == "__init__":
            return
        if _is_number(node, function) or is_group(node):
            return
        backward = self.module.only_gradients
        for group in self.groups(node):
            for region in self.known.values():
                if region.takes != 2 or not file.has(region.name):
                    continue
                likely, other = region.forward, region.backward
                if backward:
                    likely, other = other, likely
                talks = REDUCING | GATHERING
                if likely & talks and not (backward and other & talks):
                    new = f"{region.name}.apply({code}, {group})"
                    yield from self.file.made(node, "apply", file.put(node, new))
            if file.has("dist"):
                inner = (
                    code if isinstance(node, ast.Name | ast.Call | ast.Attribute) else f"({code})"
                )
                for sign in "/*":
                    new = f"{inner} {sign} dist.get_world_size({group})"
                    new = f"({new})" if isinstance(file.parents[node], ast.BinOp) else new
                    yield from self.file.made(node, "scale", file.put(node, new))

    def numbers(self, node: ast.Constant) -> Iterator[Rewrite]:
        """Another constant."""
        value = node.value
        if isinstance(value, bool):
            yield from self.file.made(node, "number", self.file.put(node, str(not value)))
        elif isinstance(value, int):
            for other in dict.fromkeys((1 - value, value + 1, value - 1, -1, -value)):
                yield from self.file.made(node, "number", self.file.put(node, str(other)))
        elif isinstance(value, float):
            for size in (2, *self.module.mesh.values()):
                for other in (value * size, value / size):
                    yield from self.file.made(node, "scale", self.file.put(node, repr(other)))

    def names(self, node: ast.expr | ast.stmt) -> Iterator[Rewrite]:
        """Another mesh dim, by its name or by the arguments that are called after it."""
        file, mesh = self.file, self.module.mesh
        if isinstance(node, ast.Constant) and node.value in mesh:
            for other in mesh:
                if other != node.value:
                    yield from self.file.made(node, "group", file.put(node, f'"{other}"'))
        if not isinstance(node, Function):
            return
        for arg in (*node.args.args, *node.args.kwonlyargs):
            dim, _, what = arg.arg.partition("_")
            for other in mesh if dim in mesh and what in ("group", "rank", "size") else ():
                if other != dim:
                    yield from self.file.made(
                        node, "group", *_renamed(file, node, arg.arg, f"{other}_{what}")
                    )


COUNTS = {"size", "numel", "len", "rank", "get_rank", "get_world_size"}


def _is_number(node: ast.expr, function: Function, depth: int = 3) -> bool:
    """Whether an expression is a count, a size or a number of a rank, and no tensor."""

    def number(part: ast.expr) -> bool:
        return _is_number(part, function, depth - 1)

    match node:
        case ast.Constant(value=value):
            return isinstance(value, int)
        case ast.BinOp(left=left, right=right):
            return number(left) and number(right)
        case ast.Subscript(value=ast.Attribute(attr="shape")):
            return True
        case ast.Call():
            return call_name(node) in COUNTS
        case ast.Name(id=name):
            every = ast.walk(function) if depth > 0 else ()
            made = [n.value for n in every if isinstance(n, ast.Assign) and sets(n, name)]
            return name.endswith(("_size", "_rank")) or (bool(made) and all(map(number, made)))
        case _:
            return False


def unread(function: Function, line: int) -> list[str]:
    """Local values that are made above a line and that nothing below reads."""
    names = [n for n in ast.walk(function) if isinstance(n, ast.Name)]
    made: dict[str, int] = {}
    for name in names:
        if isinstance(name.ctx, ast.Store) and name.lineno < line:
            made[name.id] = max(made.get(name.id, 0), name.lineno)
    read = {n.id for n in names if isinstance(n.ctx, ast.Load) and n.lineno > made.get(n.id, line)}
    return [n for n in made if n not in read and not n.startswith("_")]


def _renamed(file: SourceFile, function: Function, old: str, new: str) -> Iterator[Edit]:
    for node in ast.walk(function):
        if isinstance(node, ast.arg) and node.arg == old:
            start = file.span(node)[0]
            yield Edit(start, start + len(old), new)
        elif isinstance(node, ast.Name) and node.id == old:
            yield file.put(node, new)


def _is_dist(node: ast.AST) -> bool:
    """Whether a call is one of torch.distributed that moves data."""
    return isinstance(node, ast.Call) and (
        (base_name(node.func) == "dist" and call_name(node) not in ("get_rank", "get_world_size"))
        or call_name(node) in REDUCING
    )


def _addends(file: SourceFile, node: ast.expr) -> Iterator[tuple[Edit, str]]:
    """Ways to take something away that is added to a value, and what it is."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = file.of(node.left), file.of(node.right)
        yield file.put(node, left), right
        yield file.put(node, right), left
    if call_name(node) == "linear" and isinstance(node, ast.Call):
        more = [*node.args, *node.keywords]
        if len(more) == 3:
            last = more[2]
            code = file.of(last.value if isinstance(last, ast.keyword) else last)
            yield file.dropped(more, 2), code
    if isinstance(node, ast.Call) and len(node.args) == 1 and file.has("F"):
        layer = file.of(node.func)
        if base_name(node.func) == "self" and "." in layer:
            plain = f"F.linear({file.of(node.args[0])}, {layer}.weight)"
            yield file.put(node, plain), f"{layer}.bias"
