"""Runs a tensor program the slow way: loops over scalars, in the order of the script.

It shares the syntax tree with the lifter and nothing else: no affine forms, no axes as dims, no
array ops. Parallel loops run in order. Numbers are Python's.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from shardproof.synthesis.frontends.tir.errors import fail
from shardproof.synthesis.frontends.tir.tree import (
    COMPARISONS,
    Alloc,
    Apply,
    Const,
    Expr,
    Load,
    Place,
    Stmt,
    Store,
    TIRBlock,
    TIRBuffer,
    TIRFunc,
    TIRGrid,
    TIRVar,
)

Number = Any
Cells = dict[tuple[int, ...], Number]
"""The elements of a buffer that were written."""


def _sigmoid(x: float) -> float:
    return 0.5 * (1 + math.tanh(0.5 * x))


def _both(a: Number, b: Number) -> bool:
    return bool(a) and bool(b)


def _either(a: Number, b: Number) -> bool:
    return bool(a) or bool(b)


def _rsqrt(x: float) -> float:
    return 1 / math.sqrt(x)


def _power(x: Number, exponent: Fraction) -> Number:
    return x ** int(exponent) if exponent.denominator == 1 else x ** float(exponent)


OPERATORS = ("add", "sub", "mul", "neg", "floordiv", *COMPARISONS)
NAMED = {"div": "truediv", "floormod": "mod", "logical_not": "not_"}
"""Those that Python's `operator` calls otherwise."""
REAL = ("exp", "log", "log1p", "sqrt", "tanh", "sin", "cos", "erf", "floor")
FUNCTIONS: dict[str, Callable[..., Number]] = {
    **{name: getattr(operator, name) for name in OPERATORS},
    **{name: getattr(math, name) for name in REAL},
    **{name: getattr(operator, word) for name, word in NAMED.items()},
    "maximum": max,
    "minimum": min,
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
    "abs": abs,
    "logical_and": _both,
    "logical_or": _either,
}


def interpret(func: TIRFunc, given: Mapping[str, Any]) -> dict[str, Any]:
    """Run a function; `given` holds arrays of the parameters that start with values.

    Returns arrays of all parameters that were written.

    Raises:
        TirError: an element read before it is written, an index outside its buffer.
    """
    machine = _Machine(func)
    for param in func.params:
        cells: Cells = {}
        if param.name in given:
            array = np.asarray(given[param.name])
            cells = {i: array[i].item() for i in np.ndindex(*param.shape)}
        machine.buffers[param.name] = (param, cells)
    scope = dict(machine.buffers)
    machine.body(func.body, {}, scope)
    out: dict[str, Any] = {}
    for param in func.params:
        if param.name in machine.stored:
            cells = machine.buffers[param.name][1]
            array = np.full(param.shape, np.nan)
            for index, value in cells.items():
                array[index] = value
            out[param.name] = array
    return out


Scope = dict[str, tuple[TIRBuffer, Cells]]


class _Machine:
    def __init__(self, func: TIRFunc) -> None:
        self.func = func
        self.buffers: Scope = {}
        self.stored: set[str] = set()

    def body(self, stmts: Sequence[Stmt], env: dict[str, int], scope: Scope) -> None:
        scope = dict(scope)
        for stmt in stmts:
            match stmt:
                case Alloc(buffer=buffer):
                    scope[buffer.name] = (buffer, {})
                case TIRGrid():
                    names = [v.name for v in stmt.vars]
                    for at in product(*map(range, stmt.extents)):
                        inner = {**env, **dict(zip(names, at, strict=True))}
                        self.body(stmt.body, inner, scope)
                case TIRBlock():
                    self.block(stmt, env, scope)
                case Store():
                    self.store(stmt, env, scope)

    def block(self, stmt: TIRBlock, env: dict[str, int], scope: Scope) -> None:
        if stmt.where is not None and not self.eval(stmt.where, env, scope, stmt.place):
            return
        bound = {a.name: int(self.eval(a.binding, env, scope, a.place)) for a in stmt.axes}
        inner = {**env, **bound}
        if all(bound[a.name] == 0 for a in stmt.axes if a.kind == "R"):
            self.body(stmt.init, inner, scope)
        self.body(stmt.body, inner, scope)

    def store(self, stmt: Store, env: dict[str, int], scope: Scope) -> None:
        buffer, cells = scope[stmt.buffer]
        value = self.eval(stmt.value, env, scope, stmt.place)
        cells[self.index(buffer, stmt.indices, env, scope, stmt.place)] = value
        if any(
            stmt.buffer == p.name and cells is self.buffers[p.name][1] for p in self.func.params
        ):
            self.stored.add(stmt.buffer)

    def index(
        self,
        buffer: TIRBuffer,
        indices: Sequence[Expr],
        env: dict[str, int],
        scope: Scope,
        place: Place,
    ) -> tuple[int, ...]:
        at = tuple(int(self.eval(i, env, scope, place)) for i in indices)
        if len(at) != len(buffer.shape) or any(
            not 0 <= i < n for i, n in zip(at, buffer.shape, strict=True)
        ):
            fail(
                place,
                f"{buffer.name}{list(at)} is outside the buffer",
                expected=str(list(buffer.shape)),
            )
        return at

    def eval(self, expr: Expr, env: dict[str, int], scope: Scope, place: Place) -> Number:
        match expr:
            case Const(value=value, is_float=is_float):
                return float(value) if is_float else int(value)
            case TIRVar(name=name):
                return env[name]
            case Load():
                buffer, cells = scope[expr.buffer]
                at = self.index(buffer, expr.indices, env, scope, expr.place)
                if at not in cells:
                    shown = f"{buffer.name}{list(at)}"
                    fail(expr.place, f"{shown} is read before it is written")
                return cells[at]
            case Apply():
                return self.apply(expr, env, scope, place)

    def apply(self, expr: Apply, env: dict[str, int], scope: Scope, place: Place) -> Number:
        if expr.op == "where" and expr.attr != "eager":
            cond, then, other = expr.args
            chosen = then if self.eval(cond, env, scope, place) else other
            return self.eval(chosen, env, scope, place)
        args = [self.eval(a, env, scope, place) for a in expr.args]
        if expr.op == "cast":
            kind = str(expr.attr)
            if kind == "bool":
                return bool(args[0])
            return int(args[0]) if kind[0] in "iu" else float(args[0])
        if expr.op == "where":
            return args[1] if args[0] else args[2]
        if expr.op == "pow":
            assert isinstance(expr.attr, Fraction)
            return _power(args[0], expr.attr)
        return FUNCTIONS[expr.op](*args)
