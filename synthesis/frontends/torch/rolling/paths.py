"""Names of things in repeated blocks.

`model.layers.*` stands for all entries of a list when one scan covers the whole list with one kind
of block. Otherwise the Python slice is written out: `model.layers.[1:61:1]`, or, for the first of
two alternating kinds in 26 layers, `model.layers.[0:26:2]`.
"""

import re
from dataclasses import dataclass

_SLICE = re.compile(r"\[(\d+):(\d+):([1-9]\d*)\]")
_MANY = re.compile(r"\*|\[(\d+):\d+:\d+\]")


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


def stacked(path: str) -> int:
    """Leading dims of a parameter in which the layers of repeated blocks are stacked."""
    return len(_MANY.findall(path))


def one_of(path: str) -> str:
    """The first concrete path that a path with `*` or a slice stands for."""
    return _MANY.sub(lambda found: found[1] or "0", path)


def covers(pattern: str, path: str) -> bool:
    """Whether a path of a plan, with `*` or a slice for an index, stands for a parameter."""
    parts, names = pattern.split("."), path.split(".")
    return len(parts) == len(names) and all(map(_stands_for, parts, names))


def _stands_for(part: str, name: str) -> bool:
    if part == name or not name.isdecimal():
        return part == name
    found = _SLICE.fullmatch(part)
    return part == "*" or (found is not None and int(name) in range(*map(int, found.groups())))
