"""Expressions in index notation: entries, factors, monomials, and their canonical text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import Any

from shardproof.verifier.kernel.program.registry import traits

Naming = Mapping[int, str]
MAX_WRITTEN = 30_000
"""Factors that are written to find the text of one term, before it is left as it is."""
MAX_LABELLINGS = 48
"""Orders of indices that look alike which are tried to find the first one."""


class UnclearError(Exception):
    """Something that the notation does not cover."""


@dataclass(frozen=True, slots=True)
class Index:
    """A place along one dim: an offset and variables, each times a step, largest steps first."""

    offset: int = 0
    steps: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Body:
    """What a function takes: a value for each value of its own variables."""

    poly: Poly
    own: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Factor:
    """An entry of a tensor, or a function of values."""

    head: tuple[Any, ...]
    places: tuple[Index, ...] = ()
    args: tuple[Body, ...] = ()


@dataclass(frozen=True, slots=True)
class Mono:
    """A product of factors, summed over `bound`; zero where a variable leaves its range.

    `ranges` holds (variable, first, end) of variables that do not run over their whole extent.
    """

    factors: tuple[Factor, ...] = ()
    bound: tuple[int, ...] = ()
    ranges: tuple[tuple[int, int, int], ...] = ()


Poly = tuple[tuple[Fraction, Mono], ...]
ZERO: Poly = ()
ONE: Poly = ((Fraction(1), Mono()),)


class Space:
    """The variables: their extents, and the parts of those that were split."""

    def __init__(self) -> None:
        self.extents: dict[int, int] = {}
        self.parts: dict[int, tuple[int, int]] = {}
        self._ids = count()

    def fresh(self, extent: int) -> int:
        name = next(self._ids)
        self.extents[name] = extent
        return name

    def place(self, extent: int) -> Index:
        """A new variable along a dim; a dim of one entry needs none."""
        return Index(0, ((self.fresh(extent), 1),)) if extent != 1 else Index()

    def steps(self, place: Index) -> tuple[tuple[int, int], ...]:
        """The variables of a place with their steps, those that were split as their parts."""
        if not self.parts or not any(v in self.parts for v, _ in place.steps):
            return place.steps
        out: list[tuple[int, int]] = []
        for name, step in place.steps:
            if name not in self.parts:
                out.append((name, step))
                continue
            outer, inner = self.parts[name]
            both = ((outer, step * self.extents[inner]), (inner, step))
            out += self.steps(Index(0, both))
        return tuple(out)

    def names(self, place: Index) -> tuple[int, ...]:
        """The variables of a place."""
        return tuple(v for v, _ in self.steps(place))

    def digits(self, names: tuple[int, ...]) -> tuple[int, ...]:
        """The variables with those that were split as their parts."""
        if not any(name in self.parts for name in names):
            return names
        out: list[int] = []
        for name in names:
            out += self.digits(self.parts[name]) if name in self.parts else [name]
        return tuple(out)

    def split(self, name: int, inner: int) -> tuple[int, int]:
        """Two digits for a variable, the second with extent `inner`."""
        pair = self.fresh(self.extents[name] // inner), self.fresh(inner)
        self.parts[name] = pair
        return pair


def rewritten(poly: Poly, change: Callable[[Index], Index]) -> Poly:
    """The expression with every place changed; variables of sums and ranges are left alone."""
    return tuple(
        (c, Mono(tuple(_changed(f, change) for f in m.factors), m.bound, m.ranges)) for c, m in poly
    )


def _changed(factor: Factor, change: Callable[[Index], Index]) -> Factor:
    args = tuple(Body(rewritten(b.poly, change), b.own) for b in factor.args)
    return Factor(factor.head, tuple(map(change, factor.places)), args)


def renamed(space: Space, mono: Mono, names: Mapping[int, int]) -> Mono:
    """A monomial with variables exchanged, in sums and ranges too."""

    def change(place: Index) -> Index:
        return Index(place.offset, tuple((names.get(v, v), n) for v, n in space.steps(place)))

    def own(given: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(names.get(v, v) for v in space.digits(given))

    def deep(inner: Mono) -> Mono:
        return Mono(
            tuple(
                Factor(
                    f.head,
                    tuple(map(change, f.places)),
                    tuple(Body(tuple((c, deep(m)) for c, m in b.poly), own(b.own)) for b in f.args),
                )
                for f in inner.factors
            ),
            tuple(names.get(v, v) for v in inner.bound),
            tuple(sorted((names.get(v, v), a, b) for v, a, b in inner.ranges)),
        )

    return deep(mono)


def places(mono: Mono) -> Iterator[Index]:
    """Every place in a monomial, those inside functions included."""
    for factor in mono.factors:
        yield from factor.places
        for body in factor.args:
            for _, inner in body.poly:
                yield from places(inner)


def bindings(space: Space, mono: Mono) -> Iterator[int]:
    """Every variable that a sum or a function of a monomial has for its own."""
    yield from space.digits(mono.bound)
    for factor in mono.factors:
        for body in factor.args:
            yield from space.digits(body.own)
            for _, inner in body.poly:
                yield from bindings(space, inner)


def ranged(mono: Mono) -> Iterator[int]:
    """Every variable with a range in a monomial, inside functions too."""
    for name, _, _ in mono.ranges:
        yield name
    for factor in mono.factors:
        for body in factor.args:
            for _, inner in body.poly:
                yield from ranged(inner)


def reads(space: Space, mono: Mono) -> set[int]:
    """Every variable that a monomial depends on: in places, and in ranges, inside functions too."""
    return {v for p in places(mono) for v in space.names(p)} | set(ranged(mono))


def undefined(mono: Mono) -> bool:
    """Whether a function is taken of a constant that it has no finite value for."""
    for factor in mono.factors:
        for body in factor.args:
            constant = all(not m.factors and not m.ranges for _, m in body.poly)
            if traits(factor.head[0]).needs and constant and sum(c for c, _ in body.poly) <= 0:
                return True
            if any(undefined(m) for _, m in body.poly):
                return True
    return False


def size(poly: Poly) -> int:
    """How many factors an expression has, those inside functions included."""
    return sum(
        1 + sum(1 + sum(size(b.poly) for b in f.args) for f in mono.factors) for _, mono in poly
    )


def _from_zero(hot: Factor) -> Factor:
    """The same indicator of a row, with the offset of the row taken from the value."""
    (row,), (body,) = hot.places, hot.args
    value = (*body.poly, (Fraction(-row.offset), Mono()))
    return Factor(hot.head, (Index(0, row.steps),), (Body(value, body.own),))


def _turned(place: Index) -> Index:
    return Index(-place.offset, tuple((v, -n) for v, n in place.steps))


class Writer:
    """Canonical text of expressions: equal texts are equal expressions."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.left = MAX_WRITTEN
        self.closed = False
        """Whether every variable must have a name: in a key none is left over."""
        self._texts: dict[tuple[Mono, tuple[tuple[int, str], ...], int, bool], str] = {}
        self._factors: dict[tuple[object, ...], tuple[Factor, str, int]] = {}
        """By the identity of a factor, which is kept with its text, and how many factors that
        took; what names the text are those of the variables that it reads."""
        self._read: dict[tuple[int, int], tuple[Factor, tuple[int, ...]]] = {}

    def name(self, v: int, naming: Naming) -> str:
        """The name of a variable. Raises UnclearError where it has none and should."""
        found = naming.get(v)
        if found is None and self.closed:
            raise UnclearError("a variable that belongs to nothing")
        return found or f"v{v}"

    def poly(self, poly: Poly, naming: Naming, depth: int = 0) -> str:
        total: dict[str, Fraction] = {}
        for coef, mono in poly:
            text = self.mono(mono, naming, depth)
            total[text] = total.get(text, Fraction(0)) + coef
        parts = sorted(f"{c}*{text}" for text, c in total.items() if c)
        return "(" + "+".join(parts) + ")"

    def place(self, place: Index, naming: Naming) -> str:
        steps = [(n, self.name(v, naming)) for v, n in self.space.steps(place)]
        steps.sort()
        return f"{place.offset}[{','.join([f'{n}{v}' for n, v in steps])}]"

    def spend(self, factors: int) -> None:
        """Raises UnclearError where no more are left to be written."""
        self.left -= factors
        if self.left < 0:
            raise UnclearError("too long to be written")

    def factor(self, factor: Factor, naming: Naming, depth: int) -> str:
        """The text of a factor. Raises UnclearError where too many were written."""
        split = len(self.space.parts)
        read = self._read.get((id(factor), split))
        if read is None:
            read = factor, tuple(reads(self.space, Mono((factor,))))
            self._read[id(factor), split] = read
        names = tuple([naming.get(v) for v in read[1]])
        key = id(factor), split, self.closed, depth, names
        found = self._factors.get(key)
        if found is not None:
            self.spend(found[2])
            return found[1]
        before = self.left
        text = self._factor(factor, naming, depth)
        self._factors[key] = factor, text, before - self.left
        return text

    def _factor(self, factor: Factor, naming: Naming, depth: int) -> str:
        self.spend(1)
        name = factor.head[0]
        if name == "hot":
            factor = _from_zero(factor)
        at = ";".join(self.place(p, naming) for p in factor.places)
        if name == "level":
            at = min(at, self.place(_turned(factor.places[0]), naming))
        if name in ("le0", "eq0"):
            (body,) = factor.args
            args = [self._scaled(body.poly, naming, depth, signed=name == "le0")]
        else:
            args = [self._body(b, naming, depth) for b in factor.args]
        if traits(name).symmetric:
            args.sort()
        return f"{factor.head!r}<{at}|{'|'.join(args)}>"

    def _body(self, body: Body, naming: Naming, depth: int) -> str:
        digits = self.space.digits(body.own)
        inner = {**naming, **{v: f"o{depth}.{i}" for i, v in enumerate(digits)}}
        extents = ",".join(str(self.space.extents[v]) for v in digits)
        return f"{{{extents}}}{self.poly(body.poly, inner, depth + 1)}"

    def _scaled(self, poly: Poly, naming: Naming, depth: int, signed: bool) -> str:
        """Without a positive factor, or without any factor where the sign does not matter."""
        total: dict[str, Fraction] = {}
        for coef, mono in poly:
            text = self.mono(mono, naming, depth)
            total[text] = total.get(text, Fraction(0)) + coef
        items = sorted((text, c) for text, c in total.items() if c)
        if not items:
            return "()"
        lead = abs(items[0][1]) if signed else items[0][1]
        return "(" + "+".join(f"{c / lead}*{text}" for text, c in items) + ")"

    def mono(self, mono: Mono, naming: Naming, depth: int, masked: Naming | None = None) -> str:
        """The text of a monomial; `masked` has variables whose range is left out, told apart."""
        if naming or depth:
            return self._written(mono, naming, depth, masked)
        left_out = tuple(sorted(masked.items())) if masked else ()
        key = mono, left_out, len(self.space.parts), self.closed
        found = self._texts.get(key)
        if found is None:
            found = self._texts[key] = self._written(mono, naming, depth, masked)
            self._factors.clear()
            self._read.clear()
        return found

    def _written(self, mono: Mono, naming: Naming, depth: int, masked: Naming | None) -> str:
        self.check(mono)
        ranges = {v: (a, b) for v, a, b in mono.ranges}

        def shown(v: int) -> str:
            if masked and v in masked:
                return masked[v]
            low, high = ranges.get(v, (0, self.space.extents[v]))
            return f"{low}:{high}"

        free = [
            f"{self.name(v, naming)} {shown(v)}" for v, _, _ in mono.ranges if v not in mono.bound
        ]
        bound = {v: shown(v) for v in mono.bound}
        names = self._labelled(mono, naming, depth, bound) if bound else {}
        inner = {**naming, **names}
        factors = sorted(self.factor(f, inner, depth + 1) for f in mono.factors)
        sums = sorted(f"{names[v]} {bound[v]}" for v in bound)
        return f"<{','.join(sums)}|{','.join(sorted(free))}|{' '.join(factors)}>"

    def check(self, mono: Mono) -> None:
        """Raises UnclearError where a variable with a range, or of a sum, was split."""
        if any(v in self.space.parts for v in (*mono.bound, *(r[0] for r in mono.ranges))):
            raise UnclearError("a range of a variable that was split")

    def _labelled(
        self, mono: Mono, naming: Naming, depth: int, bound: dict[int, str]
    ) -> dict[int, str]:
        """Names for the variables of the sum that do not depend on those they have."""
        tries = [MAX_LABELLINGS]

        def text(names: dict[int, str]) -> str:
            inner = {**naming, **names}
            return " ".join(sorted([self.factor(f, inner, depth + 1) for f in mono.factors]))

        def settle(colour: dict[int, str]) -> tuple[str, dict[int, str]]:
            for _ in range(len(bound)):
                seen: dict[int, str] = {}
                for v in bound:
                    seen[v] = f"{colour[v]} {text({**colour, v: '*'})}"
                order = {s: i for i, s in enumerate(sorted(set(seen.values())))}
                fresh = {v: f"c{order[seen[v]]}" for v in bound}
                done = len(order) == len(set(colour.values()))
                colour = fresh
                if done:
                    break
            groups: dict[str, list[int]] = {}
            for v in bound:
                groups.setdefault(colour[v], []).append(v)
            tied = next((g for _, g in sorted(groups.items()) if len(g) > 1), None)
            if tied is None:
                order = sorted(bound, key=lambda v: int(colour[v][1:]))
                names = {v: f"b{depth}.{i}" for i, v in enumerate(order)}
                return text(names), names
            best: tuple[str, dict[int, str]] | None = None
            for v in tied:
                tries[0] -= 1
                if tries[0] < 0:
                    raise UnclearError("too many indices that look alike")
                found = settle({**colour, v: colour[v] + "'"})
                best = found if best is None or found[0] < best[0] else best
            assert best is not None
            return best

        return settle(dict(bound))[1]
