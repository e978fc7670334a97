"""What names in a function may stand for, as its source tells, whatever way is gone."""

import ast
from collections.abc import Iterator

from shardproof.synthesis.emit.extents import of_kind


def assigned(function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    """What is assigned to a name: `self.heads` of `h = self.heads`, and of `b, h = x.size(0),
    self.heads`."""
    for target, value in _assignments(function):
        if isinstance(target, ast.Name) and target.id == name:
            yield value


def unpacked(function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    """What is assigned to a name among others: `x.size()` of `b, t, c = x.size()`."""
    for target, value in _assignments(function):
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else ()
        if any(isinstance(p, ast.Name) and p.id == name for p in parts):
            yield value


def _assignments(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets, each with its value; several by place where both sides write several."""
    for node in of_kind(function, ast.Assign):
        for target in node.targets:
            yield from _paired(target, node.value)


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if not (isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List)):
        yield target, value
        return
    targets, values = list(target.elts), list(value.elts)
    for ends in (0, -1):  # from the left, then what is left from the right, up to a starred one
        while (
            targets
            and values
            and not any(isinstance(side[ends], ast.Starred) for side in (targets, values))
        ):
            yield from _paired(targets.pop(ends), values.pop(ends))
    for left in targets:
        for starred in values:
            inner = starred.value if isinstance(starred, ast.Starred) else starred
            yield ast.Tuple([left], ast.Store()), inner


def fields(function: ast.FunctionDef, read: ast.Attribute) -> Iterator[ast.expr]:
    """Of `d.n`, what is given for `n` where `d` is made: `d = Sizes(n=x.shape[0])`."""
    if isinstance(read.value, ast.Name):
        for value in assigned(function, read.value.id):
            if isinstance(value, ast.Call):
                yield from (k.value for k in value.keywords if k.arg == read.attr)


def calls_with(tree: ast.AST, function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    """What calls in the file pass to a function for its parameter `name`."""
    names = [a.arg for a in function.args.args]
    if name not in names:
        return
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and called(call) == function.name:
            method = isinstance(call.func, ast.Attribute) and names[0] == "self"
            position = names.index(name) - method
            if 0 <= position < len(call.args):
                yield call.args[position]
            yield from (k.value for k in call.keywords if k.arg == name)


def called(call: ast.Call) -> str:
    """The function that a call names: `f(x)`, or a method, `self.f(x)`."""
    func = call.func
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
        return func.attr if func.value.id == "self" else ""
    return func.id if isinstance(func, ast.Name) else ""
