"""Comparisons and quotients that the declared range of an integer input decides.

For an input with integers from 0 to below - 1, `labels != -100` holds everywhere, and `labels // n`
is 0 for all n from below on, so that `labels % n` is `labels`. Where the input is joined with
numbers, as labels are that move by a token, what the comparison counts is a number. What follows
from masks that hold everywhere, or nowhere, is simplified too:

    where(true, a, b) = a        cast(true) = 1        sum of n ones = n        a / n = a (1 / n)
    not false = true        a - n 0 = a
"""

import operator
from collections.abc import Mapping
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np

from shardproof.verifier.analysis.rewrite import Pattern, Rewriting, rewrite
from shardproof.verifier.kernel.program.program import Node, Program

COMPARISONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
Bools = np.ndarray[Any, np.dtype[np.bool_]]
VIEWS = ("reshape", "expand", "permute", "slice")
MOST_NUMBERS = 1 << 24
"""Entries of a mask that are counted."""


def in_declared_range(program: Program, below: Mapping[str, int]) -> Program:
    """The program, where each input that `below` names has integers from 0 to that less one."""
    ranged = _Ranged({name: limit for name, limit in below.items() if limit > 0})
    patterns: dict[str, Pattern] = {
        **dict.fromkeys(COMPARISONS, ranged.compared),
        "floor": ranged.floored,
        "sub": _rest,
        "where": _chosen,
        "logical_not": _denied,
        "cast": _cast,
        "sum": ranged.counted,
        "div": _divided,
    }
    return rewrite(program, patterns)


def _full(r: Rewriting, node: Node, value: Fraction) -> str:
    """One number of the type of a node's result."""
    kind = r.type(node.outputs[0])
    one = r.add("full", shape=(), value=value, dtype=kind.dtype)
    return r.add("expand", one, shape=kind.shape) if kind.shape else one


class _Ranged:
    def __init__(self, below: Mapping[str, int]) -> None:
        self.below = below

    def compared(self, r: Rewriting, node: Node) -> str | None:
        left, right = node.inputs
        limit = r.number(right)
        if limit is None or r.type(left).is_float:
            return None
        truth = self._truth(r, node.op, left, limit)
        return None if truth is None else _full(r, node, Fraction(truth))

    def _truth(self, r: Rewriting, op: str, value: str, limit: Fraction) -> bool | None:
        """What the comparison of every entry gives, where it is the same."""
        base = r.through(value, *VIEWS)
        number = r.number(base)
        if number is not None:
            return COMPARISONS[op](number, limit)
        if base not in self.below:
            return None
        last = self.below[base] - 1
        if op in ("eq", "ne"):
            outside = limit < 0 or limit > last or limit.denominator != 1
            return (op == "ne") if outside else None
        ends = {COMPARISONS[op](end, limit) for end in (0, last)}
        return ends.pop() if len(ends) == 1 else None

    def counted(self, r: Rewriting, node: Node) -> str | None:
        """A sum of one number, or of a mask whose every entry is known."""
        total, left = r.type(node.inputs[0]).size, r.type(node.outputs[0]).size
        value = r.number(node.inputs[0])
        if value is not None and r.made(r.through(node.inputs[0], "reshape", "expand"), "full"):
            return _full(r, node, value * (total // left)) if left else None
        mask = r.made(node.inputs[0], "cast")
        if mask is None or r.type(mask.inputs[0]).dtype != "bool" or total > MOST_NUMBERS:
            return None
        entries = self._entries(r, mask.inputs[0])
        dims = node.numbers("dims")
        sums = None if entries is None else np.unique(entries.sum(axis=dims))
        return (
            _full(r, node, Fraction(int(sums[0]))) if sums is not None and sums.size == 1 else None
        )

    def _entries(self, r: Rewriting, mask: str) -> Bools | None:
        node = r.made(mask, *COMPARISONS, *VIEWS)
        if node is None:
            return None
        if node.op not in COMPARISONS:
            found = self._entries(r, node.inputs[0])
            return None if found is None else _viewed(node, found, r.type(mask).shape)
        limit = r.number(node.inputs[1])
        return None if limit is None else self._compared(r, node.op, node.inputs[0], limit)

    def _compared(self, r: Rewriting, op: str, value: str, limit: Fraction) -> Bools | None:
        """Whether each entry of a value is so, where that is decided of all that are joined."""
        truth, shape = self._truth(r, op, value, limit), r.type(value).shape
        if truth is not None:
            return np.broadcast_to(np.bool_(truth), shape)
        node = r.made(value, "concat", *VIEWS)
        parts = [self._compared(r, op, v, limit) for v in node.inputs] if node is not None else []
        known = [p for p in parts if p is not None]
        if node is None or len(known) < len(parts):
            return None
        if node.op == "concat":
            return np.concatenate(known, axis=node.number("dim"))
        return _viewed(node, known[0], shape)

    def floored(self, r: Rewriting, node: Node) -> str | None:
        """Of a share of an integer: it rises with the integer, or falls, so its ends say all."""
        made = r.made(node.inputs[0], "mul_scalar")
        share = made.attrs["value"] if made is not None else None
        if made is None or not isinstance(share, Fraction):
            return None
        base = made.inputs[0]
        while r.type(base).dtype != "bool" and (moved := r.made(base, *VIEWS, "cast")):
            base = moved.inputs[0]
        if base not in self.below or r.type(base).is_float:
            return None
        last = floor(share * (self.below[base] - 1))
        return _full(r, node, Fraction(0)) if last == 0 else None


def _rest(r: Rewriting, node: Node) -> str | None:
    """A value less a multiple of 0."""
    left, right = node.inputs
    multiple = r.number(r.through(right, "mul_scalar", "cast"))
    return left if multiple == 0 and r.type(left) == r.type(node.outputs[0]) else None


def _chosen(r: Rewriting, node: Node) -> str | None:
    mask, a, b = node.inputs
    truth = r.number(mask)
    if truth is None:
        return None
    chosen, kind = (a if truth else b), r.type(node.outputs[0])
    if r.type(chosen).dtype != kind.dtype:
        return None
    return chosen if r.type(chosen) == kind else r.add("expand", chosen, shape=kind.shape)


def _denied(r: Rewriting, node: Node) -> str | None:
    truth = r.number(node.inputs[0])
    return None if truth is None else _full(r, node, Fraction(int(not truth)))


def _cast(r: Rewriting, node: Node) -> str | None:
    """Of a mask alone: other numbers are left as they are written."""
    value = r.number(node.inputs[0])
    if value is None or r.type(node.inputs[0]).dtype != "bool":
        return None
    return _full(r, node, value)


def _viewed(node: Node, entries: Bools, shape: tuple[int, ...]) -> Bools:
    match node.op:
        case "slice":
            along = slice(*(node.number(name) for name in ("start", "stop", "step")))
            return entries[(slice(None),) * node.number("dim") + (along,)]
        case "permute":
            return entries.transpose(node.numbers("dims"))
        case "reshape":
            return entries.reshape(shape)
        case _:
            return np.broadcast_to(entries, shape)


def _divided(r: Rewriting, node: Node) -> str | None:
    a, b = node.inputs
    value = r.number(b)
    kind = r.type(node.outputs[0])
    if not value or not kind.is_float or r.type(a) != kind:
        return None
    return r.add("mul_scalar", a, value=1 / value)
