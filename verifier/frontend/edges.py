"""Samples on both sides of every edge: where a little more of an input changes the code's way.

Along rays from zero the scale is searched at which the trail of conditions changes, and closed in
on. A condition that is only nearly right puts its edge elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import pairwise

SCALES = tuple(10 ** (k / 2) for k in range(-8, 9))
STEPS = 13
"""Bisections: from a ratio of 3.2 to one of 1.00014."""
MOST = 4
"""Edges of one ray."""

Trail = Callable[[float], Hashable | None]
"""The way that the code goes at a scale; None where it raises."""


def edges(trail: Trail) -> list[float]:
    """Scales just below and just above each change of way."""
    out: list[float] = []
    known = [(scale, trail(scale)) for scale in SCALES]
    for (low, before), (high, after) in pairwise(known):
        if before == after or before is None or after is None or len(out) >= 2 * MOST:
            continue
        for _ in range(STEPS):
            middle = (low * high) ** 0.5
            if trail(middle) == before:
                low = middle
            else:
                high = middle
        out += [low, high]
    return out
