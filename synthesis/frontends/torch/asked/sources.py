"""Compiles the user's files so that what they ask, and what they catch, is seen while they are
traced.

Each file is compiled from its syntax tree. What a call calls is handed to `answers.called`, an
attribute that a traced tensor has otherwise than a real one to `answers.read`, and every `except`,
`with` and `finally` shows the exception at hand to `caught.passing`. Line numbers stay, and what
the code does on real tensors stays as well. Files of packages are left as they are.
"""

# pyright: basic
# (Loaders are replaced.)

import ast
import builtins
import importlib.machinery
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from shardproof.synthesis.frontends.torch.asked import answers, caught
from shardproof.synthesis.frontends.torch.homes import is_users

T = TypeVar("T", bound=ast.AST)
_NAMES = {
    "__shardproof_called__": answers.called,
    "__shardproof_read__": answers.read,
    "__shardproof_passing__": caught.passing,
    "__shardproof_ordered__": answers.ordered,
}
_CALLED, _READ, _PASSING, _ORDERED = _NAMES
_GOES_THROUGH = frozenset(
    ("list", "tuple", "enumerate", "zip", "iter", "map", "filter", "dict", "deque", "reduce")
)
_METHODS = frozenset(("join", "extend", "fromkeys", "pop", "from_iterable", "reduce"))
"""Functions and methods that go through what they are given, or are methods of."""
_BY_KEY = frozenset(("sorted", "min", "max"))
"""Functions of which the result does not depend on the order, but among equal keys."""


@contextmanager
def sources_watched() -> Iterator[None]:
    """Files of the user's that are imported inside are compiled so."""
    loader: Any = importlib.machinery.SourceFileLoader
    original = loader.get_code
    watch_sources()
    try:
        yield
    finally:
        loader.get_code = original


def watch_sources() -> None:
    """From now on, files of the user's that this process imports are compiled so."""
    loader: Any = importlib.machinery.SourceFileLoader
    if is_watching():
        return
    original = loader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        path = self.get_filename(fullname)
        if not is_users(path):
            return original(self, fullname)
        tree = ast.parse(self.get_data(path), path)
        return compile(seen(tree), path, "exec", dont_inherit=True)

    get_code.watches = True
    loader.get_code = get_code
    answers.no_other_kernels()
    for name, function in _NAMES.items():
        setattr(builtins, name, function)


def is_watching() -> bool:
    """Whether this process compiles the user's files so."""
    return getattr(importlib.machinery.SourceFileLoader.get_code, "watches", False)


def seen(tree: T) -> T:
    """The tree with what it asks and catches seen."""
    return ast.fix_missing_locations(_Seen().visit(tree))


class _Seen(ast.NodeTransformer):
    def __init__(self) -> None:
        self.of_sys: dict[str, str] = {}
        """Names under which the file imports what `sys` has."""

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if method == "pop" and not node.args and isinstance(node.func, ast.Attribute):
            node.func.value = _gone_through(node.func.value)
        if called not in answers.OF_KINDS:
            node.args = [_handed_on(a) for a in node.args]
            for keyword in node.keywords:
                keyword.value = _handed_on(keyword.value)
        by_key = called in _BY_KEY and any(k.arg == "key" for k in node.keywords)
        if by_key or called in _GOES_THROUGH or method in _METHODS:
            node.args = [_gone_through(a) for a in node.args]
        if called not in answers.OF_THE_FRAME:
            node.func = _through(_CALLED, node.func, node.func)
        return node

    def visit_For(self, node: ast.For) -> Any:
        self.generic_visit(node)
        node.iter = _gone_through(node.iter)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        self.generic_visit(node)
        node.iter = _gone_through(node.iter)
        return node

    def visit_Starred(self, node: ast.Starred) -> Any:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = _gone_through(node.value)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        if node.module == "sys":
            self.of_sys |= {a.asname or a.name: a.name for a in node.names}
        return node

    def visit_Name(self, node: ast.Name) -> Any:
        name = self.of_sys.get(node.id)
        if name not in answers.ATTRIBUTES or not isinstance(node.ctx, ast.Load):
            return node
        module = ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant("sys")], [])
        return _through(_READ, node, module, ast.Constant(name))

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load) or node.attr not in answers.ATTRIBUTES:
            return node
        return _through(_READ, node, node.value, ast.Constant(node.attr))

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> Any:
        self.generic_visit(node)
        node.body.insert(0, _noted(node))
        return node

    def visit_Try(self, node: ast.Try) -> Any:
        self.generic_visit(node)
        if not node.handlers:
            node.handlers = [_shown(node)]
        return node

    def visit_With(self, node: ast.With) -> Any:
        self.generic_visit(node)
        node.body = [ast.copy_location(ast.Try(node.body, [_shown(node)], [], []), node)]
        return node

    # What is no expression that runs, or must stay as it is written.

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_arguments(self, node: ast.arguments) -> Any:
        node.defaults = [self.visit(d) for d in node.defaults]
        node.kw_defaults = [d if d is None else self.visit(d) for d in node.kw_defaults]
        return node

    def _function(self, node: Any) -> Any:
        returns, node.returns = node.returns, None
        self.generic_visit(node)
        node.returns = returns
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        return self._function(node)

    def visit_match_case(self, node: ast.match_case) -> Any:
        node.guard = node.guard and self.visit(node.guard)
        node.body = [self.visit(statement) for statement in node.body]
        return node


def _gone_through(value: ast.expr) -> ast.expr:
    """What may be a set; of what is written as something else, that is known."""
    plain = (ast.List, ast.Tuple, ast.Dict, ast.Constant, ast.Starred, ast.ListComp, ast.JoinedStr)
    return value if isinstance(value, plain) else _through(_ORDERED, value, value)


def _handed_on(value: ast.expr) -> ast.expr:
    """A function that is given to another, which calls it."""
    plain = isinstance(value, ast.Name) and value.id in answers.PLAIN
    method = isinstance(value, ast.Attribute) and value.attr in answers.MEMORY
    return _through(_CALLED, value, value) if plain or method else value


def _through(name: str, at: ast.expr, *args: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), list(args), []), at)


def _noted(at: Any) -> ast.stmt:
    call = ast.Call(ast.Name(_PASSING, ast.Load()), [], [])
    return ast.copy_location(ast.Expr(call), at)


def _shown(at: Any) -> ast.ExceptHandler:
    """Shows an exception, and lets it pass."""
    again = ast.copy_location(ast.Raise(None, None), at)
    return ast.copy_location(ast.ExceptHandler(None, None, [_noted(at), again]), at)
