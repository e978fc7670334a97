"""Whether an expression of Python only asks: it changes nothing, with what its names stand for.

What runs is decided by the objects that are there, not by how they are called: `mean` is a method
of a tensor, or of a module that changes it. Each name is looked up where it is met; what a step
gives is an object, or some plain value: a tensor, a number, text, or a tuple of them.
"""

# pyright: basic

import ast
import builtins
import inspect
import math
from collections.abc import Mapping
from types import MemberDescriptorType, ModuleType
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

OF_TENSORS = """all any isnan isinf isfinite count_nonzero unique diff sum mean min max amin amax
abs norm eq ne lt le gt ge equal allclose logical_and logical_or logical_not item tolist size dim
numel stride is_floating_point long int float bool double cpu detach view reshape flatten squeeze
unsqueeze"""
OF_PYTHON = "abs all any bool float int isinstance len max min range sum tuple zip"
ASKING = frozenset(OF_TENSORS.split())
"""Methods and functions of tensors that change nothing."""
PLAIN_CALLS = tuple(getattr(builtins, name) for name in OF_PYTHON.split())
"""Functions of Python that change nothing, given plain values."""
TENSORS = (torch.Tensor, nn.Parameter, FakeTensor, FunctionalTensor)
SINGLE = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis), range, slice)
SINGLE += (torch.dtype, torch.device, torch.Size, torch.SymInt, torch.SymFloat, torch.SymBool)
SEVERAL = (tuple, list, set, frozenset)
_PLAIN = object()
"""Some plain value."""


class ActsError(Exception):
    """An expression of which it is not known that it changes nothing."""


def only_asks(expression: ast.expr, names: Mapping[str, Any]) -> bool:
    """Whether an expression changes nothing; `names` are those of the place it stands at."""
    try:
        _Reader(dict(names)).read(expression)
    except ActsError:
        return False
    return True


def _is_tensor(value: Any) -> bool:
    return value is _PLAIN or type(value) in TENSORS


def _is_plain(value: Any) -> bool:
    if value is _PLAIN or type(value) in (*TENSORS, *SINGLE):
        return True
    if type(value) is dict:
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return type(value) in SEVERAL and all(map(_is_plain, value))


def _attribute(owner: Any, name: str) -> Any:
    """What is read off an object where reading runs no code of a user."""
    if _is_plain(owner):
        own: Any = getattr(owner, "__dict__", {}) if owner is not _PLAIN else {}
        if name in own:
            return own[name]
        return _PLAIN
    if isinstance(owner, ModuleType) and type(owner) is ModuleType and name in vars(owner):
        return vars(owner)[name]
    if isinstance(owner, type) or type(owner).__getattribute__ not in (
        object.__getattribute__,
        nn.Module.__getattribute__,
    ):
        raise ActsError
    held = inspect.getattr_static(type(owner), name, None)
    if isinstance(held, MemberDescriptorType):
        return getattr(owner, name)
    if hasattr(type(held), "__set__") or hasattr(type(held), "__get__"):
        raise ActsError
    own = vars(owner)
    if name in own:
        return own[name]
    if isinstance(owner, nn.Module) and type(owner).__getattr__ is nn.Module.__getattr__:
        for kept in (owner._parameters, owner._buffers, owner._modules):
            if name in kept:
                return kept[name]
    if held is None:
        raise ActsError
    return held


class _Reader:
    """Reads an expression from the inside out: what each part of it stands for."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names

    def plain(self, *parts: ast.expr | None) -> Any:
        for part in parts:
            if part is not None and not _is_plain(self.read(part)):
                raise ActsError
        return _PLAIN

    def read(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                if node.id not in self.names:
                    raise ActsError
                return self.names[node.id]
            case ast.Attribute():
                return _attribute(self.read(node.value), node.attr)
            case ast.Call():
                return self.call(node)
            case ast.Subscript():
                return self.entry(self.read(node.value), node.slice)
            case ast.BoolOp():
                return self.plain(*node.values)
            case ast.BinOp():
                return self.plain(node.left, node.right)
            case ast.UnaryOp():
                return self.plain(node.operand)
            case ast.IfExp():
                return self.plain(node.test, node.body, node.orelse)
            case ast.Compare():
                return self.compared(node)
            case ast.Tuple() | ast.List():
                return self.plain(*node.elts)
            case ast.Slice():
                return self.plain(node.lower, node.upper, node.step)
            case ast.GeneratorExp() | ast.ListComp():
                return self.each(node)
            case _:
                raise ActsError

    def compared(self, node: ast.Compare) -> Any:
        sides = [self.read(n) for n in (node.left, *node.comparators)]
        same = all(isinstance(o, ast.Is | ast.IsNot) for o in node.ops)
        if not same and not all(map(_is_plain, sides)):
            raise ActsError
        return _PLAIN

    def entry(self, owner: Any, index: ast.expr) -> Any:
        at = self.read(index)
        if not _is_plain(at):
            raise ActsError
        if _is_plain(owner):
            return _PLAIN
        if type(owner) in (tuple, list, dict) and type(at) in (int, str):
            try:
                return owner[at]
            except LookupError:
                raise ActsError from None
        raise ActsError

    def call(self, node: ast.Call) -> Any:
        if any(k.arg in (None, "out") for k in node.keywords):
            raise ActsError
        parts = [*node.args, *(k.value for k in node.keywords)]
        match node.func:
            case ast.Attribute(owner, name):
                called = self.read(owner)
                if self.of_tensors(called, name):
                    return self.plain(*parts)
            case _:
                pass
        function = self.read(node.func)
        if function is isinstance and len(parts) == 2:
            self.read(parts[0])
            kinds = self.read(parts[1])
            kinds = kinds if type(kinds) is tuple else (kinds,)
            if all(type(k) is type or k in TENSORS for k in kinds):
                return _PLAIN
            raise ActsError
        known = any(function is f for f in PLAIN_CALLS)
        if known or (callable(function) and self.of_mathematics(function)):
            return self.plain(*parts)
        raise ActsError

    def of_tensors(self, owner: Any, name: str) -> bool:
        """Whether a method of this name is one of PyTorch that changes nothing."""
        if name not in ASKING:
            return False
        if owner is torch:
            return True
        return _is_tensor(owner) and (owner is _PLAIN or name not in vars(owner))

    def of_mathematics(self, function: Any) -> bool:
        return any(function is f for f in vars(math).values())

    def each(self, node: ast.GeneratorExp | ast.ListComp) -> Any:
        inner = _Reader(dict(self.names))
        for loop in node.generators:
            if loop.is_async or not isinstance(loop.target, ast.Name | ast.Tuple):
                raise ActsError
            inner.plain(loop.iter)
            targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
            for target in targets:
                if not isinstance(target, ast.Name):
                    raise ActsError
                inner.names[target.id] = _PLAIN
            inner.plain(*loop.ifs)
        return inner.plain(node.elt)
