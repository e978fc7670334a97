"""Canonical keys of terms: their entries in index notation."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from verifier.kernel.program.registry import REGISTRY, traits
from verifier.provers.canonical.entries import RULES
from verifier.provers.canonical.form import (
    ZERO,
    Factor,
    Index,
    Poly,
    Space,
    UnclearError,
    ranged,
    rewritten,
    size,
)
from verifier.provers.canonical.functions import apply
from verifier.provers.canonical.signs import positive
from verifier.provers.canonical.sums import Sums
from verifier.provers.canonical.tidy import fused, neighbours
from verifier.terms import Ref, Term, Terms

HEAVY = 100
"""Terms that take more factors than this to write down stand for themselves in others."""
MAX_TABLE = 500_000
"""Factors that are written for all terms of a table, before further ones are left as they are."""
MAX_ASKED = 10_000
"""How many of these are written to see whether entries are above 0."""
MAX_WORK = 20_000
"""Terms that are opened for one key, before the rest is left as it is."""
Places = tuple[Index, ...]


class Keys:
    """Keys of the terms of one table. Equal keys are equal functions of equal shape."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.left, self.asked = MAX_TABLE, MAX_ASKED
        self._found: dict[int, tuple[Fraction, str, bool]] = {}
        terms.defined.above = self.above

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.terms.defined.above = self.above

    def key(self, ref: Ref) -> tuple[Fraction, str]:
        """A rational factor and the key of what it multiplies; the factor is 0 for zeros."""
        factor, text, _ = self._read(ref.id)
        return ref.coef * factor, text

    def same(self, a: Ref, b: Ref) -> bool:
        """Whether two terms are known to be one function, and to have a value alike."""
        if a == b or self.terms.shape(a) != self.terms.shape(b):
            return a == b
        loose = self.terms.loose(a.id) or self.terms.loose(b.id)
        return not loose and self.key(a) == self.key(b)

    def above(self, id: int) -> bool:
        """Whether every entry of a term is above 0, as its expression shows."""
        before, floor = self.left, max(0, self.left - self.asked)
        known = self._reached(id, floor)
        self.asked -= before - self.left
        if not known or self.heavy(id) or self.left <= 0:
            return False
        opened = Opened(self)
        try:
            return positive(opened.space, opened.whole(id)[1])
        except UnclearError:
            return False

    def heavy(self, id: int) -> bool:
        """Whether a term is too long to be written out in others."""
        return self._read(id)[2]

    def _read(self, id: int) -> tuple[Fraction, str, bool]:
        """The factor, the text, and whether the term is heavy."""
        self._reached(id)
        return self._found[id]

    def _reached(self, id: int, floor: int = -1) -> bool:
        """Whether a term was read, operands first, before no more than `floor` factors are left."""
        todo = [id]
        while todo:
            last = todo[-1]
            if last in self._found:
                todo.pop()
                continue
            missing = [a.id for a in self.terms[last].args if a.id not in self._found]
            if missing:
                todo += missing
                continue
            if self.left <= floor:
                return False
            opened = Opened(self)
            before = opened.sums.writer.left = min(self.left, opened.sums.writer.left)
            self._found[last] = opened.read(last)
            self.left -= before - max(0, opened.sums.writer.left)
            todo.pop()
        return True


class Opened:
    """One term, opened: variables along its dims, and its entry there."""

    def __init__(self, keys: Keys) -> None:
        self.keys, self.terms = keys, keys.terms
        self.space = Space()
        self.sums = Sums(self.space)
        self.memo: dict[tuple[int, Places], Poly] = {}
        self.positive: dict[int, bool] = {}

    def whole(self, id: int) -> tuple[list[tuple[int, ...]], Poly]:
        """The variables of each dim, and the entry."""
        at = tuple(self.space.place(n) for n in self.terms[id].shape)
        poly = self._open(id, at)
        return [self.space.names(p) for p in at], self.sums.collected(poly)

    def read(self, id: int) -> tuple[Fraction, str, bool]:
        """A factor, a key of the rest, and whether the term takes many factors to write down."""
        term, write = self.terms[id], self.sums.writer
        heavy = True
        try:
            dims, poly = self.whole(id)
            heavy = size(poly) > HEAVY
            dims, poly = self._unsplit(dims, poly)
            if not poly:
                return Fraction(0), f"zeros {term.shape}", False
            naming = {v: f"d{k}.{i}" for k, dim in enumerate(dims) for i, v in enumerate(dim)}
            shape = [[self.space.extents[v] for v in dim] for dim in dims]
            write.closed = True
            lead = min((write.mono(m, naming, 0), c) for c, m in poly)[1]
            text = f"{term.shape}{shape}{write.poly(self.sums.scale(poly, 1 / lead), naming)}"
            return lead, hashlib.sha256(text.encode()).hexdigest(), heavy
        except UnclearError:
            return Fraction(1), f"term {id}", heavy

    def _unsplit(
        self, dims: list[tuple[int, ...]], poly: Poly
    ) -> tuple[list[tuple[int, ...]], Poly]:
        """With digits of one dim that always stand together as one."""
        limited = {v for _, m in poly for v in ranged(m)}
        for k, dim in enumerate(dims):
            free = set(dim) - limited
            for first, second in neighbours(self.space, [m for _, m in poly], free):
                if first in dim and dim[dim.index(first) + 1 : dim.index(first) + 2] == (second,):
                    one = self.space.fresh(self.space.extents[first] * self.space.extents[second])

                    def change(p: Index, a: int = first, b: int = second, c: int = one) -> Index:
                        return fused(self.space, p, a, b, c)

                    at = dim.index(first)
                    dims[k] = (*dim[:at], one, *dim[at + 2 :])
                    return self._unsplit(dims, rewritten(poly, change))
        return dims, self.sums.collected(poly)

    # entries

    def entry(self, ref: Ref, at: Places) -> Poly:
        """The entry of a term at a place."""
        if ref.coef == 0:
            if self.terms.loose(ref.id):
                raise UnclearError("what may be undefined, times zero")
            return ZERO
        found = self.memo.get((ref.id, at))
        if found is None:
            term = self.terms[ref.id]
            if term.op in ("var", "ones") or not self.keys.heavy(ref.id):
                found = self._open(ref.id, at)
            else:
                found = self._closed(ref.id, at)
            self.memo[ref.id, at] = found
        return self.sums.scale(found, ref.coef)

    def _closed(self, id: int, at: Places) -> Poly:
        """An entry of a term that stands for itself."""
        factor, text = self.keys.key(Ref(Fraction(1), id))
        return self.sums.scale(self.sums.of(Factor(("entry", text), at)), factor)

    def _open(self, id: int, at: Places) -> Poly:
        if len(self.memo) > MAX_WORK:
            raise UnclearError("too much work")
        term = self.terms[id]
        rule = RULES.get(term.op)
        try:
            if 0 in term.shape or any(0 in self.terms.shape(a) for a in term.args):
                raise UnclearError("no entries")
            if rule is not None:
                return rule(self, term, at)
            if self._is_map(term):
                values = [self.entry(a, self.under(a, at, len(term.shape))) for a in term.args]
                if term.op.startswith("logical_"):
                    values = [self.truth(a, v) for a, v in zip(term.args, values, strict=True)]
                return apply(self.sums, (term.op, *term.attrs), values)
        except UnclearError:
            pass
        inner = tuple(self.keys.key(a) for a in term.args)
        text = repr((term.op, term.attrs, term.shape, inner))
        return self.sums.of(Factor(("op", hashlib.sha256(text.encode()).hexdigest()), at))

    def truth(self, ref: Ref, value: Poly) -> Poly:
        """1 where a value is not 0, else 0."""
        known = ref.coef == 1 and traits(self.terms[ref.id].op).truth
        return value if known else apply(self.sums, ("true",), [value])

    def _is_map(self, term: Term) -> bool:
        op = REGISTRY.get(term.op)
        return op is not None and op.kind == "map"

    def under(self, ref: Ref, at: Places, rank: int) -> Places:
        """The place in an operand that is broadcast."""
        shape = self.terms.shape(ref)
        kept = at[rank - len(shape) :]
        return tuple(Index() if n == 1 else p for n, p in zip(shape, kept, strict=True))

    def regrouped(self, at: Places, shape: Sequence[int], source: Sequence[int]) -> Places:
        """The place in a tensor of shape `source` of the entry at a place in its reshape.

        The number of the entry is a sum of variables with steps; they are dealt out to the dims
        of the source. What a dim is given must stay in its extent: then there is no carry.
        """
        if [n for n in shape if n != 1] == [n for n in source if n != 1]:
            kept = iter(p for p, n in zip(at, shape, strict=True) if n != 1)
            return tuple(Index() if n == 1 else next(kept) for n in source)
        offset, steps = 0, list[tuple[int, int]]()
        for place, row in zip(at, _rows(shape), strict=True):
            offset += place.offset * row
            steps += [(v, n * row) for v, n in self.space.steps(place)]
        if offset < 0:
            raise UnclearError("a reshape behind an offset")
        out: list[Index] = []
        for extent, row in zip(source, _rows(source), strict=True):
            if extent == 1:
                out.append(Index())
                continue
            mine: list[tuple[int, int]] = []
            rest: list[tuple[int, int]] = []
            for v, n in steps:
                if n % row == 0:
                    mine.append((v, n // row))
                elif n * self.space.extents[v] > row:
                    if row % n or self.space.extents[v] % (row // n):
                        raise UnclearError("a reshape that cuts through digits")
                    outer, inner = self.space.split(v, row // n)
                    mine.append((outer, 1))
                    rest.append((inner, n))
                else:
                    rest.append((v, n))
            start, offset = divmod(offset, row)
            if start + sum((self.space.extents[v] - 1) * n for v, n in mine) >= extent:
                raise UnclearError("a reshape that carries")
            out.append(Index(start, tuple(mine)))
            steps = rest
        if steps or offset:
            raise UnclearError("a reshape with a rest")
        return tuple(out)

    def window(self, poly: Poly, place: Index, low: int, high: int, extent: int) -> Poly:
        """The expression where a place is in [low, high), zero elsewhere."""
        if low <= 0 and high >= extent:
            return poly
        low, high = low - place.offset, high - place.offset
        steps = sorted(self.space.steps(place), key=lambda item: -item[1])
        if not steps:
            return poly if low <= 0 < high else ZERO
        (first, step), inner = steps[0], steps[1:]
        if step != 1 and sum((self.space.extents[v] - 1) * n for v, n in inner) >= step:
            raise UnclearError("a window over digits that carry")
        if low % step or high % step:
            raise UnclearError("a window that cuts through digits")
        low, high = max(low // step, 0), min(high // step, self.space.extents[first])
        return self.sums.within(poly, first, low, high) if low < high else ZERO


def _rows(shape: Sequence[int]) -> list[int]:
    """How far apart entries are that follow each other along each dim."""
    return [math.prod(shape[k + 1 :]) for k in range(len(shape))]
