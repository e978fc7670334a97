"""One term brought to a form: its indices, its ranges, its comparisons."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

from shardproof.verifier.provers.canonical.affine import AFFINE, INDICATORS, decided, reduced, told
from shardproof.verifier.provers.canonical.form import (
    Body,
    Factor,
    Index,
    Mono,
    Poly,
    Space,
    Writer,
    places,
    ranged,
    reads,
    renamed,
    rewritten,
)
from shardproof.verifier.provers.canonical.signs import risky

Range = tuple[int, int]


class OneTerm(ABC):
    """What is done to single terms over one space of variables."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.writer = Writer(space)

    @abstractmethod
    def add(self, polys: Iterable[Poly]) -> Poly:
        """The sum of expressions."""

    def _full(self, name: int, limits: Range) -> bool:
        return limits == (0, self.space.extents[name])

    def range_of(self, mono: Mono, name: int) -> Range:
        return next(((a, b) for v, a, b in mono.ranges if v == name), self._whole(name))

    def _whole(self, name: int) -> Range:
        return 0, self.space.extents[name]

    def _ranging(self, mono: Mono, name: int, limits: Range) -> Mono:
        kept = [r for r in mono.ranges if r[0] != name]
        if not self._full(name, limits):
            kept.append((name, *limits))
        return Mono(mono.factors, mono.bound, tuple(sorted(kept)))

    def limited(self, mono: Mono, name: int, limits: Range) -> Mono:
        """The term with another range; an index that starts at 0 ends with its extent."""
        if name not in mono.bound:
            return self._ranging(mono, name, limits)
        fresh = self.space.fresh(limits[1])
        bare = Mono(mono.factors, mono.bound, tuple(r for r in mono.ranges if r[0] != name))
        return self._ranging(renamed(self.space, bare, {name: fresh}), fresh, limits)

    def tidied(self, mono: Mono) -> tuple[Fraction, Mono]:
        """A rational factor, and the term without indices that nothing reads.

        Indices of sums that start behind an offset start at 0, those that only occur as two digits
        of one number are one index.
        """
        self.writer.check(mono)
        coef = Fraction(1)
        used = reads(self.space, Mono(mono.factors))
        for v in mono.bound:
            if v not in used:
                low, high = self.range_of(mono, v)
                coef *= high - low
        bound = tuple(v for v in mono.bound if v in used)
        kept = tuple(r for r in mono.ranges if r[0] in used or r[0] not in mono.bound)
        known = self._decided(Mono(self._told(self._powers(mono.factors)), bound, kept))
        if known is None:
            return Fraction(0), Mono()
        if known != Mono(mono.factors, bound, kept) and set(known.bound) - reads(
            self.space, Mono(known.factors)
        ):
            factor, mono = self.tidied(known)
            return coef * factor, mono
        mono = known
        kept = mono.ranges
        for v, low, high in kept:
            if v in bound and low == 0 and not any(v in ranged(Mono((f,))) for f in mono.factors):
                mono = self.limited(mono, v, (low, high))
        for v in self._outward(mono):
            mono = self._shifted(mono, v)
        for v in mono.bound:
            low, high = self.range_of(mono, v)
            if high == low + 1 and not any(v in ranged(Mono((f,))) for f in mono.factors):
                mono = self.fixed(mono, v, low)
        return coef, self._fused(mono)

    def _powers(self, factors: tuple[Factor, ...]) -> tuple[Factor, ...]:
        """Exponentials as one; an indicator once."""
        exponents = [f.args[0].poly for f in factors if f.head[0] == "exp"]
        out = [f for f in factors if f.head[0] != "exp"]
        if exponents:
            total = self.add(exponents) if len(exponents) > 1 else exponents[0]
            if total:
                out.append(Factor(("exp",), (), (Body(total),)))
        seen: set[str] = set()
        kept: list[Factor] = []
        for f in out:
            if f.head[0] in INDICATORS:
                text = self.writer.factor(f, {}, 0)
                if text in seen:
                    continue
                seen.add(text)
            kept.append(f)
        return tuple(kept)

    def _told(self, factors: tuple[Factor, ...]) -> tuple[Factor, ...]:
        """Comparisons of an integer of which an indicator says that it is a row, as of the row."""
        hots = [f for f in factors if f.head == ("hot",)]
        asked = [f for f in factors if f.head[0] in ("le0", "eq0")]
        if not hots or not asked:
            return factors
        out = list[Factor]()
        for f in factors:
            made: Factor | bool | None = None
            for hot in hots if f in asked else ():
                made = told(self.space, hot, f) if made is None else made
            if made is None:
                out.append(f)
            elif isinstance(made, Factor):
                out.append(made)
            elif not made:
                out.append(Factor(("below",), (Index(1),)))
        return tuple(out)

    def _decided(self, mono: Mono) -> Mono | None:
        """The term without comparisons that its indices decide; None where one is false.

        What may be undefined is not masked away: comparisons beside it are left.
        """
        if not any(f.head[0] in AFFINE for f in mono.factors):
            return mono
        limits = {v: (lo, hi) for v, lo, hi in mono.ranges}
        left, open_ = risky(self.space, mono), list[Factor]()
        for f in mono.factors:
            if f.head[0] not in AFFINE:
                open_.append(f)
                continue
            made = reduced(self.space, f)
            if isinstance(made, bool):
                if made:
                    continue
                if not left:
                    return None
                open_.append(f)
                continue
            found = decided(self.space, made, limits)
            if found.value == 1:
                continue
            if left or (found.value is None and not found.ranges):
                open_.append(made)
                continue
            if found.value == 0:
                return None
            for v, low, high in found.ranges:
                lo, hi = limits.get(v, (0, self.space.extents[v]))
                limits[v] = max(lo, low), min(hi, high)
                if limits[v][0] >= limits[v][1]:
                    return None
        open_ = self._strongest(open_)
        kept = tuple((v, *r) for v, r in sorted(limits.items()) if not self._full(v, r))
        made_ = Mono(tuple(open_), mono.bound, kept)
        return made_ if made_ == mono else self._decided(made_)

    def _strongest(self, factors: list[Factor]) -> list[Factor]:
        """Without comparisons that others of the same indices imply."""
        most: dict[tuple[tuple[int, int], ...], int] = {}
        for f in factors:
            if f.head[0] == "below":
                steps = tuple(sorted(self.space.steps(f.places[0])))
                most[steps] = max(f.places[0].offset, most.get(steps, f.places[0].offset))
        out = list[Factor]()
        for f in factors:
            if f.head[0] == "below":
                (place,) = f.places
                if place.offset < most[tuple(sorted(self.space.steps(place)))]:
                    continue
            out.append(f)
        return out

    def fixed(self, mono: Mono, name: int, value: int) -> Mono:
        """The term with the one value of an index in its place."""

        def change(place: Index) -> Index:
            steps = dict(self.space.steps(place))
            if name not in steps:
                return place
            by = value * steps.pop(name)
            return Index(place.offset + by, tuple(steps.items()))

        made = self._places(mono, change)
        bound = tuple(v for v in mono.bound if v != name)
        return Mono(made.factors, bound, tuple(r for r in mono.ranges if r[0] != name))

    def settled(self, mono: Mono) -> Mono:
        """The term with the value of every index of its place that has one value alone."""
        for v, low, high in mono.ranges:
            inside = any(v in ranged(Mono((f,))) for f in mono.factors)
            if v not in mono.bound and high == low + 1 and not inside:
                mono = self._ranging(self.fixed(mono, v, low), v, (low, high))
        return mono

    def _outward(self, mono: Mono) -> list[int]:
        """The variables of the sum, those with large steps first."""
        most: dict[int, int] = {}
        for place in places(mono):
            for v, n in self.space.steps(place):
                most[v] = max(n, most.get(v, 0))
        return sorted(mono.bound, key=lambda v: (-most.get(v, 0), v))

    def _shifted(self, mono: Mono, name: int) -> Mono:
        """The term with an index of its sum counted from another start, so that offsets go."""
        if any(v == name for f in mono.factors for v in ranged(Mono((f,)))):
            return mono
        starts: set[int] = set()
        for place in _entries(mono):
            steps = dict(self.space.steps(place))
            if name in steps:
                starts.add(place.offset // steps[name])
        by = min(starts, default=0)
        low, high = self.range_of(mono, name)
        if not by or low + by < 0:
            return mono
        fresh = self.space.fresh(high + by)

        def change(place: Index) -> Index:
            steps = dict(self.space.steps(place))
            if name not in steps:
                return place
            new = tuple((fresh if v == name else v, n) for v, n in steps.items())
            return Index(place.offset - by * steps[name], new)

        moved = self._places(mono, change)
        rest = tuple(r for r in mono.ranges if r[0] != name)
        bound = tuple(fresh if v == name else v for v in mono.bound)
        made = Mono(moved.factors, bound, rest)
        return self._ranging(made, fresh, (low + by, high + by))

    def _places(self, mono: Mono, change: Callable[[Index], Index]) -> Mono:
        ((_, made),) = rewritten(((Fraction(1), mono),), change)
        return made

    def _fused(self, mono: Mono) -> Mono:
        """Two indices of the sum that are always neighbouring digits are one index. Of the outer
        one, some values may be left out."""
        free = set(mono.bound) - {v for f in mono.factors for v in ranged(Mono((f,)))}
        limited = {v for v, _, _ in mono.ranges}
        found = neighbours(self.space, [mono], free)
        pair = next(((v, w) for v, w in found if w not in limited), None)
        if pair is None:
            return mono
        first, second = pair
        count = self.space.extents[second]
        low, high = self.range_of(mono, first)
        one = self.space.fresh(self.space.extents[first] * count)
        made = self._places(mono, lambda p: fused(self.space, p, first, second, one))
        bound = tuple(one if v == first else v for v in mono.bound if v != second)
        rest = tuple(r for r in mono.ranges if r[0] != first)
        joined = Mono(made.factors, bound, rest)
        return self._fused(self._ranging(joined, one, (low * count, high * count)))


def _entries(mono: Mono) -> Iterator[Index]:
    """Every place of an entry in a term, those inside functions included."""
    for factor in mono.factors:
        if factor.head[0] not in AFFINE and factor.head != ("ramp",):
            yield from factor.places
        for body in factor.args:
            for _, inner in body.poly:
                yield from _entries(inner)


def counts(mono: Mono) -> Iterator[Index]:
    """What every entry of a ramp in a term counts, inside functions too."""
    for factor in mono.factors:
        if factor.head == ("ramp",):
            yield from factor.places
        for body in factor.args:
            for _, inner in body.poly:
                yield from counts(inner)


def neighbours(space: Space, monos: Iterable[Mono], among: set[int]) -> list[tuple[int, int]]:
    """Pairs of variables that only ever occur as two digits of one number, in that order."""
    follows: dict[int, set[int | None]] = {}
    leads: dict[int, set[int | None]] = {}
    for mono in monos:
        for place in places(mono):
            steps = space.steps(place)
            by_step = {n: v for v, n in steps}
            for v, n in steps:
                before = by_step.get(n * space.extents[v])
                leads.setdefault(v, set()).add(before)
                if before is not None:
                    follows.setdefault(before, set()).add(v)
            inner = {by_step.get(n * space.extents[v]) for v, n in steps}
            for v, _ in steps:
                if v not in inner:
                    follows.setdefault(v, set()).add(None)
    out: list[tuple[int, int]] = []
    for w in sorted(among):
        found = leads.get(w, set())
        if len(found) == 1:
            (v,) = found
            if v is not None and v != w and v in among and follows[v] == {w}:
                out.append((v, w))
    return out


def fused(space: Space, place: Index, first: int, second: int, one: int) -> Index:
    """A place with two neighbouring digits as one."""
    steps = space.steps(place)
    if first not in dict(steps):
        return place
    new = [(one if v == second else v, n) for v, n in steps if v != first]
    return Index(place.offset, tuple(new))
