"""Terms over blocks of two indices, beside a comparison of these: a mask that holds for all of a
block is not written by who works on that block alone.

    [j <= i] on rows and columns of n  =  [j <= i] on the blocks of the diagonal
                                          + 1 on the blocks below it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from typing import TYPE_CHECKING

from verifier.indexed.affine import AFFINE
from verifier.indexed.form import Factor, Index, Mono, ranged

if TYPE_CHECKING:
    from verifier.indexed.sums import Sums

MAX_EDGES = 17
Item = tuple[Fraction, Mono]
Side = tuple[int, int]
Mask = tuple[str, int, int, int]
"""A comparison: its kind, the offset, the steps of the two indices."""


@dataclass(frozen=True)
class Member:
    """A term, with its two indices, the comparisons of these and the block they run over."""

    at: int
    names: tuple[int, int]
    masks: frozenset[Mask]
    box: tuple[Side, Side]


class Grid:
    """Joins terms over one set of variables."""

    def __init__(self, sums: Sums) -> None:
        self.sums, self.space = sums, sums.space

    def joined(self, items: list[Item]) -> list[Item] | None:
        """The terms, some of them as one; None where none can be joined."""
        for at, (_, mono) in enumerate(items):
            for names in self._pairs(mono):
                members = self._members(items, at, names)
                made = self._joined(items, members) if len(members) > 1 else None
                if made is not None:
                    gone = {m.at for m in members}
                    return [made, *(x for k, x in enumerate(items) if k not in gone)]
        return None

    def _pairs(self, mono: Mono) -> Iterator[tuple[int, int]]:
        """Pairs of indices that a term compares."""
        inside = {v for f in mono.factors for v in ranged(Mono((f,)))}
        seen: set[tuple[int, int]] = set()
        for f in mono.factors:
            steps = self.space.steps(f.places[0]) if f.head[0] in AFFINE else ()
            names = tuple(sorted(v for v, _ in steps))
            if len(names) == 2 and not inside & set(names) and names not in seen:
                seen.add(names)
                yield names[0], names[1]

    def _members(self, items: list[Item], at: int, names: tuple[int, int]) -> list[Member]:
        """The terms that are the given one but for ranges and comparisons of two indices."""
        bound = items[at][1].bound
        asked = self._text(items[at][1], names)
        out: list[Member] = []
        for k, (_, mono) in enumerate(items):
            choices = [mono.bound if v in bound else (v,) for v in names]
            for pair in product(*choices):
                if pair[0] != pair[1] and self._text(mono, (pair[0], pair[1])) == asked:
                    out.append(self._member(k, mono, (pair[0], pair[1])))
                    break
        return out

    def _over(self, f: Factor, names: tuple[int, int]) -> bool:
        return f.head[0] in AFFINE and {v for v, _ in self.space.steps(f.places[0])} <= set(names)

    def _bare(self, mono: Mono, names: tuple[int, int]) -> Mono:
        """The term without comparisons of two indices, with the ranges of both written out."""
        kept = tuple(f for f in mono.factors if not self._over(f, names))
        bare = Mono(kept, mono.bound, mono.ranges)
        return self.sums.shown(self.sums.shown(bare, names[0]), names[1])

    def _text(self, mono: Mono, names: tuple[int, int]) -> str:
        masked = {names[0]: "first", names[1]: "second"}
        return self.sums.writer.mono(self._bare(mono, names), {}, 0, masked)

    def _member(self, at: int, mono: Mono, names: tuple[int, int]) -> Member:
        masks = {self._mask(f, names) for f in mono.factors if self._over(f, names)}
        first, second = (self.sums.range_of(mono, v) for v in names)
        return Member(at, names, frozenset(masks), (first, second))

    def _mask(self, f: Factor, names: tuple[int, int]) -> Mask:
        (place,) = f.places
        steps = dict(self.space.steps(place))
        return f.head[0], place.offset, steps.get(names[0], 0), steps.get(names[1], 0)

    def _joined(self, items: list[Item], members: list[Member]) -> Item | None:
        """One term for all members; None where these do not make one up."""
        masks = frozenset(mask for m in members for mask in m.masks)
        edges = [sorted({e for m in members for e in m.box[k]}) for k in (0, 1)]
        if any(len(e) > MAX_EDGES for e in edges):
            return None
        value: Fraction | None = None
        for first, second in product(*(list(pairwise(e)) for e in edges)):
            known = {mask: self._known(mask, (first, second)) for mask in masks}
            total = Fraction(0)
            for m in members:
                inside = all(
                    b[0] <= c[0] and c[1] <= b[1]
                    for b, c in zip(m.box, (first, second), strict=True)
                )
                if not inside or any(known[mask] == 0 for mask in m.masks):
                    continue
                if any(known[mask] != 1 for mask in masks - m.masks):
                    return None
                total += items[m.at][0]
            if any(v == 0 for v in known.values()):
                continue
            if value is not None and total != value:
                return None
            value = total
        if not value:
            return None
        return value, self._whole(items[members[0].at][1], members[0], masks, edges)

    def _known(self, mask: Mask, box: tuple[Side, Side]) -> int | None:
        head, offset, one, two = mask
        low, high = offset, offset
        for (start, end), n in zip(box, (one, two), strict=True):
            low, high = low + min(n * start, n * (end - 1)), high + max(n * start, n * (end - 1))
        if head == "below":
            return 1 if high <= 0 else 0 if low > 0 else None
        return 0 if low > 0 or high < 0 else None

    def _whole(
        self, mono: Mono, member: Member, masks: frozenset[Mask], edges: list[list[int]]
    ) -> Mono:
        bare = tuple(f for f in mono.factors if not self._over(f, member.names))
        added = list[Factor]()
        for head, offset, *by in sorted(masks):
            steps = tuple((v, n) for v, n in zip(member.names, by, strict=True) if n)
            added.append(Factor((head,), (Index(offset, steps),)))
        out = Mono((*bare, *added), mono.bound, mono.ranges)
        for v, along in zip(member.names, edges, strict=True):
            out = self.sums.limited(out, v, (along[0], along[-1]))
        return out
