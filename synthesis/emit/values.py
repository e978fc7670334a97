"""What names in a function may stand for, as its source tells, whatever way is gone."""

import ast
from collections.abc import Iterator

from shardproof.synthesis.emit.extents import of_kind


def assigned(function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    """What is assigned to a name alone."""
    for node in of_kind(function, ast.Assign):
        if any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            yield node.value


def unpacked(function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    """What is assigned to a name among others: `x.size()` of `b, t, c = x.size()`."""
    for node in of_kind(function, ast.Assign):
        parts = [p for t in node.targets if isinstance(t, ast.Tuple) for p in t.elts]
        if any(isinstance(p, ast.Name) and p.id == name for p in parts):
            yield node.value


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
