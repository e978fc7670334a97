"""Squares of roots, as `clip_grad_norm_` and DTensor join the norms of parts: what the root was of.

The square of sqrt(x) is x where x is never negative, so nothing is taken for granted of a sum of
squares. A factor 1 / sqrt(n), which DTensor gives a norm that n ranks have alike, is 1 / n squared.
"""

import math
from fractions import Fraction

from shardproof.verifier.analysis.rewrite import Rewriting, rewrite
from shardproof.verifier.kernel.program.program import Node, Program

LARGEST = 4096
"""Denominators of the squares that a factor is taken to be the root of."""
_KEEPS_SIGN = ("reshape", "permute", "expand", "slice", "concat", "sum", "all_reduce", "add")


def without_roots(program: Program, rounded: bool = False) -> Program:
    """The program without squares of square roots; the same where there is none. Where factors are
    `rounded`, one that is the root of a small fraction, but for rounding, is that root."""

    def squared(r: Rewriting, node: Node) -> str | None:
        first, second = node.inputs
        return _square(r, first, rounded) if first == second else None

    return rewrite(program, {"mul": squared})


def _square(r: Rewriting, value: str, rounded: bool) -> str | None:
    """The square of a value that is made of square roots, without them."""
    node = r.made(value, "sqrt", "reshape", "mul_scalar", "concat")
    if node is None:
        return None
    if node.op == "sqrt":
        inner = node.inputs[0]
        return inner if _never_negative(r, inner) else None
    parts = [_square(r, v, rounded) for v in node.inputs]
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        return None
    if node.op == "mul_scalar":
        factor = node.attrs["value"]
        assert isinstance(factor, Fraction)
        return r.add("mul_scalar", *known, value=_square_of(factor, rounded))
    return r.add(node.op, *known, **node.attrs)


def _never_negative(r: Rewriting, value: str) -> bool:
    node = r.node(value)
    if node is None or node.where:
        return False
    if node.op == "mul":
        return node.inputs[0] == node.inputs[1]
    if node.op == "mul_scalar":
        factor = node.attrs["value"]
        return isinstance(factor, Fraction) and factor >= 0 and _never_negative(r, node.inputs[0])
    kept = node.op in _KEEPS_SIGN and node.attrs.get("reduce", "sum") == "sum"
    return kept and all(_never_negative(r, v) for v in node.inputs)


def _square_of(factor: Fraction, rounded: bool) -> Fraction:
    """The square of a factor; where it is rounded, the small fraction that it is the root of."""
    near = Fraction(float(factor) ** 2).limit_denominator(LARGEST)
    close = abs(math.sqrt(near) - abs(float(factor))) <= 2 * math.ulp(float(factor))
    return near if rounded and close else factor * factor
