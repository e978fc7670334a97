"""Gives the ranks that deviate the first coordinates, so that the rest of a mesh dim can shrink.

A mesh dim is relabelled where its ranks are alike but for those that deviate: nothing names a
coordinate of it but `on(...)`, and no number that follows it elsewhere is fixed on some ranks.
"""

from __future__ import annotations

from dataclasses import replace

from verifier.contract import Contract
from verifier.ir.program import Node, Program
from verifier.ir.types import Affine, Mesh
from verifier.ir.where import Where, ranks_where

COORDINATES = ("src", "dst", "index")


def relabelled(
    program: Program, contract: Contract, coords: dict[str, int]
) -> tuple[Program, dict[str, int]]:
    """The program with the rank at these coordinates first on every mesh dim that allows it, and
    the coordinates that became 0."""
    dims = {
        name: coords[name]
        for name in program.mesh.names
        if coords.get(name) and _uniform(program, contract, name)
    }
    if not dims:
        return program, dims
    moves = {
        name: {at: 0, **{c: c + (c < at) for c in range(program.mesh[name]) if c != at}}
        for name, at in dims.items()
    }
    return _moved(program, moves), dims


def _uniform(program: Program, contract: Contract, name: str) -> bool:
    """Whether ranks along a mesh dim differ in what `on(...)` says of it alone."""
    places = (*contract.held.values(), *contract.wanted.values())
    if any(name in dict(where) for where in places):
        return False
    if not any(name in dict(node.where) for _, node in program.walk()):
        return False
    follows: set[str] = set()
    fixed: set[str] = set()
    for _, node in program.walk():
        over = node.attrs.get("mesh_dim")
        if over == name and any(key in node.attrs for key in COORDINATES):
            return False
        numbers = [v for v in node.attrs.values() if isinstance(v, Affine)]
        if any(name in dict(v.terms) for v in numbers):
            follows.add(node.op)
        elif name in dict(node.where):
            fixed.add(node.op)
    return not follows & fixed


def _moved(program: Program, moves: dict[str, dict[int, int]]) -> Program:
    def place(where: Where) -> Where:
        return _place(where, moves, program.mesh)

    def node(old: Node) -> Node:
        body = _moved(old.body, moves) if old.body is not None else None
        return replace(old, where=place(old.where), body=body)

    inputs = tuple(replace(i, where=place(i.where)) for i in program.inputs)
    return replace(program, inputs=inputs, nodes=tuple(map(node, program.nodes)))


def _place(where: Where, moves: dict[str, dict[int, int]], mesh: Mesh) -> Where:
    chosen = {
        name: [moves[name][c] for c in coords] if name in moves else list(coords)
        for name, coords in where
    }
    return ranks_where(mesh, chosen)
