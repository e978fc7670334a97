"""Sums and products of expressions, brought to a form: like terms and adjacent ranges together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

from verifier.indexed.form import (
    ONE,
    ZERO,
    Body,
    Factor,
    Index,
    Mono,
    Poly,
    Space,
    UnclearError,
    Writer,
    bindings,
    places,
    ranged,
    reads,
    renamed,
    rewritten,
    undefined,
)

MAX_TERMS = 64
Range = tuple[int, int]


class Sums:
    """Arithmetic of expressions over one space of variables."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.writer = Writer(space)

    def scale(self, poly: Poly, by: Fraction) -> Poly:
        if by == 1:
            return poly
        return tuple((c * by, m) for c, m in poly) if by else ZERO

    def add(self, polys: Iterable[Poly]) -> Poly:
        return self.collected([item for poly in polys for item in poly])

    def constant(self, value: Fraction) -> Poly:
        return self.scale(ONE, value)

    def of(self, factor: Factor) -> Poly:
        return ((Fraction(1), Mono((factor,))),)

    def multiply(self, left: Poly, right: Poly) -> Poly:
        if len(left) * len(right) > MAX_TERMS:
            raise UnclearError("too many terms")
        out: list[tuple[Fraction, Mono]] = []
        for c, a in left:
            for d, b in right:
                made = self._joined(a, self._apart(b))
                if made is not None:
                    out.append((c * d, made))
                elif undefined(a) or undefined(b):
                    raise UnclearError("what is undefined, times zero")
        return self.collected(out)

    def summed(self, poly: Poly, names: Iterable[int]) -> Poly:
        """The sum over variables."""
        names = self.space.digits(tuple(names))
        return self.collected([(c, Mono(m.factors, (*m.bound, *names), m.ranges)) for c, m in poly])

    def within(self, poly: Poly, name: int, low: int, high: int) -> Poly:
        """The expression where a variable is in [low, high), zero elsewhere."""
        limit = Mono((), (), ((name, low, high),))
        made = ((c, self._joined(m, limit)) for c, m in poly)
        return tuple((c, m) for c, m in made if m is not None)

    def _apart(self, mono: Mono) -> Mono:
        """The monomial with new variables in its sums and functions: products share none."""
        self.writer.check(mono)
        own = set(bindings(self.space, mono))
        names = {v: self.space.fresh(self.space.extents[v]) for v in own}
        return renamed(self.space, mono, names) if names else mono

    def _joined(self, a: Mono, b: Mono) -> Mono | None:
        """The product; None where no value of a variable is left."""
        ranges = {v: (lo, hi) for v, lo, hi in a.ranges}
        for v, lo, hi in b.ranges:
            low, high = ranges.get(v, (0, self.space.extents[v]))
            ranges[v] = max(lo, low), min(hi, high)
        if any(lo >= hi for lo, hi in ranges.values()):
            return None
        kept = [(v, *r) for v, r in sorted(ranges.items()) if not self._full(v, r)]
        return Mono((*a.factors, *b.factors), (*a.bound, *b.bound), tuple(kept))

    def _full(self, name: int, limits: Range) -> bool:
        return limits == (0, self.space.extents[name])

    # like terms

    def collected(self, items: Iterable[tuple[Fraction, Mono]]) -> Poly:
        """Like terms as one, and terms that differ in one range only as one where they meet."""
        total: dict[str, tuple[Fraction, Mono]] = {}
        for coef, mono in items:
            factor, tidy = self.tidied(mono)
            text = self.writer.mono(tidy, {}, 0)
            before = total.get(text)
            total[text] = (coef * factor + (before[0] if before else 0), tidy)
        out = [(c, m) for c, m in total.values() if c]
        if len(out) > MAX_TERMS:
            raise UnclearError("too many terms")
        if len(out) > 1:
            out = self._met(out)
        return tuple(out)

    def _met(self, items: list[tuple[Fraction, Mono]]) -> list[tuple[Fraction, Mono]]:
        changed = True
        while changed:
            changed = False
            groups: dict[str, list[tuple[int, int]]] = {}
            for at, (_, mono) in enumerate(items):
                for v in {*mono.bound, *(r[0] for r in mono.ranges)}:
                    text = self.writer.mono(mono, {}, 0, masked=v)
                    key = f"{v if v not in mono.bound else ''}~{text}"
                    group = groups.setdefault(key, [])
                    if all(at != other for other, _ in group):
                        group.append((at, v))
            for members in groups.values():
                if len(members) < 2:
                    continue
                merged = self._stepped(items, members)
                if len(merged) < len(members):
                    gone = {at for at, _ in members}
                    rest = [x for at, x in enumerate(items) if at not in gone]
                    items = rest + self._tidy(merged)
                    changed = True
                    break
        return items

    def _tidy(self, items: list[tuple[Fraction, Mono]]) -> list[tuple[Fraction, Mono]]:
        made = [(c, self.tidied(m)) for c, m in items]
        return [(c * factor, m) for c, (factor, m) in made]

    def _stepped(
        self, items: list[tuple[Fraction, Mono]], members: list[tuple[int, int]]
    ) -> list[tuple[Fraction, Mono]]:
        """The same sum with each stretch of one coefficient as one term."""
        edges: dict[int, Fraction] = {}
        for at, v in members:
            coef, mono = items[at]
            low, high = self._range(mono, v)
            edges[low] = edges.get(low, Fraction(0)) + coef
            edges[high] = edges.get(high, Fraction(0)) - coef
        at, name = members[0]
        model = items[at][1]
        out: list[tuple[Fraction, Mono]] = []
        value, start = Fraction(0), 0
        for edge in sorted(edges):
            if not edges[edge]:
                continue
            if value:
                out.append((value, self._limited(model, name, (start, edge))))
            value, start = value + edges[edge], edge
        return out

    def _range(self, mono: Mono, name: int) -> Range:
        return next(((a, b) for v, a, b in mono.ranges if v == name), self._whole(name))

    def _whole(self, name: int) -> Range:
        return 0, self.space.extents[name]

    def _ranging(self, mono: Mono, name: int, limits: Range) -> Mono:
        kept = [r for r in mono.ranges if r[0] != name]
        if not self._full(name, limits):
            kept.append((name, *limits))
        return Mono(mono.factors, mono.bound, tuple(sorted(kept)))

    def _limited(self, mono: Mono, name: int, limits: Range) -> Mono:
        """The term with another range; an index that starts at 0 ends with its extent."""
        if name not in mono.bound:
            return self._ranging(mono, name, limits)
        fresh = self.space.fresh(limits[1])
        bare = Mono(mono.factors, mono.bound, tuple(r for r in mono.ranges if r[0] != name))
        return self._ranging(renamed(self.space, bare, {name: fresh}), fresh, limits)

    # one term

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
                low, high = self._range(mono, v)
                coef *= high - low
        bound = tuple(v for v in mono.bound if v in used)
        kept = tuple(r for r in mono.ranges if r[0] in used or r[0] not in mono.bound)
        mono = Mono(self._powers(mono.factors), bound, kept)
        for v, low, high in kept:
            if v in bound and low == 0 and not any(v in ranged(Mono((f,))) for f in mono.factors):
                mono = self._limited(mono, v, (low, high))
        for v in self._outward(mono):
            mono = self._shifted(mono, v)
        for v in mono.bound:
            low, high = self._range(mono, v)
            if high == low + 1 and not any(v in ranged(Mono((f,))) for f in mono.factors):
                mono = self._fixed(mono, v, low)
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
            if f.head[0] in ("le0", "eq0", "hot"):
                text = self.writer.factor(f, {}, 0)
                if text in seen:
                    continue
                seen.add(text)
            kept.append(f)
        return tuple(kept)

    def _fixed(self, mono: Mono, name: int, value: int) -> Mono:
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
        for place in places(mono):
            steps = dict(self.space.steps(place))
            if name in steps:
                starts.add(place.offset // steps[name])
        by = min(starts, default=0)
        if not by:
            return mono
        low, high = self._range(mono, name)
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
        """Two indices of the sum that are always neighbouring digits are one index."""
        free = {v for v in mono.bound if not any(r[0] == v for r in mono.ranges)}
        free -= {v for f in mono.factors for v in ranged(Mono((f,)))}
        pairs = neighbours(self.space, [mono], free)
        if not pairs:
            return mono
        first, second = pairs[0]
        one = self.space.fresh(self.space.extents[first] * self.space.extents[second])
        made = self._places(mono, lambda p: fused(self.space, p, first, second, one))
        bound = tuple(one if v == first else v for v in mono.bound if v != second)
        return self._fused(Mono(made.factors, bound, mono.ranges))


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
