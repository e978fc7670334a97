"""Samples on both sides of every edge: where a little more of an input changes the code's way.

Along rays from zero the scale is searched at which a decision of the trail comes out otherwise, and
closed in on. A condition that is only nearly right puts its edge elsewhere.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise

SCALES = tuple(10 ** (k / 2) for k in range(-8, 17))
STEPS = 13
"""Bisections: from a ratio of 3.2 to one of 1.00014."""
EACH = 3
"""Edges of one decision."""
MOST = 12
"""Edges of one ray."""

Trail = Callable[[float], Sequence[tuple[Hashable, Hashable]] | None]
"""The decisions that the code takes at a scale, each with how it came out; None where it raises."""
Decision = tuple[Hashable, int]
"""What decides, and the how manieth time in one run."""


def edges(trail: Trail) -> list[float]:
    """Scales just below and just above edges of every decision."""
    out: list[float] = []
    found: Counter[Decision] = Counter()
    known = [(scale, _told(trail(scale))) for scale in SCALES]
    for (low, before), (high, after) in pairwise(known):
        if before is None or after is None:
            continue
        for decision in _changed(before, after):
            if found[decision] >= EACH or len(out) >= 2 * MOST:
                continue
            sides = _closed_in(trail, decision, (low, before), (high, after))
            out += [sides[0][0], sides[1][0]]
            found.update(_changed(sides[0][1], sides[1][1]))
    return out


Told = dict[Decision, Hashable]
Side = tuple[float, Told]


def _closed_in(trail: Trail, decision: Decision, low: Side, high: Side) -> tuple[Side, Side]:
    """The two sides of an edge of a decision that lies between two scales."""
    for _ in range(STEPS):
        middle = (low[0] * high[0]) ** 0.5
        told = _told(trail(middle))
        if told is None:
            break
        if told.get(decision) == low[1].get(decision):
            low = middle, told
        else:
            high = middle, told
    return low, high


def _told(trail: Sequence[tuple[Hashable, Hashable]] | None) -> Told | None:
    if trail is None:
        return None
    count: Counter[Hashable] = Counter()
    out: Told = {}
    for what, how in trail:
        out[what, count[what]] = how
        count[what] += 1
    return out


def _changed(before: Told, after: Told) -> list[Decision]:
    return [d for d in {**before, **after} if before.get(d) != after.get(d)]
