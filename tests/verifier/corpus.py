"""Reads corpus files: the one-device program, the distributed one, the contract; `---` between.

A line of the contract is `input NAME LAYOUT` or `output NAME LAYOUT`. A layout is placements by
mesh dim, `dp=S(0) tp=S(1)`, or dims in brackets as ordered atoms, `[6][2 2@tp 2]`.
"""

from __future__ import annotations

import re
from pathlib import Path

from verifier.contract import Contract
from verifier.ir import Program
from verifier.ir.text import parse_text
from verifier.layout import Atom, Layout, from_placements


def read(path: Path) -> tuple[Program, Program, Contract]:
    one, many, asked = path.read_text(encoding="utf-8").split("---\n")
    sequential, distributed = parse_text(one, str(path)), parse_text(many, str(path))
    shapes = {("input", i.name): i.type.shape for i in sequential.inputs}
    shapes |= {("output", o.path): sequential.types[o.value].shape for o in sequential.outputs}
    found: dict[tuple[str, str], Layout] = {}
    for line in asked.splitlines():
        side, name, *placed = line.split(maxsplit=2)
        found[side, name] = layout("".join(placed), shapes[side, name], distributed)
    return (
        sequential,
        distributed,
        Contract(
            {name: lay for (side, name), lay in found.items() if side == "input"},
            {f"output:{name}": lay for (side, name), lay in found.items() if side == "output"},
        ),
    )


def layout(text: str, shape: tuple[int, ...], distributed: Program) -> Layout:
    if text.startswith("["):
        return Layout(tuple(_dim(d) for d in re.findall(r"\[([^]]*)\]", text)))
    chosen = dict(item.split("=") for item in text.split())
    mesh = distributed.mesh
    return from_placements(shape, [(n, mesh[n], chosen.get(n, "R")) for n in mesh.names])


def _dim(text: str) -> tuple[Atom, ...]:
    pairs = (item.partition("@") for item in text.split())
    return tuple(Atom(int(size), name or None) for size, _, name in pairs)
