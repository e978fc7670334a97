"""Which optimizer steps are watched, and whether all ranks mean the same calls by a step.

A step is over for a rank when its optimizer steps, and that is where it stops to see calls, or
sees them again. Ranks that issue a call on different sides of that line would not see the same
calls. So ranks tell each other at the end of a watched step how many calls the backend of each
group had counted by then; where the members of a group differ, the next step is watched too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from shardproof.synthesis.guard.fingerprint.mix import key as make_key
from shardproof.synthesis.guard.groups import Draw, Group

PLACE = np.dtype([("uid", "<u8"), ("size", "<u8"), ("counted", "<i8")])


@dataclass(frozen=True)
class Cycle:
    """One of so many optimizer steps is watched, drawn anew each time, the same on all ranks."""

    key: int
    steps: int

    def takes(self, step: int) -> bool:
        """Whether this step is watched. The first one is."""
        return step == 0 or Draw(make_key(self.key, "steps"), self.steps).takes(step)


def places(groups: Iterable[Group | None]) -> bytes:
    """Where this rank is in each of its groups: their number, then a `PLACE` each."""
    rows = [(g.uid, g.size, g.place) for g in list(groups) if g is not None and g.seen]
    return np.array([len(rows)], "<u8").tobytes() + np.array(rows, PLACE).tobytes()


def split(payload: bytes) -> tuple[bytes, bytes]:
    """What `places` wrote, without its length, and what comes behind it."""
    end = 8 + int(np.frombuffer(payload[:8], "<u8")[0]) * PLACE.itemsize
    return payload[8:end], payload[end:]


def aligned(rows: Sequence[bytes]) -> bool:
    """Whether all members of every group are at the same call of it, by the places of all ranks.

    A backend that does not count its calls (-1) is never found to be.
    """
    table = np.concatenate([np.frombuffer(row, PLACE) for row in rows])
    if not len(table):
        return True
    same, members = np.unique(table, return_counts=True)
    return bool(np.all(members == same["size"]) and np.all(same["counted"] >= 0))
