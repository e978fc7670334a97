"""The body of an `if` on a tensor's value, where it does nothing but write into tensors.

A trace knows no values, so the body runs, and each write keeps what stood there wherever the
condition is false: both ways are in the trace. All else that a body may do is refused.
"""

# pyright: basic

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from dis import opname
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.homes import is_users

_WRITES = frozenset({"add_", "sub_", "mul_", "div_", "copy_", "fill_", "zero_", "clamp_", "lerp_"})
_WRITES |= {f"_foreach_{name}" for name in _WRITES}
_WRITES |= {"__iadd__", "__isub__", "__imul__", "__idiv__", "__itruediv__"}
_NUMBERS = frozenset({"float", "int", "min", "max", "len"})
_ITERATED = frozenset({"parameters", "named_parameters", "values", "items"})
_CONVERTED = frozenset({"to", "item", "detach", "view_as", "type_as"})
_TARGETS = (ast.Name, ast.Tuple, ast.Store)
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
            names = {
                n.id
                for statement in node.body
                for loop in ast.walk(statement)
                if isinstance(loop, ast.For)
                for n in ast.walk(loop.target)
                if isinstance(n, ast.Name)
            }
            only = all(_writes(s, frame, names) for s in node.body) and not node.orelse
            if not only or _read_outside(names, file, node):
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
    """Whether the function around an `if` may read names that loops inside of it bind."""
    inside = {id(node) for node in ast.walk(branch)}
    around = [f for f in _nodes(file, ast.FunctionDef) if any(n is branch for n in ast.walk(f))]
    read = (n for f in around[-1:] for n in ast.walk(f) if isinstance(n, ast.Name))
    other = [n for n in read if n.id in names and id(n) not in inside]
    return bool(other) or not around


def _place(node: ast.stmt | ast.expr) -> tuple[int | None, ...]:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _writes(statement: ast.stmt, frame: FrameType, bound: set[str]) -> bool:
    """Whether a statement only writes into tensors: names that are `bound` are of loops around."""
    if isinstance(statement, ast.For):
        inner = all(_writes(s, frame, bound) for s in statement.body)
        targets = all(isinstance(n, _TARGETS) for n in ast.walk(statement.target))
        return inner and targets and _is_pure(statement.iter) and not statement.orelse
    if isinstance(statement, ast.AugAssign):
        held = _held(statement.target, frame, bound)
        adds = isinstance(statement.op, _ADDING) and isinstance(held, torch.Tensor)
        return adds and _is_pure(statement.value)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    given = [*call.args, *(k.value for k in call.keywords)]
    return call.func.attr in _WRITES and all(map(_is_pure, (call.func.value, *given)))


def _held(target: ast.expr, frame: FrameType, bound: set[str]) -> Any:
    """What a name or an attribute holds when the `if` begins."""
    if isinstance(target, ast.Name) and target.id not in bound:
        return frame.f_locals.get(target.id)
    if isinstance(target, ast.Attribute):
        return getattr(_held(target.value, frame, bound), target.attr, None)
    return None


def _is_pure(value: ast.expr) -> bool:
    """Whether an expression changes nothing: it calls functions of torch and of numbers alone."""
    return all(map(_is_pure_call, _calls(value)))


def _calls(value: ast.expr) -> Iterator[ast.expr]:
    for node in ast.walk(value):
        if isinstance(node, ast.Call):
            yield node.func
        elif isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)):
            yield node


def _is_pure_call(called: ast.expr) -> bool:
    if isinstance(called, ast.Name):
        return called.id in _NUMBERS
    if not isinstance(called, ast.Attribute) or called.attr.endswith("_"):
        return False
    of_torch = isinstance(called.value, ast.Name) and called.value.id == "torch"
    of_torch = of_torch and hasattr(torch.Tensor, called.attr)
    return of_torch or called.attr in _ITERATED | _CONVERTED
