"""Integers that mean something: the constants that a program compares its integer inputs with.

A label that says "leave this token out" is one, and so is a label below 0 where that is asked for.
A difference that shows only where some label is such a one is not found by drawing labels among the
classes.
"""

from fractions import Fraction

from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.ops import compares, facets

Marks = dict[str, set[int]]
ASIDE, THERE = (-1, 0, 1), (0,)
"""What is tried around a constant: where it is less or more that counts, and where it is equal."""


def marks(program: Program) -> Marks:
    """For each integer input, the constants that it, or what follows from it, is compared with.

    Where it is less or more that counts, the integers on both sides of the constant too.
    """
    found: Marks = {}
    start = {i.name: {i.name} for i in program.inputs if i.type.kind == "integer"}
    _visit(program, start, {}, found)
    return found


def _visit(
    program: Program, origin: dict[str, set[str]], known: dict[str, int], found: Marks
) -> None:
    for node in program.nodes:
        if node.body is not None:
            passed = list(zip(node.body.inputs, node.inputs, strict=True))
            inner = {i.name: origin[v] for i, v in passed if v in origin}
            _visit(node.body, inner, {i.name: known[v] for i, v in passed if v in known}, found)
            continue
        if compares(node.op):
            around = ASIDE if facets(node.op).rises else THERE
            for value, mark in (node.inputs, node.inputs[::-1]):
                for name in origin.get(value, ()) if mark in known else ():
                    found.setdefault(name, set()).update(known[mark] + step for step in around)
        reach = {o for v in node.inputs for o in origin.get(v, ())}
        for out in node.outputs:
            if program.types[out].kind != "integer":
                continue
            value = node.attrs.get("value")
            if node.op == "full" and isinstance(value, int | Fraction):
                known[out] = int(value)
            elif node.op in ("reshape", "expand", "cast") and node.inputs[0] in known:
                known[out] = known[node.inputs[0]]
            elif reach:
                origin[out] = reach
