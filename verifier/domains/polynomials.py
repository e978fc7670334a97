"""Real numbers as polynomials over an interned bank of atoms: equal entries are one polynomial.

An atom is an input's entry or a function of polynomials. Arithmetic is that of a commutative ring;
besides it holds here that exp(a + b) = exp(a) exp(b), that a truth value is its own square, that a
maximum is that of a set, and that exponentials and rational factors are taken out of a reciprocal
and a logarithm. Nothing else is known of a function but that equal operands give equal values.
"""

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from shardproof.verifier.domains.base import (
    Array,
    Symbols,
    UndefinedError,
    is_index,
    objects,
)
from shardproof.verifier.domains.floats import FUNCTIONS
from shardproof.verifier.kernel.program.registry import traits

Exact = Fraction | int
"""Whole numbers are those of Python, which are fast."""
Mono = tuple[tuple[int, Exact], ...]
"""Atoms with their powers, by number; only exponentials have other powers than 1, 2, ..."""
Terms = dict[Mono, Exact]
Frozen = frozenset[tuple[Mono, Exact]]
"""A polynomial that is part of an atom."""
MOST = 150_000
"""Products of monomials that are written out before a comparison is given up."""
TRUTHS = ("above 0", "is 0")
"""Comparisons of a polynomial with 0, which are 1 or 0."""


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
    without; else all atoms that it may have none without.

    Raises UndefinedError from any operation that has no polynomial, or too large a one.
    """

    dtype = object

    def __init__(self) -> None:
        self.atoms: list[tuple[str, tuple[Frozen, ...]]] = []
        self.least = False
        self.partial = set[int]()
        """Functions that are not seen to have a value everywhere."""
        self._ids: dict[object, int] = {}
        self._truths = set[int]()
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
                _into(out, self.joined(m, n), c * d)
        return out

    def joined(self, a: Mono, b: Mono) -> Mono:
        """The product of two monomials."""
        if not a or not b:
            return a or b
        powers = dict(a)
        for atom, power in b:
            before = powers.get(atom)
            if before is None:
                powers[atom] = power
            elif atom not in self._truths:
                powers[atom] = before + power
        return tuple(sorted((i, p) for i, p in powers.items() if p))

    def positive(self, terms: Terms, strictly: bool = True) -> bool:
        """Whether a polynomial is seen to be above 0, or at least 0: a sum of positive multiples of
        squares and of functions that are not negative."""

        def sign(atom: int) -> int | None:
            return 0 if atom in self._truths else traits(self.atoms[atom][0]).sign

        def safe(mono: Mono) -> bool:
            return all(p % 2 == 0 or sign(i) is not None for i, p in mono)

        above = any(all(sign(i) == 1 for i, _ in mono) for mono in terms)
        return all(c > 0 and safe(m) for m, c in terms.items()) and (above or not strictly)

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
        return objects(Entry(_number(_exact(value))))

    def full(self, shape: tuple[int, ...], value: Fraction) -> Array:
        out = np.empty(shape, dtype=object)
        out.fill(Entry(_number(_exact(value))))
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
        made = self._of(self.atom(name, x.terms), x.needs)
        return made if known is not None and known.strict else self._choice(made.terms, x)

    def _exponential(self, x: Entry) -> Entry:
        """A factor for each summand; of a multiple of a logarithm a power."""
        out, powers = Entry(_number(1), x.needs), list[tuple[int, Exact]]()
        for mono, coef in x.terms.items():
            ((atom, power),) = mono if len(mono) == 1 else ((0, 0),)
            if power == 1 and self.atoms[atom][0] == "log" and coef.denominator == 1:
                of = Entry(self.argument(atom))
                out = self.product(out, self._power(of, Fraction(coef)))
            else:
                powers.append((self.atom("exp", {mono: 1}), coef))
        return self.product(out, Entry({tuple(sorted(powers)): 1}))

    def _power(self, x: Entry, exponent: Fraction) -> Entry:
        if exponent.denominator != 1 or abs(exponent) > 64:
            return self.partly(f"pow:{exponent}", "positive", x)
        base = self.partly("reciprocal", "not zero", x) if exponent < 0 else x
        out = Entry(_number(1), base.needs)
        for _ in range(abs(int(exponent))):
            out = self.product(out, base)
        return out

    def partly(self, name: str, needs: str, x: Entry) -> Entry:
        """A function that may have no value."""
        if all(not m for m in x.terms):
            value = x.terms.get((), 0)
            if name == "reciprocal" and value:
                return Entry(_number(_over(value)), x.needs)
            if value <= 0:
                raise UndefinedError(f"{name} of {value}")
        if name not in ("reciprocal", "log") or not x.terms:
            return self._taken(name, needs, x.terms, x.needs)
        lead = min(x.terms)
        outer = tuple((i, p) for i, p in lead if self.atoms[i][0] == "exp")
        inverse = tuple((i, -p) for i, p in outer)
        by = 1 if name == "log" else _over(x.terms[lead])
        of = _scaled(self.times(x.terms, {inverse: 1}), by)
        bare = of == _number(1)
        if name == "reciprocal":
            made = Entry({inverse: by}, x.needs)
            return made if bare else self.product(made, self._taken(name, needs, of, x.needs))
        summands = [Entry(_scaled(self.argument(i), p), x.needs) for i, p in outer]
        rest = Entry({}, x.needs) if bare else self._taken(name, needs, of, x.needs)
        return _sum([*summands, rest])

    def _taken(self, name: str, needs: str, of: Terms, before: frozenset[int]) -> Entry:
        atom = self.atom(name, of)
        if not self.positive(of, strictly=needs != "not negative"):
            self.partial.add(atom)
        return self._of(atom, before, frozenset(self.partial & {atom}))

    def _compare(self, name: str, a: Array, b: Array) -> Array:
        def entry(x: Entry, y: Entry) -> Entry:
            if name in ("gt", "le"):
                x, y = y, x
            gap = _sum((y, Entry(_scaled(x.terms, -1))))
            holds = self._truth("is 0" if name in ("eq", "ne") else "above 0", gap.terms)
            if name in ("ne", "le", "ge"):
                holds = difference(_number(1), holds)
            return self._choice(holds, x, y)

        return _plain(_each(entry, a, b))

    def _truth(self, name: str, terms: Terms) -> Terms:
        """1 where a polynomial is above 0, or is 0; else 0. Its scale is of no account."""
        if all(not m for m in terms):
            value = terms.get((), 0)
            return _number(int(value > 0 if name == "above 0" else value == 0))
        lead = terms[min(terms)]
        by = abs(lead) if name == "above 0" else lead
        return {((self.atom(name, _scaled(terms, _over(by))), 1),): 1}

    def _holds(self, terms: Terms) -> Terms:
        """1 where a number is not 0, else 0."""
        for told in (terms, difference(_number(1), terms)):
            if len(told) == 1:
                ((mono, coef),) = told.items()
                if coef == 1 and all(i in self._truths for i, _ in mono):
                    return terms
        return difference(_number(1), self._truth("is 0", terms))

    def _maximum(self, a: Array, b: Array) -> Array:
        return _each(self._larger, a, b)

    def _larger(self, a: Entry, b: Entry) -> Entry:
        among = self._operands(a.terms) | self._operands(b.terms)
        numbers = {s for s in among if all(not m for m, _ in s)}
        if len(numbers) > 1:
            among = (among - numbers) | {max(numbers, key=lambda s: dict(s).get((), 0))}
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
            return self._choice(difference(_number(1), *held), *values)
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


ROOTS = {"reciprocal": (1, True), "rsqrt": (2, True), "sqrt": (2, False)}
"""Functions y of x with y^n x = 1, or y^n = x, wherever they have a value: n, and which."""


def without(bank: Polynomials, terms: Terms, atom: int) -> Terms:
    """By the axiom of a root y of x, a polynomial that is 0 where x is not 0, or y no inverse, only
    if the given one is: in it y has a power below n.

    Raises UndefinedError where the atom is none of `ROOTS`.
    """
    name, _ = bank.atoms[atom]
    if name not in ROOTS:
        raise UndefinedError(f"no axiom of {name}")
    (degree, inverse), of, out = ROOTS[name], bank.argument(atom), dict[Mono, Exact]()
    powers = {m: int(dict(m).get(atom, 0)) for m in terms}
    most = max((p // degree for p in powers.values()), default=0)
    for mono, power in powers.items():
        rest = tuple((i, p) for i, p in mono if i != atom)
        left: Mono = ((atom, power % degree),) if power % degree else ()
        part = {bank.joined(rest, left): terms[mono]}
        times = power // degree
        for _ in range(most - times if inverse else times):
            part = bank.times(part, of)
        for m, c in part.items():
            _into(out, m, c)
    return out


class _Scalars:
    """What functions are defined by, on single entries."""

    def __init__(self, bank: Polynomials) -> None:
        self.bank, self.one = bank, Entry(_number(1))

    def add(self, a: Entry, b: Entry) -> Entry:
        return _plus(a, b)

    def sub(self, a: Entry, b: Entry) -> Entry:
        return _plus(a, self.neg(b))

    def mul(self, a: Entry, b: Entry) -> Entry:
        return self.bank.product(a, b)

    def neg(self, a: Entry) -> Entry:
        return _minus(a)

    def scale(self, a: Entry, value: Fraction) -> Entry:
        return Entry(_scaled(a.terms, _exact(value)), a.needs)

    def reciprocal(self, a: Entry) -> Entry:
        return self.bank.partly("reciprocal", "not zero", a)

    def exp(self, a: Entry) -> Entry:
        return self.bank.function("exp", a)

    def log(self, a: Entry) -> Entry:
        return self.bank.function("log", a)

    def absolute(self, a: Entry) -> Entry:
        return self.bank.function("abs", a)


def _number(value: Exact) -> Terms:
    return {(): value} if value else {}


def _exact(value: Exact) -> Exact:
    return value.numerator if value.denominator == 1 else value


def _over(value: Exact) -> Exact:
    return _exact(1 / Fraction(value))


def _into(out: Terms, mono: Mono, coef: Exact) -> None:
    before = out.get(mono)
    total = coef if before is None else before + coef
    if total:
        out[mono] = total
    else:
        out.pop(mono, None)


def _scaled(terms: Terms, by: Exact) -> Terms:
    return {m: c if by == 1 else _exact(c * by) for m, c in terms.items()} if by else {}


def _needs(entries: Iterable[Entry]) -> frozenset[int]:
    return frozenset[int]().union(*(e.needs for e in entries))


def _sum(entries: Iterable[Entry]) -> Entry:
    entries = list(entries)
    out: Terms = {}
    for e in entries:
        for m, c in e.terms.items():
            _into(out, m, c)
    return Entry(out, _needs(entries))


def _plus(x: Entry, y: Entry) -> Entry:
    return _sum((x, y))


def _minus(x: Entry) -> Entry:
    return Entry(_scaled(x.terms, -1), x.needs)


def difference(a: Terms, b: Terms) -> Terms:
    """One polynomial less another."""
    return _sum((Entry(a), Entry(_scaled(b, -1)))).terms


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
