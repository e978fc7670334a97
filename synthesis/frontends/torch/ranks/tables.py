"""Tables that are no parameters: what a rank holds of one that the model holds, by comparing every
entry."""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardproof.synthesis.frontends.torch.ranks.join import RankError
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh

Tables = Mapping[str, NDArray[Any]]
MOST = 8
"""Blocks of which a table is put together."""


@dataclass(frozen=True)
class _Strided:
    """A rank's chunk of each of the equal parts along a dim."""

    dim: int
    parts: int
    mesh_dim: str
    size: int

    def taken(self, b: Builder, name: str) -> str:
        """It, of a whole table."""
        shape, dim = b.types[name].shape, self.dim
        before, extent, after = shape[:dim], shape[dim], shape[dim + 1 :]
        apart = b.add("reshape", name, shape=(*before, self.parts, extent // self.parts, *after))
        own = b.add("shard_slice", apart, dim=dim + 1, mesh_dim=self.mesh_dim)
        return b.add("reshape", own, shape=(*before, extent // self.size, *after))


_Put = tuple[str, _Strided | tuple[int, list[int], int]]
"""A table of the model, and which of its entries a rank has."""


def pieces(
    program: Program, mine: Tables, whole: Tables, mesh: Mesh, rank: int, split_alone: bool = False
) -> tuple[Program, dict[str, tuple[str, ...]]]:
    """The program with tables that are this rank's chunk of one of the model's under the name of
    that, and for each the placements of which it is the chunk: `S(0)@tp`. A chunk of each of many
    parts, as heads inside a batch are, becomes that chunk of the model's; a table of other rows, as
    zigzag positions are, slices of it, in blocks of one extent. `split_alone`: only chunks."""
    coords = mesh.coords()[rank]
    used = {i.name for i in program.inputs}
    names: dict[str, str] = {}
    placed: dict[str, tuple[str, ...]] = {}
    put: dict[str, _Put] = {}
    for item in program.inputs:
        if item.role != "const" or item.name in whole:
            continue
        for name, table in whole.items():
            if _label(name) != _label(item.name):
                continue
            split = splits_of(np.asarray(mine[item.name]), np.asarray(table), mesh, coords)
            if split and name not in used and name not in placed:
                names[item.name], placed[name] = name, split
                break
        else:
            for name, table in whole.items() if not split_alone else ():
                if _label(name) != _label(item.name) or name in placed:
                    continue
                part, all_of_it = np.asarray(mine[item.name]), np.asarray(table)
                how = _strided(part, all_of_it, mesh, coords) or _blocks(part, all_of_it)
                if how:
                    put[item.name] = name, how
                    break
    found = _put_together(program, whole, put) if put else program
    if not names:
        return found, {}

    found = found.renamed(names)
    inputs = tuple(replace(i, path=names.get(i.path, i.path)) for i in found.inputs)
    return replace(found, inputs=inputs), placed


def common(mesh: Mesh, held: Sequence[Mapping[str, Sequence[str]]]) -> dict[str, str]:
    """How each table is laid out: as all ranks have it. A rank may have the chunk of several mesh
    dims, so where some ranks were not read no two may be left.

    Raises:
        RankError: there is no such placement.
    """
    found: dict[str, str] = {}
    for name in dict.fromkeys(name for tables in held for name in tables):
        same = [p for p in held[0].get(name, ()) if all(p in t.get(name, ()) for t in held)]
        if not same or (len(same) > 1 and len(held) < len(mesh.coords())):
            raise RankError(f"ranks do not lay the table {name} out in one way")
        found[name] = same[0]
    return found


def _strided(
    part: NDArray[Any], table: NDArray[Any], mesh: Mesh, coords: Mapping[str, int]
) -> _Strided | None:
    """A dim, the equal parts along it and the mesh dim, where a rank has its chunk of each part."""
    if part.ndim != table.ndim or part.dtype != table.dtype:
        return None
    for dim, extent in enumerate(table.shape):
        for name, size in mesh.dims:
            rest = table.shape[:dim] + table.shape[dim + 1 :]
            if part.shape[:dim] + part.shape[dim + 1 :] != rest or part.shape[dim] * size != extent:
                continue
            for parts in (n for n in range(2, part.shape[dim] + 1) if part.shape[dim] % n == 0):
                shape = (*table.shape[:dim], parts, size, -1, *table.shape[dim + 1 :])
                own = np.take(table.reshape(shape), coords[name], axis=dim + 1)
                if size > 1 and np.array_equal(part, own.reshape(part.shape)):
                    return _Strided(dim, parts, name, size)
    return None


def _blocks(part: NDArray[Any], table: NDArray[Any]) -> tuple[int, list[int], int] | None:
    """A dim, and the starts and the extent of the blocks along it in which a table holds a part."""
    if part.ndim != table.ndim or part.dtype != table.dtype or not part.size:
        return None
    for dim in range(table.ndim):
        lines, own = (
            [np.ascontiguousarray(line).tobytes() for line in np.moveaxis(t, dim, 0)]
            for t in (table, part)
        )
        at: list[int] = []
        for line in own:
            after = at[-1] + 1 if at else 0
            if after < len(lines) and lines[after] == line:
                at.append(after)
            elif line in lines:
                at.append(lines.index(line))
            else:
                break
        if len(at) < len(own) or part.shape[:dim] + part.shape[dim + 1 :] != (
            table.shape[:dim] + table.shape[dim + 1 :]
        ):
            continue
        ends = [i for i in range(1, len(at) + 1) if i == len(at) or at[i] != at[i - 1] + 1]
        firsts = [at[i] for i in (0, *ends[:-1])]
        extent = math.gcd(len(lines), *ends, *firsts)
        if len(at) <= MOST * extent:
            return dim, at[::extent], extent
    return None


def _put_together(program: Program, whole: Tables, put: Mapping[str, _Put]) -> Program:
    """The program with tables as chunks or slices of those of the model."""
    b = Builder(program.name, program.mesh)
    b.reserve(program.types)
    for item in program.inputs:
        if item.name not in put:
            b.input(item.name, item.type, item.role, item.path)
    given = {i.name for i in program.inputs} - put.keys()
    names: dict[str, str] = {}
    for mine, (name, how) in put.items():
        if name not in given:
            given.add(name)
            shape = whole[name].shape
            b.input(name, replace(program.types[mine], shape=shape), "const", name)
        reader = next((n for n in program.nodes if mine in n.inputs), None)
        with b.at(reader.source) if reader is not None else nullcontext():
            if isinstance(how, _Strided):
                names[mine] = how.taken(b, name)
                continue
            dim, starts, extent = how
            parts = [
                b.add("slice", name, dim=dim, start=at, stop=at + extent, step=1) for at in starts
            ]
            names[mine] = b.add("concat", *parts, dim=dim) if len(parts) > 1 else parts[0]
    for node in program.nodes:
        b.append(replace(node, inputs=tuple(names.get(v, v) for v in node.inputs)))
    for out in program.outputs:
        b.output(names.get(out.value, out.value), out.role, out.path)
    return b.build()


def _label(name: str) -> str:
    """What tells a table that may hold anything from others, behind what it is named after."""
    return name.split(".", 2)[2] if name.count(".") > 1 else ""


def splits_of(
    part: NDArray[Any], table: NDArray[Any], mesh: Mesh, coords: Mapping[str, int]
) -> tuple[str, ...]:
    """The placements of which a part is a rank's chunk of a table."""
    found: list[str] = []
    if part.ndim != table.ndim or part.dtype != table.dtype:
        return ()
    for dim in range(table.ndim):
        for name, size in mesh.dims:
            chunk, left = divmod(table.shape[dim], size)
            if left or size == 1 or part.shape[dim] != chunk:
                continue
            lines = slice(coords[name] * chunk, (coords[name] + 1) * chunk)
            if np.array_equal(part, table[(slice(None),) * dim + (lines,)]):
                found.append(f"S({dim})@{name}")
    return tuple(found)
