"""Drops what no output needs."""

from __future__ import annotations

from dataclasses import replace

from verifier.kernel.program.program import Input, Node, Program

KEPT = ("param", "input", "cotangent")


def prune(program: Program, keep_roles: tuple[str, ...] = KEPT) -> Program:
    """The program without nodes and constant inputs that reach no output."""
    live = {o.value for o in program.outputs}
    nodes: list[Node] = []
    for node in reversed(program.nodes):
        if any(out in live for out in node.outputs):
            live.update(node.inputs)
            nodes.append(node)
    nodes.reverse()
    inputs: list[Input] = [i for i in program.inputs if i.role in keep_roles or i.name in live]
    names = {i.name for i in inputs} | {o for n in nodes for o in n.outputs}
    types = {name: t for name, t in program.types.items() if name in names}
    return replace(program, inputs=tuple(inputs), nodes=tuple(nodes), types=types)
