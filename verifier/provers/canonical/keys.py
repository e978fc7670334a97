"""Canonical keys of terms: their entries in index notation."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, permutations
from typing import Any

from shardproof.verifier.kernel.program.registry import REGISTRY
from shardproof.verifier.ops import facets
from shardproof.verifier.provers.canonical.entries import RULES
from shardproof.verifier.provers.canonical.form import (
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
from shardproof.verifier.provers.canonical.functions import apply
from shardproof.verifier.provers.canonical.rearranged import view
from shardproof.verifier.provers.canonical.signs import positive
from shardproof.verifier.provers.canonical.sums import Sums
from shardproof.verifier.provers.canonical.tidy import fused, neighbours
from shardproof.verifier.terms import Ref, Term, Terms

HEAVY = 100
"""Terms that take more factors than this to write down stand for themselves in others."""
MAX_TABLE = 1_000_000
"""Factors that are written for all terms of a table, before further ones are left as they are."""
MAX_ASKED = 10_000
"""How many of these are written to see whether entries are above 0."""
MAX_WORK = 20_000
"""Terms that are opened for one key, before the rest is left as it is."""
COSTLY = 1_000
"""Terms for which more factors than this are written are not written again in another order."""
FURTHER = 10
"""How many times as much is written of a term in which functions stand for themselves."""
TURNED = 3
"""Digits of a term, at most, whose orders are all tried."""
SHARE = 16
"""Of what is left, one term may take this part: others are still written after long ones."""
Places = tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """What a term comes to, whatever its shape: its entries in row-major order."""

    factor: Fraction
    """0 for zeros."""
    text: str
    """What the factor multiplies."""
    digits: tuple[int, ...]
    """The extents of the indices of an entry; the number of the entry is made of these digits."""
    heavy: bool = False
    """Whether the term takes many factors to write down."""
    closed: bool = False
    """Whether functions stand for themselves in the text: it is too long with them."""
    turned: "Turned | None" = None
    """Of a heavy term of few digits: how it stands for itself in others."""


@dataclass(frozen=True, slots=True)
class Turned:
    """A term with its digits in the order that gives the least text: transposes have one text."""

    factor: Fraction
    text: str
    order: tuple[int, ...]


class Keys:
    """Keys of the terms of one table. Equal keys are equal functions of equal shape."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.left, self.asked = MAX_TABLE, MAX_ASKED
        self._found: dict[int, Read] = {}
        self.costly = set[int]()
        terms.defined.above = self.above

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.terms.defined.above = self.above

    def key(self, ref: Ref) -> tuple[Fraction, str]:
        """A rational factor and the key of what it multiplies; the factor is 0 for zeros."""
        found = self.read(ref.id)
        return ref.coef * found.factor, f"{self.terms.shape(ref)} {found.text}"

    def same(self, a: Ref, b: Ref) -> bool:
        """Whether two terms are known to be one function, and to have a value alike."""
        if a == b or self.terms.shape(a) != self.terms.shape(b):
            return a == b
        if a.coef == b.coef and view(self.terms, a.id) == view(self.terms, b.id):
            return True
        return self.defined(a.id) and self.defined(b.id) and self.key(a) == self.key(b)

    def defined(self, id: int) -> bool:
        """Whether a term has a value wherever the outputs of the one-device program have one."""
        return all(map(self._taken, self.terms.open(id)))

    def _taken(self, id: int) -> bool:
        """Whether a function is taken of numbers of which the one-device program takes it too.

        They may stand in another shape there. Functions inside are looked at by themselves.
        """
        if id < 0:
            return False
        term = self.terms[id]
        (given,) = term.args
        for other in map(self.terms.__getitem__, sorted(self.terms.needed or ())):
            if (other.op, other.attrs) == (term.op, term.attrs):
                (theirs,) = other.args
                if self._flat(given) == self._flat(theirs):
                    return True
        return False

    def _flat(self, ref: Ref) -> tuple[int, Fraction, str]:
        """What a term comes to, whatever its shape."""
        found = self.read(ref.id)
        return math.prod(self.terms.shape(ref)), ref.coef * found.factor, found.text

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
        found = self.read(id)
        return found.heavy or found.closed

    def read(self, id: int) -> Read:
        """What a term comes to."""
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
            spent = self.left
            beside = any(self._found[a.id].closed for a in self.terms[last].args)
            found = None if beside else self._opened(last)
            found = found or self._opened(last, closed=True) or Opened(self).itself(last)
            self._found[last] = found
            if spent - self.left > COSTLY:
                self.costly.add(last)
            todo.pop()
        return True

    def _opened(self, id: int, closed: bool = False) -> Read | None:
        opened = Opened(self, closed)
        most = opened.sums.writer.left * (FURTHER if closed else 1)
        most = min(most, max(COSTLY, self.left // SHARE))
        before = opened.sums.writer.left = min(self.left, most)
        found = opened.read(id)
        self.left -= before - max(0, opened.sums.writer.left)
        return found


class Opened:
    """One term, opened: variables along its dims, and its entry there."""

    def __init__(self, keys: Keys, closed: bool = False) -> None:
        self.keys, self.terms = keys, keys.terms
        self.closed = closed
        """Whether functions stand for themselves in it: it is too long to write with them."""
        self.space = Space()
        self.sums = Sums(self.space)
        self.memo: dict[tuple[int, Places], Poly] = {}
        self.positive: dict[int, bool] = {}

    def whole(self, id: int) -> tuple[list[tuple[int, ...]], Poly]:
        """The variables of each dim, and the entry."""
        at = tuple(self.space.place(n) for n in self.terms[id].shape)
        poly = self._open(id, at)
        return [self.space.names(p) for p in at], self.sums.collected(poly)

    def itself(self, id: int) -> Read:
        return Read(Fraction(1), f"term {id}", self.terms[id].shape, heavy=True)

    def read(self, id: int) -> Read | None:
        """What the term comes to; None if that is too much to write."""
        write = self.sums.writer
        try:
            dims, poly = self.whole(id)
            heavy = size(poly) > HEAVY
            names, poly = self._unsplit(tuple(v for dim in dims for v in dim), poly)
            poly = self.sums.collected((c, self.sums.settled(m)) for c, m in poly)
            if not poly:
                return Read(Fraction(0), "zeros", ())
            digits = tuple(self.space.extents[v] for v in names)
            write.closed = True
            lead, text = self._written(names, poly)
            turned = None
            if (heavy or self.closed) and 1 < len(names) <= TURNED and size(poly) <= COSTLY:
                orders = permutations(range(len(names)))
                found = ((*self._written([names[k] for k in o], poly), o) for o in orders)
                turned = Turned(*min(found, key=lambda f: f[1:]))
            return Read(lead, text, digits, heavy, self.closed, turned)
        except UnclearError:
            return None

    def _written(self, names: Sequence[int], poly: Poly) -> tuple[Fraction, str]:
        """The factor, and the digest of what it multiplies, with digits in this order."""
        write, naming = self.sums.writer, {v: f"d{i}" for i, v in enumerate(names)}
        lead = min((write.mono(m, naming, 0), c) for c, m in poly)[1]
        text = write.poly(self.sums.scale(poly, 1 / lead), naming)
        text = f"{tuple(self.space.extents[v] for v in names)}{text}"
        return lead, hashlib.sha256(text.encode()).hexdigest()

    def _unsplit(self, names: tuple[int, ...], poly: Poly) -> tuple[tuple[int, ...], Poly]:
        """With digits that always stand together as one."""
        free = set(names) - {v for _, m in poly for v in ranged(m)}
        follows = set(neighbours(self.space, [m for _, m in poly], free))
        pair = next((p for p in pairwise(names) if p in follows), None)
        if pair is None:
            return names, self.sums.collected(poly)
        first, second = pair
        one = self.space.fresh(self.space.extents[first] * self.space.extents[second])
        at = names.index(first)
        made = rewritten(poly, lambda p: fused(self.space, p, first, second, one))
        return self._unsplit((*names[:at], one, *names[at + 2 :]), made)

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
            if term.op in ("var", "ones") or not self._stands(term.op, self.keys.read(ref.id)):
                found = self._open(ref.id, at)
            else:
                found = self._closed(ref.id, at)
            self.memo[ref.id, at] = found
        return self.sums.scale(found, ref.coef)

    def _stands(self, op: str, found: Read) -> bool:
        """Whether an operand stands for itself."""
        if self.closed:
            return op not in RULES or (found.closed and found.heavy)
        return found.closed or found.heavy

    def _closed(self, id: int, at: Places) -> Poly:
        """An entry of a term that stands for itself, by its number in row-major order."""
        found, shape = self.keys.read(id), self.terms[id].shape
        text = found.text
        try:
            at = self.regrouped(at, shape, found.digits)
            if (turned := found.turned) is not None:
                at = tuple(at[k] for k in turned.order)
                return self.sums.scale(
                    self.sums.of(Factor(("entry", turned.text), at)), turned.factor
                )
        except UnclearError:
            text = f"{shape} {text}"
        return self.sums.scale(self.sums.of(Factor(("entry", text), at)), found.factor)

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
        known = ref.coef == 1 and facets(self.terms[ref.id].op).truth
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
