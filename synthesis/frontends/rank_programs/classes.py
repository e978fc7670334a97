"""Ranks of equal skeletons, split until each class has one text with affine numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from shardproof.synthesis.frontends.rank_programs.form import HOLE, Ints, Lines, filled, keys
from shardproof.synthesis.frontends.rank_programs.groups import Grid
from shardproof.verifier.kernel.program.types import KINDS, OFFSET, Affine

PEERS = ("to", "from")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a class: a skeleton, its integers, and what stands for those of all ranks."""

    tokens: tuple[str, ...]
    numbers: tuple[int | Affine, ...]
    """Integers outside of `ranks`, `to` and `from` are these on every rank."""
    group: tuple[str, ...] | None = None
    """The communicator: mesh dims, outermost first."""
    peer: tuple[str, int, int] | None = None
    """Mesh dim, own coordinate, the peer's."""
    note: str = ""


@dataclass
class TextClass:
    """Ranks with one text."""

    ranks: Ints
    rows: NDArray[np.int32]
    """Line numbers (of `Lines`) by rank and line."""
    places: list[NDArray[np.int32]]
    """For each rank, the line of its section on which each line stands."""
    lines: list[Line] = field(default_factory=list[Line])
    host: TextClass | None = None
    """The larger class that these ranks deviate from."""

    @property
    def first(self) -> int:
        return int(self.ranks[0])


def split(raw: TextClass, table: Lines, grid: Grid, chunked: bool = True) -> list[TextClass]:
    """Classes in which every number is fixed, affine where it may be, or names a communicator.

    With `chunked`, slices that take chunks in turn are one line; else each stands as it is.
    """
    skeletons = table.skeleton(raw.rows[0])
    varying = (raw.rows != raw.rows[0]).any(axis=0)
    labels: list[Ints] = []
    symbols: dict[int, list[Line]] = {}
    """For each line, what it says by label."""
    which: dict[int, int] = {}
    fixed: list[Line] = []
    for j, skeleton in enumerate(skeletons):
        tokens = table.tokens(int(skeleton))
        names = keys(tokens)
        note = table.notes[int(skeleton)]
        talks = "ranks" in names or any(p in names for p in PEERS)
        if not names or (not varying[j] and not talks):
            row = table.numbers(raw.rows[:1, j], len(names))[0]
            fixed.append(Line(tokens, tuple(int(v) for v in row), note=note))
            continue
        values = table.numbers(raw.rows[:, j], len(names))
        label, found = _labelled(tokens, names, values, raw.ranks, grid, note, chunked)
        fixed.append(found[0])
        symbols[j] = found
        if len(found) > 1:
            which[j] = len(labels)
            labels.append(label)
    if not labels:
        return [TextClass(raw.ranks, raw.rows, raw.places, fixed)]
    rows, inverse = np.unique(np.stack(labels, axis=1), axis=0, return_inverse=True)
    out: list[TextClass] = []
    for k in range(len(rows)):
        at = np.flatnonzero(inverse.ravel() == k)
        part = TextClass(raw.ranks[at], raw.rows[at], [raw.places[i] for i in at])
        part.lines = list(fixed)
        for j, column in which.items():
            part.lines[j] = symbols[j][int(rows[k, column])]
        out.append(part)
    return out


def _labelled(
    tokens: tuple[str, ...],
    names: tuple[str, ...],
    values: Ints,
    ranks: Ints,
    grid: Grid,
    note: str,
    chunked: bool,
) -> tuple[Ints, list[Line]]:
    """Ranks with one label have the line of that label; the commonest comes first."""
    columns: list[Sequence[object]] = []
    group = [i for i, n in enumerate(names) if n == "ranks"]
    peer = [i for i, n in enumerate(names) if n in PEERS]
    numbers: list[Sequence[int | Affine]] = [[] for _ in names]
    dims: list[tuple[str, ...] | None] = []
    others: list[tuple[str, int, int] | None] = []
    if group:
        dims = grid.cosets(ranks, values[:, group])
        columns.append([_stray(values[r, group]) if d is None else d for r, d in enumerate(dims)])
    if peer:
        others = grid.peers(ranks, values[:, peer[0]])
        columns.append([int(values[r, peer[0]]) if p is None else p for r, p in enumerate(others)])
    cut = chunked and _chunks(tokens, names, values, ranks, grid)
    for i, name in enumerate(names):
        if i in group or i in peer:
            numbers[i] = [int(v) for v in values[:, i]]
            continue
        column = _column(name, values[:, i], ranks, grid, name in _ENDS and cut)
        numbers[i] = column
        columns.append(column)
    shown: list[tuple[object, ...]] = list(zip(*columns, strict=True))
    order = [item for item, _ in Counter(shown).most_common()]
    index = {item: k for k, item in enumerate(order)}
    label = np.array([index[item] for item in shown], np.int64)
    lines: list[Line] = []
    for item in order:
        at = shown.index(item)
        named = dims[at] if group else None
        other = others[at] if peer else None
        lines.append(Line(tokens, tuple(column[at] for column in numbers), named, other, note))
    return label, lines


def _stray(members: Ints) -> tuple[int, ...]:
    """A communicator that is no coset, with a mark that no coset has."""
    return (-1, *(int(v) for v in members))


def _chunks(
    tokens: tuple[str, ...], names: tuple[str, ...], values: Ints, ranks: Ints, grid: Grid
) -> bool:
    """Whether a slice cuts a value into equal chunks, one for each rank along some mesh dims."""
    op = next((op for op in CHUNKS if op in tokens), "")
    ends = CHUNKS.get(op, ())
    if not ends or any(names.count(end) != 1 for end in ends):
        return False
    found = [grid.fit(ranks, values[:, names.index(end)]) for end in ends]
    first, last = (None if end is None else end[0] for end in found)
    return first is not None and last is not None and bool(chunks(op, first, last, grid)[0])


CHUNKS = {"slice": ("start", "stop"), "pad": ("lo", "hi")}
"""Ops by which each rank cuts a chunk, or puts one between zeros, and what says which."""


def chunks(
    op: str, first: int | Affine, last: int | Affine, grid: Grid
) -> tuple[tuple[str, ...], int]:
    """The mesh dims, outermost first, whose ranks have equal chunks in turn, and the extent of a
    chunk; no mesh dims where it is otherwise."""
    if not isinstance(first, Affine) or not isinstance(last, Affine):
        return (), 0
    if op == "pad":
        step = min((coeff for _, coeff in first.terms), default=0)
        dims, _ = chunks("slice", first, replace(first, const=step), grid)
        rest = step * math.prod(grid.mesh[n] for n in dims) - step
        after = Affine.of(rest, {n: -coeff for n, coeff in first.terms})
        return (dims, step) if last == after else ((), 0)
    step = last.const - first.const
    if first.terms != last.terms or first.const or step < 1:
        return (), 0
    order = sorted(first.terms, key=lambda term: -term[1])
    extent = step
    for name, coeff in reversed(order):
        if coeff != extent:
            return (), 0
        extent *= grid.mesh[name]
    return tuple(name for name, _ in order), step


_ENDS = frozenset(name for ends in CHUNKS.values() for name in ends)


def _column(name: str, values: Ints, ranks: Ints, grid: Grid, cut: bool) -> list[int | Affine]:
    whole: list[int | Affine] = [int(v) for v in values]
    if (values == values[0]).all() or (KINDS.get(name) is not OFFSET and not cut):
        return whole
    found = grid.fit(ranks, values)
    if found is None or not found[0].terms:
        return whole
    affine, wrong = found
    out: list[int | Affine] = [affine] * len(values)
    for row in wrong:
        out[row] = whole[row]
    return out


def text(line: Line, rank: int, grid: Grid) -> str:
    """What a rank of the class has on this line."""
    coords = {n: int(c) for n, c in zip(grid.mesh.names, grid.coords[rank], strict=True)}
    names = keys(line.tokens)
    numbers = [n.at(coords) if isinstance(n, Affine) else n for n in line.numbers]
    if line.group is not None:
        members = grid.bases(line.group)[rank] + grid.offsets(line.group)
        at = [i for i, n in enumerate(names) if n == "ranks"]
        for i, member in zip(at, members, strict=True):
            numbers[i] = int(member)
    if line.peer is not None:
        name, mine, theirs = line.peer
        stride = int(grid.strides[grid.mesh.names.index(name)])
        for i, key in enumerate(names):
            if key in PEERS:
                numbers[i] = rank + (theirs - mine) * stride
    return filled(line.tokens, numbers)


def actual(owner: TextClass, row: int, j: int, table: Lines) -> str:
    """What stands on a line of one rank."""
    tokens = table.tokens(int(table.skeleton(owner.rows[row, j : j + 1])[0]))
    numbers = table.numbers(owner.rows[row, j : j + 1], tokens.count(HOLE))[0]
    return filled(tokens, [int(v) for v in numbers])
