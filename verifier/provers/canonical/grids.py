"""Terms over blocks of two indices, beside a comparison of these: a mask that holds for all of a
block is not written by who works on that block alone.

    x_i x_j on all pairs  =  on the pairs inside of blocks + on those between blocks

    [j <= i] on rows and columns of n  =  [j <= i] on the blocks of the diagonal
                                          + 1 on the blocks below it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise, product
from typing import TYPE_CHECKING

from shardproof.verifier.provers.canonical.affine import AFFINE
from shardproof.verifier.provers.canonical.form import Factor, Index, Mono, ranged

if TYPE_CHECKING:
    from shardproof.verifier.provers.canonical.sums import Sums

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


def _choices(members: list[Member]) -> Iterator[list[Member]]:
    """Members with the same comparisons, and with those that have some of them only."""
    for masks in dict.fromkeys(m.masks for m in members):
        alike = [m for m in members if m.masks == masks]
        within = [m for m in members if m.masks <= masks]
        yield from (found for found in (alike, within) if len(found) > 1)


def _turned(member: Member) -> Member:
    return Member(member.at, member.names, member.masks, (member.box[1], member.box[0]))


class Grid:
    """Joins terms over one set of variables."""

    def __init__(self, sums: Sums) -> None:
        self.sums, self.space = sums, sums.space

    def joined(self, items: list[Item]) -> list[Item] | None:
        """The terms, some of them as one; None where none can be joined."""
        for at, (_, mono) in enumerate(items):
            for names in self._pairs(mono):
                members = self._members(items, at, names)
                for chosen in _choices(members):
                    made = self._joined(items, chosen)
                    if made is not None:
                        gone = {m.at for m in chosen}
                        kept = [x for k, x in enumerate(items) if k not in gone]
                        return [made, *kept] if made[0] else kept
        return None

    def _pairs(self, mono: Mono) -> Iterator[tuple[int, int]]:
        """Pairs of indices that a term compares, and those of its sum that both have a range."""
        inside = {v for f in mono.factors for v in ranged(Mono((f,)))}
        seen: set[tuple[int, int]] = set()
        for f in mono.factors:
            steps = self.space.steps(f.places[0]) if f.head[0] in AFFINE else ()
            names = tuple(sorted(v for v, _ in steps))
            if len(names) == 2 and not inside & set(names) and names not in seen:
                seen.add(names)
                yield names[0], names[1]
        ranged_ = sorted(v for v, _, _ in mono.ranges if v in mono.bound and v not in inside)
        yield from (pair for pair in combinations(ranged_, 2) if pair not in seen)

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
        weights = [items[m.at][0] for m in members]
        first = items[members[0].at][1]
        if not masks and self._symmetric(first, members[0].names):
            weights = [w / 2 for w in weights for _ in range(2)]
            members = [m for one in members for m in (one, _turned(one))]
        edges = [sorted({e for m in members for e in m.box[k]}) for k in (0, 1)]
        if any(len(e) > MAX_EDGES for e in edges):
            return None
        value: Fraction | None = None
        for cell in product(*(list(pairwise(e)) for e in edges)):
            known = {mask: self._known(mask, (cell[0], cell[1])) for mask in masks}
            total = Fraction(0)
            for m, weight in zip(members, weights, strict=True):
                inside = all(
                    b[0] <= c[0] and c[1] <= b[1] for b, c in zip(m.box, cell, strict=True)
                )
                if not inside or any(known[mask] == 0 for mask in m.masks):
                    continue
                if any(known[mask] != 1 for mask in masks - m.masks):
                    return None
                total += weight
            if any(v == 0 for v in known.values()):
                continue
            if value is not None and total != value:
                return None
            value = total
        if value is None:
            return None
        return value, self._whole(first, members[0], masks, edges)

    def _symmetric(self, mono: Mono, names: tuple[int, int]) -> bool:
        """Whether a term is the same with its two indices exchanged."""
        bare = self._bare(mono, names)
        if not set(names) <= set(mono.bound):
            return False
        ways = [
            self.sums.writer.mono(bare, {}, 0, {a: "first", b: "second"})
            for a, b in (names, names[::-1])
        ]
        return ways[0] == ways[1]

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
