"""Which ranks are unlike the others of their class, and in which line first."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np

from verifier.ingest.classes import TextClass, actual, text
from verifier.ingest.form import Lines
from verifier.ingest.groups import Grid, Regions

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
    kinds = [frozenset(table.skeleton(c.rows[0]).tolist()) for c in classes]
    order = sorted(range(len(classes)), key=lambda i: -len(classes[i].ranks))
    for i in order:
        small = classes[i]
        best = ALIKE
        for k in order:
            large = classes[k]
            if len(large.ranks) < FEW * len(small.ranks):
                break
            alike = len(kinds[i] & kinds[k]) / max(1, len(kinds[i] | kinds[k]))
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
            if owner.rows[row, j] != host.rows[0, j]
            and text(host.lines[j], rank, grid) != actual(owner, row, j, table)
        ]
        if not unlike:
            return 0, "", actual(owner, row, 0, table), 0
        j = unlike[0]
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
