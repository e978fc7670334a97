"""Real numbers as polynomials over an interned bank of atoms: equal entries are one polynomial.

An atom is an input's entry or a function of polynomials. Arithmetic is that of a commutative ring;
besides it holds here that exp(a + b) = exp(a) exp(b), that a truth value is its own square, that a
root has no power above 1, that a maximum is that of a set, and that exponentials, rational factors
and positive denominators are taken out of a reciprocal and a logarithm. Nothing else is known of a
function but that equal operands give equal values, and the sign that its declaration claims.
"""

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from shardproof.verifier.domains.axioms import TRUTHS, without
from shardproof.verifier.domains.base import (
    Array,
    Symbols,
    UndefinedError,
    is_index,
    objects,
)
from shardproof.verifier.domains.floats import FUNCTIONS
from shardproof.verifier.domains.monomials import (
    Exact,
    Frozen,
    Mono,
    Terms,
    difference,
    exact,
    into,
    number,
    over,
    scaled,
)
from shardproof.verifier.kernel.program.registry import traits

MOST = 150_000
"""Products of monomials that are written out before a comparison is given up."""
SQUARED = 32
"""Monomials that the square of a number may be looked for of."""
MASK = -(10**29)
"""A constant summand at or below this is a mask, where masks are minus infinity."""
PLAIN = 10**9
"""A weight up to this is small beside a mask: `-10^30 + 10^30 [p > 0]` is none."""


class Entry:
    """A polynomial, and the atoms without whose values it has none."""

    __slots__ = ("needs", "terms")

    def __init__(self, terms: Terms, needs: frozenset[int] = frozenset()) -> None:
        self.terms, self.needs = terms, needs

    def __bool__(self) -> bool:
        raise UndefinedError("a choice by what is no number")

    def __eq__(self, other: object) -> bool:
        raise UndefinedError("a comparison of what is no number")

    __hash__ = None  # type: ignore[assignment]


class Polynomials(Symbols):
    """Entries are `Entry`. With `least`, `needs` are atoms that an entry surely has no value
    without; else all atoms that it may have none without. With `masks`, what is masked has weight
    0: `exp(h + c) = 0` and `max(a, h + c) = a` for a mask `c`; `masked` says whether that was used.

    Raises UndefinedError from any operation that has no polynomial, or too large a one.
    """

    dtype = object

    def __init__(self, masks: bool = False) -> None:
        self.masks, self.masked = masks, False
        self.atoms: list[tuple[str, tuple[Frozen, ...]]] = []
        self.least = False
        self.partial: dict[int, str] = {}
        """Functions that are not seen to have a value everywhere, with what they need for one."""
        self._ids: dict[object, int] = {}
        self._truths, self._roots, self._over = set[int](), set[int](), set[int]()
        """Truth values; square roots; reciprocals of what is above 0."""
        self.exponentials = set[int]()
        """Exponentials: a monomial has one at most, to the power 1."""
        self._together = dict[tuple[int, int], int | None]()
        """The product of two exponentials, None where it is 1."""
        self._signs: dict[int, int | None] = {}
        self._left = MOST
        self._fresh = 0

    # the bank

    def atom(self, name: str, *args: Terms) -> int:
        """The number of a function of polynomials."""
        key = name, tuple(frozenset(a.items()) for a in args)
        return self._interned(key)

    def _interned(self, key: tuple[str, tuple[Frozen, ...]]) -> int:
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = len(self.atoms)
            self.atoms.append(key)
            if key[0] in TRUTHS:
                self._truths.add(found)
            elif key[0] == "exp":
                self.exponentials.add(found)
            elif key[0] == "sqrt":
                self._roots.add(found)
            elif key[0] == "reciprocal" and self.positive(dict(*key[1])):
                self._over.add(found)
        return found

    def argument(self, atom: int) -> Terms:
        """What a function of one polynomial is taken of."""
        (arg,) = self.atoms[atom][1]
        return dict(arg)

    def times(self, a: Terms, b: Terms) -> Terms:
        """The product."""
        self._left -= len(a) * len(b)
        if self._left < 0:
            raise UndefinedError("the polynomials are too long")
        out: Terms = {}
        for m, c in a.items():
            for n, d in b.items():
                mono, coef = self.joined(m, n), c * d
                if self._roots and any(p > 1 and i in self._roots for i, p in mono):
                    out = difference(out, self._rooted(mono, -coef))
                else:
                    into(out, mono, coef)
        return out

    def _rooted(self, mono: Mono, coef: Exact) -> Terms:
        """A multiple of a monomial with square roots, each to a power below 2."""
        root = next(i for i, p in mono if p > 1 and i in self._roots)
        return without(self, {mono: coef}, root)

    def joined(self, a: Mono, b: Mono) -> Mono:
        """The product of two monomials."""
        if not a or not b:
            return a or b
        powers = dict(a)
        for atom, power in b:
            if atom in self.exponentials:
                held = next((i for i, _ in a if i in self.exponentials), None)
                made = atom if held is None else self._exp_of_sum(held, atom)
                if held is not None:
                    del powers[held]
                if made is not None:
                    powers[made] = 1
            elif atom not in powers:
                powers[atom] = power
            elif atom not in self._truths:
                powers[atom] += power
        return tuple(sorted(powers.items()))

    def _exp_of_sum(self, a: int, b: int) -> int | None:
        """exp(x) exp(y) = exp(x + y)."""
        key = min(a, b), max(a, b)
        if key not in self._together:
            x, y = self.argument(a), self.argument(b)
            self._left -= len(x) + len(y)
            of = difference(x, scaled(y, -1))
            self._together[key] = self.atom("exp", of) if of else None
        return self._together[key]

    def positive(self, terms: Terms, strictly: bool = True) -> bool:
        """Whether a polynomial is seen to be above 0, or at least 0: a sum of positive multiples of
        squares and of functions that are not negative."""

        def safe(mono: Mono) -> bool:
            return all(p % 2 == 0 or self._sign(i) is not None for i, p in mono)

        above = any(all(self._sign(i) == 1 for i, _ in mono) for mono in terms)
        return all(c > 0 and safe(m) for m, c in terms.items()) and (above or not strictly)

    def _sign(self, atom: int) -> int | None:
        """1: above 0, 0: not below it, None: not known."""
        if atom not in self._signs:
            name, args = self.atoms[atom]
            known = traits(name)
            sign = 0 if atom in self._truths else known.sign
            if sign != 1 and known.keeps == 1 and all(self.positive(dict(a)) for a in args):
                sign = 1
            self._signs[atom] = sign
        return self._signs[atom]

    # entries

    def symbols(self, name: str, shape: tuple[int, ...]) -> Array:
        """An array of distinct atoms `name[i,j]`."""
        out = np.empty(shape, dtype=object)
        for index in np.ndindex(*shape):
            out[index] = self._of(self.atom(f"{name}[{','.join(map(str, index))}]"))
        return out

    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        self._fresh += 1
        return self.symbols(f" {self._fresh}", shape)

    def const(self, value: Fraction) -> Array:
        return objects(Entry(number(exact(value))))

    def full(self, shape: tuple[int, ...], value: Fraction) -> Array:
        out = np.empty(shape, dtype=object)
        out.fill(Entry(number(exact(value))))
        return out

    def lift(self, a: Array) -> Array:
        if a.dtype != object and not is_index(a):
            raise UndefinedError("a float array where polynomials are meant")
        return super().lift(a)

    def _of(self, atom: int, *needs: frozenset[int]) -> Entry:
        return Entry({((atom, 1),): 1}, frozenset[int]().union(*needs))

    def _choice(self, terms: Terms, *operands: Entry) -> Entry:
        """A result that may have a value where an operand has none."""
        needs = frozenset[int]() if self.least else _needs(operands)
        return Entry(terms, needs)

    def _add(self, a: Array, b: Array) -> Array:
        return _each(_plus, a, b)

    def _mul(self, a: Array, b: Array) -> Array:
        return _each(self.product, a, b)

    def product(self, a: Entry, b: Entry) -> Entry:
        """Of two entries."""
        return Entry(self.times(a.terms, b.terms), a.needs | b.needs)

    def _neg(self, a: Array) -> Array:
        return _each(_minus, a)

    def matmul(self, a: Array, b: Array) -> Array:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        left = np.broadcast_to(a, (*batch, *a.shape[-2:]))
        right = np.broadcast_to(b, (*batch, *b.shape[-2:]))
        out = np.empty((*batch, a.shape[-2], b.shape[-1]), dtype=object)
        for at in np.ndindex(*out.shape):
            row, column = left[at[:-1]], right[(*at[:-2], slice(None), at[-1])]
            out[at] = _sum([self.product(x, y) for x, y in zip(row, column, strict=True)])
        return out

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        kept = [i for i in range(a.ndim) if i not in axes]
        shape, count = tuple(a.shape[i] for i in kept), math.prod(a.shape[i] for i in axes)
        rows = a.transpose(*kept, *axes).reshape(*shape, count)
        out = np.empty(shape, dtype=object)
        for at in np.ndindex(*out.shape):
            out[at] = _sum(rows[at])
        return out

    # functions

    def reciprocal(self, a: Array) -> Array:
        return _each(partial(self.partly, "reciprocal", "not zero"), a)

    def unary(self, name: str, a: Array) -> Array:
        return _each(partial(self.function, name), self.lift(a))

    def function(self, name: str, x: Entry) -> Entry:
        """A function of one entry."""
        if name == "exp":
            return self._exponential(x)
        if name.startswith("pow:"):
            return self._power(x, Fraction(name[4:]))
        known = FUNCTIONS.get(name)
        if name != "log" and known is not None and known.by is not None:
            made: Entry = known.by(_Scalars(self), x)
            return made if known.strict else self._choice(made.terms, x, made)
        if needs := traits(name).needs:
            return self.partly(name, needs, x)
        parity = known.parity if known is not None else 0
        turned = parity and x.terms and x.terms[min(x.terms)] < 0
        made = self._of(self.atom(name, scaled(x.terms, -1) if turned else x.terms), x.needs)
        if parity < 0 and (turned or not x.terms):
            made = _minus(made) if turned else Entry({}, x.needs)
        return made if known is not None and known.strict else self._choice(made.terms, x)

    def _exponential(self, x: Entry) -> Entry:
        """Of a multiple of a logarithm a power."""
        if self._is_mask(x.terms):
            return Entry({}, x.needs)
        out, of = Entry(number(1), x.needs), dict(x.terms)
        for mono, coef in x.terms.items():
            ((atom, power),) = mono if len(mono) == 1 else ((0, 0),)
            if power == 1 and self.atoms[atom][0] == "log" and coef.denominator == 1:
                base = Entry(self.argument(atom))
                out = self.product(out, self._power(base, Fraction(coef)))
                del of[mono]
        return self.product(out, self._of(self.atom("exp", of))) if of else out

    def _is_mask(self, terms: Terms) -> bool:
        """Whether a polynomial is `h + c`, `c` a mask and nothing in `h` weighted like one."""
        found = self.masks and terms.get((), 0) <= MASK
        found = found and all(abs(c) <= PLAIN for m, c in terms.items() if m)
        self.masked = self.masked or found
        return found

    def _power(self, x: Entry, exponent: Fraction) -> Entry:
        if exponent.denominator != 1 or abs(exponent) > 64:
            return self.partly(f"pow:{exponent}", "positive", x)
        base = self.partly("reciprocal", "not zero", x) if exponent < 0 else x
        out = Entry(number(1), base.needs)
        for _ in range(abs(int(exponent))):
            out = self.product(out, base)
        return out

    def partly(self, name: str, needs: str, x: Entry) -> Entry:
        """A function that may have no value."""
        if all(not m for m in x.terms):
            value = x.terms.get((), 0)
            if name == "reciprocal" and value:
                return Entry(number(over(value)), x.needs)
            if value <= 0:
                raise UndefinedError(f"{name} of {value}")
        if name not in ("reciprocal", "log") or not x.terms:
            return self._taken(name, needs, x.terms, x.needs)
        under = max((i for m in x.terms for i, _ in m if i in self._over), default=None)
        if under is not None:
            return self._cleared(name, needs, x, under)
        outer = self._outer(x.terms)
        inverse = ((self.atom("exp", scaled(outer, -1)), 1),) if outer else ()
        of = self.times(x.terms, {inverse: 1})
        by = 1 if name == "log" else over(of[min(of)])
        of = scaled(of, by)
        bare = of == number(1)
        if name == "reciprocal":
            made = Entry({inverse: by}, x.needs)
            return made if bare else self.product(made, self._taken(name, needs, of, x.needs))
        made = Entry(outer, x.needs)
        return made if bare else _sum((made, self._taken(name, needs, of, x.needs)))

    def _outer(self, terms: Terms) -> Terms:
        """The argument of the exponential that is taken out of a sum: of each summand of its
        exponents the least."""
        exps = [next((i for i, _ in m if i in self.exponentials), None) for m in terms]
        if not any(i is not None for i in exps):
            return {}
        of: list[Terms] = [{} if i is None else self.argument(i) for i in exps]
        self._left -= sum(map(len, of))
        least = {m: min(a.get(m, 0) for a in of) for m in dict.fromkeys(chain(*of))}
        return {m: c for m, c in least.items() if c}

    def _cleared(self, name: str, needs: str, x: Entry, under: int) -> Entry:
        """Of what has a denominator above 0: 1/(n/d) = d/n, log(n/d) = log n - log d."""
        most = max(int(dict(m).get(under, 0)) for m in x.terms)
        made = self.partly(name, needs, Entry(without(self, x.terms, under), x.needs))
        below = Entry(self.argument(under))
        if name == "reciprocal":
            return self.product(made, self._power(below, Fraction(most)))
        log = self.partly(name, needs, below)
        return _sum((made, Entry(scaled(log.terms, -most), log.needs)))

    def _taken(self, name: str, needs: str, of: Terms, before: frozenset[int]) -> Entry:
        square = self._square(of) if name == "reciprocal" else None
        if square is not None:
            return self.product(square, Entry(of, before))
        atom = self.atom(name, of)
        if not self.positive(of, strictly=needs != "not negative"):
            self.partial[atom] = needs
        return self._of(atom, before, frozenset({atom} & self.partial.keys()))

    def _square(self, of: Terms) -> Entry | None:
        """The reciprocal of the square, where the bank has it: 1/n is n/n^2."""
        if len(of) > SQUARED:
            return None
        square = self.times(of, of)
        by = over(square[min(square)])
        found = self._ids.get(("reciprocal", (frozenset(scaled(square, by).items()),)))
        if found is None:
            return None
        return Entry({((found, 1),): by}, frozenset({found} & self.partial.keys()))

    def _compare(self, name: str, a: Array, b: Array) -> Array:
        def entry(x: Entry, y: Entry) -> Entry:
            if name in ("gt", "le"):
                x, y = y, x
            gap = _sum((y, Entry(scaled(x.terms, -1))))
            holds = self._truth("is 0" if name in ("eq", "ne") else "above 0", gap.terms)
            if name in ("ne", "le", "ge"):
                holds = difference(number(1), holds)
            return self._choice(holds, x, y)

        return _plain(_each(entry, a, b))

    def _truth(self, name: str, terms: Terms) -> Terms:
        """1 where a polynomial is above 0, or is 0; else 0. Its scale is of no account."""
        if all(not m for m in terms):
            value = terms.get((), 0)
            return number(int(value > 0 if name == "above 0" else value == 0))
        lead = terms[min(terms)]
        by = abs(lead) if name == "above 0" else lead
        return {((self.atom(name, scaled(terms, over(by))), 1),): 1}

    def _holds(self, terms: Terms) -> Terms:
        """1 where a number is not 0, else 0."""
        for told in (terms, difference(number(1), terms)):
            if len(told) == 1:
                ((mono, coef),) = told.items()
                if coef == 1 and all(i in self._truths for i, _ in mono):
                    return terms
        return difference(number(1), self._truth("is 0", terms))

    def _maximum(self, a: Array, b: Array) -> Array:
        return _each(self._larger, a, b)

    def _larger(self, a: Entry, b: Entry) -> Entry:
        among = self._operands(a.terms) | self._operands(b.terms)
        numbers = {s for s in among if all(not m for m, _ in s)}
        if len(numbers) > 1:
            among = (among - numbers) | {max(numbers, key=lambda s: dict(s).get((), 0))}
        if len(among) > 1:
            among = {s for s in among if not self._is_mask(dict(s))} or among
        if len(among) == 1:
            return self._choice(dict(next(iter(among))), a, b)
        return self._choice(self._of(self._interned(("max", _ordered(among)))).terms, a, b)

    def _operands(self, terms: Terms) -> set[Frozen]:
        """Those of a maximum; of anything else itself."""
        if len(terms) == 1:
            ((mono, coef),) = terms.items()
            if coef == 1 and len(mono) == 1 and mono[0][1] == 1:
                name, args = self.atoms[mono[0][0]]
                if name == "max":
                    return {*args}
        return {frozenset(terms.items())}

    def where(self, cond: Array, a: Array, b: Array) -> Array:
        if is_index(cond):
            return super().where(cond, a, b)
        return _each(self._chosen, cond, self.lift(a), self.lift(b))

    def _chosen(self, held: Entry, x: Entry, y: Entry) -> Entry:
        made = self.times(held.terms, difference(x.terms, y.terms))
        return self._choice(_sum((Entry(made), Entry(y.terms))).terms, held, x, y)

    def logical(self, name: str, *operands: Array) -> Array:
        if all(is_index(x) for x in operands):
            return super().logical(name, *operands)
        given = [self.lift(x.astype(bool)) if is_index(x) else x for x in operands]
        return _plain(_each(partial(self._joined, name), *given))

    def _joined(self, name: str, *values: Entry) -> Entry:
        held = [self._holds(v.terms) for v in values]
        if name == "not":
            return self._choice(difference(number(1), *held), *values)
        both = self.times(*held)
        either = difference(_sum(map(Entry, held)).terms, both)
        return self._choice(both if name == "and" else either, *values)

    def truncate(self, a: Array) -> Array:
        values = [self._whole(e) for e in a.reshape(-1)]
        return np.asarray(values, dtype=np.int64).reshape(a.shape)

    def _whole(self, entry: Any) -> int:
        if any(entry.terms) or entry.needs:
            raise UndefinedError("a cast to an integer of what is no number")
        return int(entry.terms.get((), 0))

    def byte(self, a: Array) -> Array:
        return super().byte(a if is_index(a) else self.truncate(a))

    def topk_index(self, a: Array, k: int, axis: int) -> Array:
        raise UndefinedError("an index that depends on values")


class _Scalars:
    """What functions are defined by, on single entries."""

    def __init__(self, bank: Polynomials) -> None:
        self.bank, self.one = bank, Entry(number(1))

    def add(self, a: Entry, b: Entry) -> Entry:
        return _plus(a, b)

    def sub(self, a: Entry, b: Entry) -> Entry:
        return _plus(a, self.neg(b))

    def mul(self, a: Entry, b: Entry) -> Entry:
        return self.bank.product(a, b)

    def neg(self, a: Entry) -> Entry:
        return _minus(a)

    def scale(self, a: Entry, value: Fraction) -> Entry:
        return Entry(scaled(a.terms, exact(value)), a.needs)

    def reciprocal(self, a: Entry) -> Entry:
        return self.bank.partly("reciprocal", "not zero", a)

    def exp(self, a: Entry) -> Entry:
        return self.bank.function("exp", a)

    def log(self, a: Entry) -> Entry:
        return self.bank.function("log", a)

    def absolute(self, a: Entry) -> Entry:
        return self.bank.function("abs", a)


def _needs(entries: Iterable[Entry]) -> frozenset[int]:
    return frozenset[int]().union(*(e.needs for e in entries))


def _sum(entries: Iterable[Entry]) -> Entry:
    entries = list(entries)
    out: Terms = {}
    for e in entries:
        for m, c in e.terms.items():
            into(out, m, c)
    return Entry(out, _needs(entries))


def _plus(x: Entry, y: Entry) -> Entry:
    return _sum((x, y))


def _minus(x: Entry) -> Entry:
    return Entry(scaled(x.terms, -1), x.needs)


def _ordered(
    among: set[Frozen],
) -> tuple[Frozen, ...]:
    return tuple(sorted(among, key=lambda s: sorted(s)))


def _each(apply: Callable[..., Entry], *arrays: Array) -> Array:
    return objects(np.frompyfunc(apply, len(arrays), 1)(*arrays))


def _plain(a: Array) -> Array:
    """Truth values that are all known, and need nothing, as those of numpy."""
    if any(any(e.terms) or e.needs for e in a.reshape(-1)):
        return a
    return np.asarray([bool(e.terms) for e in a.reshape(-1)], dtype=bool).reshape(a.shape)
