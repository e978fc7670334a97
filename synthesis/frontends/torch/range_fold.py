"""Comparisons and quotients that the declared range of an integer input decides.

For an input with integers from 0 to below - 1, `labels != -100` holds everywhere, and `labels // n`
is 0 for all n from below on, so that `labels % n` is `labels`. What follows from masks that hold
everywhere, or nowhere, is simplified too:

    where(true, a, b) = a        cast(true) = 1        sum of n ones = n        a / n = a (1 / n)
    not false = true        a - n 0 = a
"""

from collections.abc import Mapping
from fractions import Fraction
from math import floor

from shardproof.verifier.analysis.rewrite import Pattern, Rewriting, rewrite
from shardproof.verifier.kernel.program.program import Node, Program


def in_declared_range(program: Program, below: Mapping[str, int]) -> Program:
    """The program, where each input that `below` names has integers from 0 to that less one."""
    ranged = _Ranged({name: limit for name, limit in below.items() if limit > 0})
    patterns: dict[str, Pattern] = {
        **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), ranged.compared),
        "floor": ranged.floored,
        "sub": _rest,
        "where": _chosen,
        "logical_not": _denied,
        "cast": _cast,
        "sum": _counted,
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
        base = r.through(left, "reshape", "expand", "permute", "slice")
        limit = r.number(right)
        if base not in self.below or limit is None or r.type(base).is_float:
            return None
        truths = {
            "eq": (limit < 0 or limit >= self.below[base] or limit.denominator != 1, False),
            "ne": (limit < 0 or limit >= self.below[base] or limit.denominator != 1, True),
            "lt": (limit <= 0 or limit > self.below[base] - 1, limit > 0),
            "ge": (limit <= 0 or limit > self.below[base] - 1, limit <= 0),
            "le": (limit < 0 or limit >= self.below[base] - 1, limit >= 0),
            "gt": (limit < 0 or limit >= self.below[base] - 1, limit < 0),
        }
        decided, holds = truths[node.op]
        return _full(r, node, Fraction(int(holds))) if decided else None

    def floored(self, r: Rewriting, node: Node) -> str | None:
        """Of a share of an integer: it rises with the integer, or falls, so its ends say all."""
        made = r.made(node.inputs[0], "mul_scalar")
        share = made.attrs["value"] if made is not None else None
        if made is None or not isinstance(share, Fraction):
            return None
        base = made.inputs[0]
        while r.type(base).dtype != "bool" and (
            moved := r.made(base, "reshape", "expand", "permute", "slice", "cast")
        ):
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


def _counted(r: Rewriting, node: Node) -> str | None:
    value = r.number(node.inputs[0])
    if value is None or r.made(r.through(node.inputs[0], "reshape", "expand"), "full") is None:
        return None
    total, left = r.type(node.inputs[0]).size, r.type(node.outputs[0]).size
    return _full(r, node, value * (total // left)) if left else None


def _divided(r: Rewriting, node: Node) -> str | None:
    a, b = node.inputs
    value = r.number(b)
    kind = r.type(node.outputs[0])
    if not value or not kind.is_float or r.type(a) != kind:
        return None
    return r.add("mul_scalar", a, value=1 / value)
