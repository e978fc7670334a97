"""Which ranks are unlike the others of their class, and in which line first."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher

import numpy as np

from shardproof.synthesis.frontends.rank_programs.classes import Line, TextClass, actual, text
from shardproof.synthesis.frontends.rank_programs.form import Ints, Lines
from shardproof.synthesis.frontends.rank_programs.groups import Grid, Regions
from shardproof.verifier.kernel.program.types import Affine

FEW = 3
"""A class of ranks that deviate is so many times smaller than the class they belong to."""
ALIKE = 0.5
"""So much of its lines, at least, are also those of the class it belongs to."""


def hosts(classes: Sequence[TextClass], table: Lines, grid: Grid) -> None:
    """Set for each small class the larger one whose ranks surround it."""
    if len(classes) > 4096:
        return
    regions = Regions(grid)
    bits = [regions.bits(c.ranks) for c in classes]
    kinds = [Counter(table.unnamed(int(k)) for k in table.skeleton(c.rows[0])) for c in classes]
    order = sorted(range(len(classes)), key=lambda i: -len(classes[i].ranks))
    for i in order:
        small = classes[i]
        best = ALIKE
        for k in order:
            large = classes[k]
            if len(large.ranks) < FEW * len(small.ranks):
                break
            alike = (kinds[i] & kinds[k]).total() / max(1, (kinds[i] | kinds[k]).total())
            if alike <= best:
                continue
            hull = regions.members(regions.hull(bits[i] | bits[k]))
            rest = hull & ~bits[i] & ~bits[k]
            others = [
                len(c.ranks) * FEW <= len(large.ranks)
                for c, b in zip(classes, bits, strict=True)
                if b & rest
            ]
            if all(others):
                best, small.host = alike, large
        while small.host is not None and small.host.host is not None:
            small.host = small.host.host


def _varies(line: Line) -> bool:
    """Whether ranks of a class have unlike texts on a line."""
    if line.group is not None or line.peer is not None:
        return True
    return any(isinstance(n, Affine) for n in line.numbers)


def adopt(owner: TextClass, grid: Grid) -> None:
    """Write the numbers of a class as its host does, wherever they agree on every rank."""
    if owner.host is None:
        return
    known: dict[tuple[str, ...], set[tuple[int | Affine, ...]]] = {}
    for line in owner.host.lines:
        if any(isinstance(n, Affine) for n in line.numbers):
            known.setdefault(_unnamed(line.tokens), set()).add(line.numbers)
    for j, line in enumerate(owner.lines):
        for numbers in known.get(_unnamed(line.tokens), ()):
            pairs = zip(line.numbers, numbers, strict=True)
            if all(_agree(a, b, owner, grid) for a, b in pairs):
                owner.lines[j] = replace(line, numbers=numbers)
                break


def _agree(a: int | Affine, b: int | Affine, owner: TextClass, grid: Grid) -> bool:
    return a == b or bool((_values(a, owner, grid) == _values(b, owner, grid)).all())


def _values(number: int | Affine, owner: TextClass, grid: Grid) -> Ints:
    if isinstance(number, int):
        return np.full(len(owner.ranks), number, np.int64)
    terms = dict(number.terms)
    coeffs = np.array([terms.get(n, 0) for n in grid.mesh.names], np.int64)
    return number.const + grid.coords[owner.ranks] @ coeffs


def _unnamed(tokens: tuple[str, ...]) -> tuple[str, ...]:
    return tuple("%" if t[0] == "%" else t for t in tokens)


def first_difference(
    owner: TextClass, row: int, table: Lines, grid: Grid
) -> tuple[int, str, str, int]:
    """The first line of a rank that its host would not have: its index, what the host would have,
    what stands there, and how many lines differ."""
    host = owner.host
    assert host is not None
    rank = int(owner.ranks[row])
    mine = table.skeleton(owner.rows[row])
    theirs = table.skeleton(host.rows[0])
    if np.array_equal(mine, theirs):
        unlike = [
            j
            for j in range(len(mine))
            if (owner.rows[row, j] != host.rows[0, j] or _varies(host.lines[j]))
            and text(host.lines[j], rank, grid) != actual(owner, row, j, table)
        ]
        j = unlike[0] if unlike else 0
        return j, text(host.lines[j], rank, grid), actual(owner, row, j, table), len(unlike)
    want = [text(line, rank, grid) for line in host.lines]
    got = [actual(owner, row, j, table) for j in range(len(mine))]
    matcher = SequenceMatcher(None, want, got, autojunk=False) if len(want) < 3000 else None
    j = next((k for k, (a, b) in enumerate(zip(want, got, strict=False)) if a != b), -1)
    if j < 0:
        j = min(len(want), len(got))
    count = (
        sum(max(b - a, d - c) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal")
        if matcher is not None
        else sum(a != b for a, b in zip(want, got, strict=False))
    )
    expected = want[j] if j < len(want) else "no more lines"
    found = got[j] if j < len(got) else "no more lines"
    return min(j, len(got) - 1), expected, found, max(count, 1)
