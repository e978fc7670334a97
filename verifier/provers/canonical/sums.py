"""Sums and products of expressions, brought to a form: like terms and adjacent ranges together."""

from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise, product

from shardproof.verifier.provers.canonical.affine import AFFINE
from shardproof.verifier.provers.canonical.form import (
    ONE,
    ZERO,
    Body,
    Factor,
    Index,
    Mono,
    Poly,
    UnclearError,
    bindings,
    ranged,
    reads,
    renamed,
    undefined,
)
from shardproof.verifier.provers.canonical.grids import Grid
from shardproof.verifier.provers.canonical.signs import cancelled, risky
from shardproof.verifier.provers.canonical.tidy import OneTerm, counts

MAX_TERMS = 64
MAX_CELLS = 64


class Sums(OneTerm):
    """Arithmetic of expressions over one space of variables."""

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

    def multiply(self, left: Poly, right: Poly, chosen: bool = False) -> Poly:
        """The product; `chosen` where a mask selects, so that what it leaves out is not computed.

        Raises UnclearError where it would mask away what may have no finite value.
        """
        if len(left) * len(right) > MAX_TERMS:
            raise UnclearError("too many terms")
        if not chosen:
            self._kept_whole(left, right)
            self._kept_whole(right, left)
        out: list[tuple[Fraction, Mono]] = []
        for c, a in left:
            for d, b in right:
                made = self._joined(a, self._apart(b))
                if made is not None:
                    out.append((c * d, made))
                elif undefined(a) or undefined(b):
                    raise UnclearError("what is undefined, times zero")
        return self.collected(out)

    def _kept_whole(self, given: Poly, by: Poly) -> None:
        """Raises UnclearError where a factor is 0 on entries that may be undefined."""
        limited = {v for _, m in by for v, _, _ in m.ranges if v not in m.bound}
        for _, mono in given if limited else ():
            mine = [f for f in mono.factors if risky(self.space, Mono((f,)))]
            names = {v for f in mine for v in reads(self.space, Mono((f,)))} & limited
            names -= set(mono.bound)
            if not names:
                continue
            boxes = [{v: self.range_of(m, v) for v in names} for _, m in by]
            whole = {v: self.range_of(mono, v) for v in names}
            edges = {
                v: sorted({low, high, *(e for b in boxes for e in b[v] if low < e < high)})
                for v, (low, high) in whole.items()
            }
            cells = list(product(*([(v, *c) for c in pairwise(e)] for v, e in edges.items())))
            if len(cells) > MAX_CELLS or not all(
                any(all(b[v][0] <= lo and hi <= b[v][1] for v, lo, hi in cell) for b in boxes)
                for cell in cells
            ):
                raise UnclearError("what may be undefined, times zero")

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

    def components(self, mono: Mono) -> list[Mono]:
        """A term as a product of terms that share no variable of its sum."""
        left: list[tuple[set[int], list[Factor]]] = []
        for factor in self._exponents(mono):
            names, together = reads(self.space, Mono((factor,))) & set(mono.bound), [factor]
            apart: list[tuple[set[int], list[Factor]]] = []
            for others, factors in left:
                if names & others:
                    names, together = names | others, factors + together
                else:
                    apart.append((others, factors))
            left = [*apart, (names, together)]
        out: list[Mono] = []
        for names, factors in left:
            bound = tuple(v for v in mono.bound if v in names)
            kept = tuple(r for r in mono.ranges if r[0] in bound)
            out.append(Mono(self._powers(tuple(factors)), bound, kept))
        return out

    def _exponents(self, mono: Mono) -> list[Factor]:
        """The factors, an exponential as one for each addend."""
        out: list[Factor] = []
        for f in mono.factors:
            if f.head != ("exp",):
                out.append(f)
                continue
            for item in f.args[0].poly:
                out.append(Factor(f.head, (), (Body((item,)),)))
        return out

    # like terms

    def collected(self, items: Iterable[tuple[Fraction, Mono]]) -> Poly:
        """Like terms as one, and terms that differ in one range only as one where they meet."""
        total: dict[str, tuple[Fraction, Mono]] = {}
        todo = list(items)
        while todo:
            coef, mono = todo.pop(0)
            factor, tidy = self.tidied(mono)
            made = (self._counted(tidy) or cancelled(self, tidy)) if factor else None
            if made is not None:
                todo += self.scale(made, coef * factor)
                continue
            text = self.writer.mono(tidy, {}, 0)
            before = total.get(text)
            total[text] = (coef * factor + (before[0] if before else 0), tidy)
        out = [(c, m) for c, m in total.values() if c]
        if len(out) > MAX_TERMS:
            raise UnclearError("too many terms")
        if len(out) > 1:
            out = self._met(out)
        if len(out) > 1 and any(m.ranges or _compares(m) for _, m in out):
            out = self._squared(out)
        return tuple(out)

    def _counted(self, mono: Mono) -> Poly | None:
        """The term with its counts from 0: the number of entry 3 + i is 3 more than that of i.

        None where they already are.
        """
        if all(p.offset == 0 and p.steps for p in counts(mono)):
            return None
        factors: Poly = ONE
        for f in mono.factors:
            if f.head == ("ramp",):
                (place,) = f.places
                parts = [(Fraction(place.offset), Mono())] if place.offset else []
                if place.steps:
                    parts.append((Fraction(1), Mono((Factor(f.head, (Index(0, place.steps),)),))))
                by: Poly = tuple(parts)
            else:
                args = tuple(Body(self._counts(b.poly), b.own) for b in f.args)
                by = ((Fraction(1), Mono((Factor(f.head, f.places, args),))),)
            factors = tuple(
                (c * d, Mono((*m.factors, *n.factors))) for c, m in factors for d, n in by
            )
        return tuple((c, Mono(m.factors, mono.bound, mono.ranges)) for c, m in factors)

    def _counts(self, poly: Poly) -> Poly:
        return self.collected(poly) if any(True for _, m in poly for _ in counts(m)) else poly

    def _squared(self, items: list[tuple[Fraction, Mono]]) -> list[tuple[Fraction, Mono]]:
        """Terms whose indices keep a comparison true, with those of which it has to be asked."""
        while True:
            made = Grid(self).joined(items)
            if made is None:
                return items
            items = self._met(self._tidy(made))

    def _met(self, items: list[tuple[Fraction, Mono]]) -> list[tuple[Fraction, Mono]]:
        changed = True
        while changed:
            changed = False
            made = self._single(items)
            if made is not None:
                items, changed = made, True
                continue
            outer = {r[0] for _, m in items for r in m.ranges if r[0] not in m.bound}
            groups: dict[str, list[tuple[int, int]]] = {}
            for at, (_, mono) in enumerate(items):
                for v in {*mono.bound, *outer}:
                    text = self.writer.mono(self.shown(mono, v), {}, 0, {v: "masked"})
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

    def _single(self, items: list[tuple[Fraction, Mono]]) -> list[tuple[Fraction, Mono]] | None:
        """A term of one entry beside others that run up to it and are the same there."""
        for at, (coef, mono) in enumerate(items):
            for v, low, high in mono.ranges:
                if v in mono.bound or high != low + 1 or self._inside(mono, v):
                    continue
                here = self._at(mono, v, low)
                for other, (by, model) in enumerate(items):
                    first, end = self.range_of(model, v)
                    meets = end == low or first == high
                    if other == at or by != coef or not meets or self._inside(model, v):
                        continue
                    if self._at(model, v, low) == here:
                        wide = self._ranging(model, v, (min(first, low), max(end, high)))
                        rest = [x for k, x in enumerate(items) if k not in (at, other)]
                        return [*rest, (coef, wide)]
        return None

    def _at(self, mono: Mono, name: int, value: int) -> tuple[Fraction, str]:
        """The factor and the text of a term at one value of an index."""
        factor, tidy = self.tidied(self.fixed(mono, name, value))
        return factor, self.writer.mono(tidy, {}, 0)

    def _inside(self, mono: Mono, name: int) -> bool:
        return any(name in ranged(Mono((f,))) for f in mono.factors)

    def shown(self, mono: Mono, name: int) -> Mono:
        """The term with the range of a variable of its own dims written out."""
        if name in mono.bound or any(v == name for v, _, _ in mono.ranges):
            return mono
        kept = tuple(sorted((*mono.ranges, (name, 0, self.space.extents[name]))))
        return Mono(mono.factors, mono.bound, kept)

    def _tidy(self, items: list[tuple[Fraction, Mono]]) -> list[tuple[Fraction, Mono]]:
        made = [(c, self.tidied(m)) for c, m in items]
        return [(c * factor, m) for c, (factor, m) in made if c * factor]

    def _stepped(
        self, items: list[tuple[Fraction, Mono]], members: list[tuple[int, int]]
    ) -> list[tuple[Fraction, Mono]]:
        """The same sum with each stretch of one coefficient as one term."""
        edges: dict[int, Fraction] = {}
        for at, v in members:
            coef, mono = items[at]
            low, high = self.range_of(mono, v)
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
                out.append((value, self.limited(model, name, (start, edge))))
            value, start = value + edges[edge], edge
        return out


def _compares(mono: Mono) -> bool:
    return any(f.head[0] in AFFINE for f in mono.factors)
