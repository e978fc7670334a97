"""Inputs whose square root or logarithm a program takes: negative ones give no number."""

from fractions import Fraction

from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program

THROUGH = frozenset(
    {"add", "mul", "div", "mul_scalar", "add_scalar", "cast", "reshape", "permute", "expand"}
)
"""Ops through which a negative operand may reach a root."""


def under_roots(program: Program) -> set[str]:
    """The inputs that reach a root through sums and products alone; squares are left out."""
    producers = program.producers()
    names = {i.name for i in program.inputs}
    open_ = [v for node in program.nodes if _is_root(node) for v in node.inputs]
    seen: set[str] = set()
    while open_:
        value = open_.pop()
        if value in seen:
            continue
        seen.add(value)
        node = producers.get(value)
        if node is None or node.op not in THROUGH:
            continue
        if node.op == "mul" and len(set(node.inputs)) == 1:
            continue
        open_ += node.inputs
    return seen & names


def _is_root(node: Node) -> bool:
    exponent = node.attrs.get("exponent")
    broken = isinstance(exponent, Fraction) and exponent.denominator != 1
    needs = lookup(node.op).traits.needs
    return broken if "exponent" in node.attrs else needs in ("positive", "not negative")
