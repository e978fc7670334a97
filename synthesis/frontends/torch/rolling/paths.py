"""Names of things in repeated blocks.

`model.layers.*` stands for all entries of a list when one scan covers the whole list with one kind
of block. Otherwise the Python slice is written out: `model.layers.[1:61:1]`, or, for the first of
two alternating kinds in 26 layers, `model.layers.[0:26:2]`.
"""

import re
from dataclasses import dataclass

_SLICE = re.compile(r"\[(\d+):(\d+):(\d+)\]")


@dataclass(frozen=True)
class Group:
    """One repeated block: entries start, ..., start + period * count - 1 of the list `prefix`."""

    prefix: str
    start: int
    period: int
    count: int
    """Steps of the scan; each runs `period` entries of the list."""
    total: int
    """Entries in the whole list."""
    traced: int
    """Steps that were traced and compared op by op."""

    def pattern(self, offset: int = 0) -> str:
        """Path of the entries at `offset` in the period."""
        if self.period == 1 and self.start == 0 and self.count == self.total:
            return f"{self.prefix}.*"
        stop = self.start + self.period * self.count
        return f"{self.prefix}.[{self.start + offset}:{stop}:{self.period}]"

    @property
    def patterns(self) -> tuple[str, ...]:
        return tuple(self.pattern(r) for r in range(self.period))


def members(path: str, groups: tuple[Group, ...] = ()) -> list[str]:
    """The concrete paths that a pattern stands for, in order. A plain path stands for itself."""
    found = _SLICE.search(path)
    if found:
        entries = range(*(int(n) for n in found.groups()))
        before, after = path[: found.start()], path[found.end() :]
        return [p for i in entries for p in members(f"{before}{i}{after}", groups)]
    for group in groups:
        head = f"{group.prefix}.*"
        if path == head or path.startswith(head + "."):
            rest = path[len(head) :]
            return [
                p for i in range(group.total) for p in members(f"{group.prefix}.{i}{rest}", groups)
            ]
    return [path]
