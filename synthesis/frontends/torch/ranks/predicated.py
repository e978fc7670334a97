"""The body of an `if` on a tensor's value, where it does nothing but write into tensors.

A trace knows no values, so the body runs, and each write keeps what stood there wherever the
condition is false: both ways are in the trace. All else that a body may do is refused.
"""

# pyright: basic

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from dis import opname
from functools import cache, cached_property
from inspect import getattr_static
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.homes import is_users

_WRITES = frozenset({"add_", "sub_", "mul_", "div_", "copy_", "fill_", "zero_", "clamp_", "lerp_"})
_WRITES |= {f"_foreach_{name}" for name in _WRITES}
_WRITES |= {"__iadd__", "__isub__", "__imul__", "__idiv__", "__itruediv__"}
_NUMBERS = frozenset({"float", "int", "min", "max", "len"})
_ITERATED = {"parameters": nn.Module, "named_parameters": nn.Module, "values": dict, "items": dict}
_CONVERTED = frozenset({"to", "item", "detach", "view_as", "type_as"})
_BIND = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)
_ADDING = (ast.Add, ast.Sub, ast.Mult, ast.Div)


@dataclass(frozen=True)
class Body:
    """Of an `if` that runs just now: the frame, its first and last line, and the condition."""

    frame: FrameType
    first: int
    last: int
    condition: torch.Tensor

    def runs(self) -> bool:
        """Whether what calls this is called by a line of it."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame is not self.frame:
            frame = frame.f_back
        return frame is not None and self.first <= frame.f_lineno <= self.last

    def write(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
        """Call what writes into its first argument, and put back what stood there where the
        condition is false."""
        if func.__name__ == "__set__":  # of `p.grad *= x`, which sets what is there
            return func(*args, **kwargs)
        into = [t for t in tree_leaves(args[:1]) if isinstance(t, torch.Tensor)]
        if func.__name__ not in _WRITES or "out" in kwargs:
            raise CaptureError(
                f"{func.__name__} writes where a tensor's value decides whether it does",
                hint="compute with the condition: torch.where",
            )
        if any(isinstance(t, DTensor) for t in into) != isinstance(self.condition, DTensor):
            raise CaptureError(
                "a value of a DTensor decides what is written into a plain tensor, or the reverse",
                hint="take full_tensor() of it",
            )
        before = [t.clone() for t in into]
        result = func(*args, **kwargs)
        for t, old in zip(into, before, strict=True):
            t.copy_(torch.where(self.condition, t, old))
        return result


def asked(condition: Callable[[], torch.Tensor]) -> Body | None:
    """The body of the `if` that asks just now for the truth of a tensor with one entry; None where
    something else asks, or the body or an `else` does more than write into tensors."""
    frame = sys._getframe(1)
    while frame.f_back is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    at, file = frame.f_lasti, frame.f_code.co_filename
    place = tuple(list(frame.f_code.co_positions())[at // 2])
    operation = opname[frame.f_code.co_code[at]]
    for node in _nodes(file, ast.If):
        compares = isinstance(node.test, ast.Compare) and len(node.test.ops) == 1
        asks = operation.startswith(("POP_JUMP", "TO_BOOL"))
        asks = asks or (operation == "COMPARE_OP" and compares)
        plain = compares or isinstance(node.test, (ast.Name, ast.Attribute))
        if asks and plain and place in (_place(node), _place(node.test)):
            body = _Reading({**frame.f_globals, **frame.f_locals})
            if node.orelse or not all(map(body.writes, node.body)):
                return None
            if _read_outside(body.bound, file, node):
                return None
            last = node.body[-1].end_lineno or 0
            asks_of = condition().detach().reshape(()).clone()
            return Body(frame, node.body[0].lineno, last, asks_of)
    return None


@cache
def _tree(file: str) -> ast.Module:
    path = Path(file)
    return ast.parse(path.read_text()) if path.is_file() else ast.Module([], [])


def _nodes(file: str, kind: type[Any]) -> list[Any]:
    return [node for node in ast.walk(_tree(file)) if isinstance(node, kind)]


def _read_outside(names: set[str], file: str, branch: ast.If) -> bool:
    """Whether the function around an `if` may read names that loops inside of it bind, other than
    in loops that bind them."""
    around = [f for f in _nodes(file, ast.FunctionDef) if any(n is branch for n in ast.walk(f))]
    bound = {(id(n), name) for f in around for n, name in _bound(f)}
    read = (n for f in around[-1:] for n in ast.walk(f) if isinstance(n, ast.Name))
    return not around or any(n.id in names and (id(n), n.id) not in bound for n in read)


def _bound(function: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """The nodes of loops, each with a name that the loop binds."""
    for node in ast.walk(function):
        loops = [node] if isinstance(node, ast.For) else getattr(node, "generators", [])
        targets = [n for loop in loops for n in ast.walk(loop.target) if isinstance(n, ast.Name)]
        parts = [*node.body, node.target] if isinstance(node, ast.For) else [node]
        for part in parts if targets else ():
            yield from ((inner, t.id) for inner in ast.walk(part) for t in targets)


def _place(node: ast.stmt | ast.expr) -> tuple[int | None, ...]:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _runs_code(held: Any, name: str) -> bool:
    """Whether code of the user's may run where an attribute is read."""
    kind = type(held)
    if isinstance(held, (torch.Tensor, ModuleType)) or held is None:
        return False
    found = getattr_static(held, name, None)
    reads = kind.__getattribute__ is not object.__getattribute__
    asks = getattr(kind, "__getattr__", None) not in (None, nn.Module.__getattr__)
    return reads or (asks and found is None) or isinstance(found, (property, cached_property))


@dataclass
class _Reading:
    """Statements, with the names that they may read, to find whether they only write into
    tensors."""

    names: dict[str, Any]
    bound: set[str] = field(default_factory=set[str])
    """Names of loops."""

    def writes(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.For):
            return not statement.orelse and self._loops(statement)
        if isinstance(statement, ast.AugAssign):
            adds = isinstance(statement.op, _ADDING) and self._is_pure(statement.value)
            return adds and isinstance(self._held(statement.target), torch.Tensor)
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            return False
        into = self._held(call.func.value)
        each = call.func.attr.startswith("_foreach_") and into is torch
        pure = all(map(self._is_pure, [*call.args, *(k.value for k in call.keywords)]))
        return pure and call.func.attr in _WRITES and (each or isinstance(into, torch.Tensor))

    def _loops(self, loop: ast.For) -> bool:
        """Whether each turn of a loop over something that is there only writes into tensors."""
        call = isinstance(loop.iter, ast.Call) and not (loop.iter.args or loop.iter.keywords)
        method = loop.iter.func if isinstance(loop.iter, ast.Call) and call else None
        if isinstance(method, ast.Attribute) and method.attr in _ITERATED:
            held = self._held(method.value)
            kinds = _ITERATED[method.attr]
            turns = list(getattr(held, method.attr)()) if isinstance(held, kinds) else None
        else:
            held = self._held(loop.iter)
            turns = held if isinstance(held, (list, tuple)) else None
        targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        if turns is None or len(names) < len(targets):
            return False
        self.bound.update(names)
        for turn in turns:
            self.names.update(zip(names, turn if len(names) > 1 else [turn], strict=False))
            if not all(map(self.writes, loop.body)):
                return False
        return True

    def _held(self, value: ast.expr) -> Any:
        """What a name or an attribute holds; None for another expression."""
        if isinstance(value, ast.Name):
            return self.names.get(value.id)
        if not isinstance(value, ast.Attribute):
            return None
        held = self._held(value.value)
        return None if _runs_code(held, value.attr) else getattr(held, value.attr, None)

    def _is_pure(self, value: ast.expr) -> bool:
        """Whether an expression changes nothing: it calls functions of torch and of numbers, and
        asks no object of the user's for more than what it holds."""
        nodes = list(ast.walk(value))
        calls = (n.func for n in nodes if isinstance(n, ast.Call))
        bases = {id(n.value) for n in nodes if isinstance(n, ast.Attribute)}
        read = [n for n in nodes if isinstance(n, (ast.Name, ast.Attribute))]
        kinds = [type(self._held(n)) for n in read if id(n) not in bases]
        plain = all(kind.__module__.partition(".")[0] in ("builtins", "torch") for kind in kinds)
        plain = plain and not any(isinstance(n, ast.Attribute) and self._runs(n) for n in read)
        binds = any(isinstance(n, _BIND) for n in nodes)
        return plain and not binds and all(map(self._is_pure_call, calls))

    def _runs(self, value: ast.Attribute) -> bool:
        return _runs_code(self._held(value.value), value.attr)

    def _is_pure_call(self, called: ast.expr) -> bool:
        if isinstance(called, ast.Name):
            return called.id in _NUMBERS and called.id not in self.names
        if not isinstance(called, ast.Attribute) or called.attr.endswith("_"):
            return False
        held = self._held(called.value)
        if called.attr in _ITERATED:
            return isinstance(held, _ITERATED[called.attr])
        if held is torch:
            return hasattr(torch.Tensor, called.attr)
        return called.attr in _CONVERTED and isinstance(held, torch.Tensor)
