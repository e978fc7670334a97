# pyright: basic
"""A small change to code of the verifier, made while it runs and taken back."""

from __future__ import annotations
import __future__

import ast
import importlib
import inspect
import textwrap
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any


@dataclass(frozen=True)
class Edit:
    """Text of a function, and what stands in its place; or an entry of a table."""

    place: str
    """`module:function`, `module:Class.method` or `module:TABLE[key]`."""
    old: str
    """Text that the function has once; empty for an entry of a table, which may be a new one."""
    new: Any
    """Text, or the entry."""

    @property
    def room(self) -> str:
        return self.place.split(":")[0]


@contextmanager
def made(edit: Edit) -> Generator[None]:
    """The verifier with the change."""
    module, _, name = edit.place.partition(":")
    holder: Any = importlib.import_module(module)
    if name.endswith("]"):
        table, _, key = name[:-1].partition("[")
        yield from _entry(getattr(holder, table), key, edit.new)
        return
    for part in name.split("."):
        holder = inspect.getattr_static(holder, part)
    function: FunctionType = getattr(holder, "fget", None) or inspect.unwrap(holder)
    before = function.__code__
    function.__code__ = _changed(function, edit)
    try:
        yield
    finally:
        function.__code__ = before


def _entry(table: dict[str, Any], key: str, value: Any) -> Generator[None]:
    before = dict(table)
    table[key] = value
    try:
        yield
    finally:
        table.clear()
        table.update(before)


def _changed(function: FunctionType, edit: Edit) -> Any:
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(edit.old) != 1:
        raise ValueError(f"{edit.place} has {edit.old!r} {source.count(edit.old)} times")
    tree = ast.parse(source.replace(edit.old, edit.new))
    (node,) = tree.body
    assert isinstance(node, ast.FunctionDef)
    node.decorator_list = []
    flags = __future__.annotations.compiler_flag
    module = compile(tree, f"<{edit.place}>", "exec", flags=flags)
    return next(c for c in module.co_consts if inspect.iscode(c) and c.co_name == node.name)
