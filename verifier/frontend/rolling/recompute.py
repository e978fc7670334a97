"""Lets the backward make its own views of what it saves.

A backward that reads a view (reshape, permute, expand) of a forward value reads the value instead
and views it again, so that a repeated block saves each value once, and no view of a parameter.
"""

from __future__ import annotations

from dataclasses import replace

from verifier.ir.program import Node, Program

VIEWS = frozenset({"reshape", "permute", "expand"})


def recompute_views(program: Program, backward: frozenset[str]) -> tuple[Program, frozenset[str]]:
    """The same program with forward views repeated in the backward, and its backward values."""
    maker = program.producers()
    types = dict(program.types)
    nodes: list[Node] = []
    more: set[str] = set(backward)
    copies: dict[tuple[str, str], str] = {}

    def copy(value: str, reader: Node) -> str:
        made = maker.get(value)
        if made is None or value in backward or made.op not in VIEWS:
            return value
        block = reader.source.module
        key = (value, block)
        if key not in copies:
            operand = copy(made.inputs[0], reader)
            name = f"{value}.{len(copies)}b"
            source = replace(made.source, module=block)
            nodes.append(Node(made.op, (operand,), (name,), made.attrs, source))
            types[name] = types[value]
            more.add(name)
            copies[key] = name
        return copies[key]

    for node in program.nodes:
        if node.outputs[0] in backward:
            node = replace(node, inputs=tuple(copy(v, node) for v in node.inputs))
        nodes.append(node)
    return replace(program, nodes=tuple(nodes), types=types), frozenset(more)
