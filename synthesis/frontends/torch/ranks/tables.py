"""Tables that are no parameters: what a rank holds of one that the model holds, by comparing every
entry."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh

Tables = Mapping[str, NDArray[Any]]


def pieces(
    program: Program, mine: Tables, whole: Tables, mesh: Mesh, rank: int
) -> tuple[Program, dict[str, str]]:
    """The program with tables that are this rank's chunk of one of the model's under the name of
    that, and for each the placement of which it is the chunk: `S(0)@tp`."""
    coords = mesh.coords()[rank]
    used = {i.name for i in program.inputs}
    names: dict[str, str] = {}
    placed: dict[str, str] = {}
    for item in program.inputs:
        if item.role != "const" or item.name in whole:
            continue
        for name, table in whole.items():
            if _label(name) != _label(item.name):
                continue
            split = split_of(np.asarray(mine[item.name]), np.asarray(table), mesh, coords)
            if split and name not in used and name not in placed:
                names[item.name], placed[name] = name, split
                break
    if not names:
        return program, {}

    found = program.renamed(names)
    inputs = tuple(replace(i, path=names.get(i.path, i.path)) for i in found.inputs)
    return replace(found, inputs=inputs), placed


def _label(name: str) -> str:
    """What tells a table that may hold anything from others, behind what it is named after."""
    return name.split(".", 2)[2] if name.count(".") > 1 else ""


def split_of(part: NDArray[Any], table: NDArray[Any], mesh: Mesh, coords: Mapping[str, int]) -> str:
    """The placement of which a part is a rank's chunk of a table; empty where it is none."""
    if part.ndim != table.ndim or part.dtype != table.dtype:
        return ""
    for dim in range(table.ndim):
        for name, size in mesh.dims:
            chunk, left = divmod(table.shape[dim], size)
            if left or size == 1 or part.shape[dim] != chunk:
                continue
            lines = slice(coords[name] * chunk, (coords[name] + 1) * chunk)
            if np.array_equal(part, table[(slice(None),) * dim + (lines,)]):
                return f"S({dim})@{name}"
    return ""
