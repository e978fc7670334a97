"""Hash-consed real expressions: sums of monomials over atoms, equal forms being one object.

An `Expr` is `{monomial: rational}`. A monomial is a product of integer powers of atoms times
`exp(h)`, `h` an expression. An atom is a variable, a function of expressions, a root, the truth of
`p > 0` or of `p < 0`, or a sum `p` taken as one factor: with a negative power it is a
denominator, with a positive one a name for a sum that is too long to be multiplied out.
Identities that the constructors apply are listed in `tests/domains/identities.py`.
"""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from shardproof.verifier.domains.algebra.quotients import Number, Quotients, number, over

Factors = tuple[tuple[int, int], ...]
LONG = 64
"""A product of more terms than this takes its long operands as one factor each."""
SHORT = 8
"""A sum of at most so many terms is multiplied out wherever it is a factor."""


class ExceededError(Exception):
    """The terms or the seconds allowed are used up."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What one decision may use."""

    terms: int = 4_000_000
    """Terms of all expressions made."""
    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Atom:
    """`kind` is var, fn, sum, root, pos, neg or max; `args` are ids of expressions."""

    kind: str
    name: str
    args: tuple[int, ...] = ()
    degree: int = 0
    """Of a root: 2 for a square root."""


class Expr:
    """One expression of a table. Compare by identity."""

    __slots__ = ("id", "terms")

    def __init__(self, id: int, terms: dict[int, Number]) -> None:
        self.id = id
        self.terms = terms


class Expressions:
    """The table: atoms, monomials and expressions by id."""

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget or Budget()
        self.made = 0
        self.deadline = time.process_time() + self.budget.seconds
        self.atoms: list[Atom] = []
        self._atom_ids: dict[Atom, int] = {}
        self.monomials: list[tuple[Factors, int]] = []
        self._monomial_ids: dict[tuple[Factors, int], int] = {}
        self.denominators: list[tuple[int, ...]] = []
        """For each monomial, the sums in it with a negative power."""
        self.exprs: list[Expr] = []
        self._expr_ids: dict[frozenset[tuple[int, Number]], Expr] = {}
        self._times: dict[tuple[int, int], tuple[int, Expr | None] | None] = {}
        self._products: dict[tuple[int, int], Expr] = {}
        self._sums: dict[tuple[int, int], Expr] = {}
        self._leads: dict[int, int] = {}
        self._primitives: dict[int, tuple[Number, int, Expr]] = {}
        self._names: dict[int, Expr] = {}
        self._quotients = Quotients(self)
        self.zero = self.make({})
        self.unit = self.monomial((), 0)
        self.one = self.make({self.unit: 1})

    # tables

    def atom(self, kind: str, name: str, args: Iterable[Expr] = (), degree: int = 0) -> int:
        key = Atom(kind, name, tuple(a.id for a in args), degree)
        found = self._atom_ids.get(key)
        if found is None:
            found = len(self.atoms)
            self.atoms.append(key)
            self._atom_ids[key] = found
        return found

    def base(self, atom: int) -> Expr:
        """The first argument of an atom."""
        return self.exprs[self.atoms[atom].args[0]]

    def monomial(self, factors: Factors, exponent: int) -> int:
        """The id of a product of powers as it stands, times exp of an expression."""
        key = (factors, exponent)
        found = self._monomial_ids.get(key)
        if found is None:
            found = len(self.monomials)
            self.monomials.append(key)
            self._monomial_ids[key] = found
            self.denominators.append(
                tuple(a for a, e in factors if e < 0 and self.atoms[a].kind == "sum")
            )
        return found

    def make(self, terms: Mapping[int, Number]) -> Expr:
        """The expression with these terms."""
        kept = {m: number(c) for m, c in terms.items() if c}
        if len(kept) > 1 and any(self.denominators[m] for m in kept):
            self._quotients.cancel(kept)
        key = frozenset(kept.items())
        found = self._expr_ids.get(key)
        if found is None:
            self._spend(len(kept) + 1)
            found = Expr(len(self.exprs), kept)
            self.exprs.append(found)
            self._expr_ids[key] = found
        return found

    def _spend(self, terms: int) -> None:
        self.made += terms
        if self.made > self.budget.terms:
            raise ExceededError(f"more than {self.budget.terms} terms")
        if time.process_time() > self.deadline:
            raise ExceededError(f"more than {self.budget.seconds:g} s")

    def const(self, value: Number) -> Expr:
        return self.make({self.unit: value})

    def single(self, monomial: int, coef: Number = 1) -> Expr:
        return self.make({monomial: coef})

    def of_atom(self, atom: int) -> Expr:
        return self.single(self.monomial(((atom, 1),), 0))

    def value(self, e: Expr) -> Number | None:
        """The number that a constant is."""
        if not e.terms:
            return 0
        if len(e.terms) == 1:
            return e.terms.get(self.unit)
        return None

    # arithmetic

    def total(self, parts: Iterable[tuple[Number, Expr]]) -> Expr:
        """A linear combination."""
        out: dict[int, Number] = {}
        get = out.get
        for weight, e in parts:
            for m, c in e.terms.items():
                out[m] = get(m, 0) + (c if weight == 1 else weight * c)
        return self.make(out)

    def add(self, a: Expr, b: Expr) -> Expr:
        if not a.terms:
            return b
        if not b.terms:
            return a
        key = (a.id, b.id) if a.id < b.id else (b.id, a.id)
        found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = self.total(((1, a), (1, b)))
        return found

    def scale(self, e: Expr, factor: Number) -> Expr:
        if factor == 1:
            return e
        return self.make({m: c * factor for m, c in e.terms.items()})

    def neg(self, e: Expr) -> Expr:
        return self.scale(e, -1)

    def sub(self, a: Expr, b: Expr) -> Expr:
        return self.zero if a is b else self.add(a, self.neg(b))

    def mul(self, a: Expr, b: Expr) -> Expr:
        if not a.terms or not b.terms:
            return self.zero
        if a is self.one:
            return b
        if b is self.one:
            return a
        key = (a.id, b.id) if a.id < b.id else (b.id, a.id)
        found = self._products.get(key)
        if found is None:
            x, y = a, b
            if len(x.terms) * len(y.terms) > LONG:
                x, y = (self.named(v) if len(v.terms) > SHORT else v for v in (x, y))
            found = self._products[key] = self.expand(x, y)
        return found

    def expand(self, a: Expr, b: Expr) -> Expr:
        """The product, term by term."""
        out: dict[int, Number] = {}
        times = self.times
        self._spend(len(a.terms) * len(b.terms))
        for m, c in a.terms.items():
            for n, d in b.terms.items():
                product = times(m, n)
                if product is None:
                    continue
                at, extra = product
                if extra is None:
                    out[at] = out.get(at, 0) + c * d
                    continue
                for k, f in self.mul(self.single(at), extra).terms.items():
                    out[k] = out.get(k, 0) + c * d * f
        return self.make(out)

    def power(self, e: Expr, exponent: int) -> Expr:
        """A power with an exponent of 0 or more."""
        out = self.one
        for _ in range(exponent):
            out = self.mul(out, e)
        return out

    def times(self, m: int, n: int) -> tuple[int, Expr | None] | None:
        """A product of monomials: a monomial, with a sum to multiply it by; None where it is 0."""
        key = (m, n) if m < n else (n, m)
        if key in self._times:
            return self._times[key]
        (left, g), (right, h) = self.monomials[m], self.monomials[n]
        powers = dict(left)
        for atom, e in right:
            powers[atom] = powers.get(atom, 0) + e
        exponent = self.add(self.exprs[g], self.exprs[h]).id if g and h else g or h
        made = self._times[key] = self._normal(powers, exponent)
        return made

    def _normal(self, powers: dict[int, int], h: int) -> tuple[int, Expr | None] | None:
        extra = self.one
        moved = True
        while moved:
            moved = False
            for atom in list(powers):
                kind = self.atoms[atom]
                if kind.kind != "root" or 0 <= powers[atom] < kind.degree:
                    continue
                whole, powers[atom] = divmod(powers[atom], kind.degree)
                coef, inner, p = self.primitive(self.base(atom))
                extra = self.scale(extra, number(Fraction(coef) ** whole))
                factors, g = self.monomials[inner]
                if p is not self.one:
                    factors = (*factors, (self.atom("sum", "", (p,)), 1))
                for other, e in factors:
                    powers[other] = powers.get(other, 0) + e * whole
                if g:
                    h = self.add(self.exprs[h], self.scale(self.exprs[g], whole)).id
                moved = True
                break
        for atom, e in list(powers.items()):
            kind = self.atoms[atom]
            if e > 1 and kind.kind in ("pos", "neg"):
                powers[atom] = 1
            elif e > 1 and kind.kind == "fn" and kind.name == "sin":
                cos = self.of_atom(self.atom("fn", "cos", (self.base(atom),)))
                square = self.sub(self.one, self.mul(cos, cos))
                extra, powers[atom] = self.mul(extra, self.power(square, e // 2)), e % 2
            elif e > 0 and kind.kind == "sum" and len(self.base(atom).terms) <= SHORT:
                extra, powers[atom] = self.mul(extra, self.power(self.base(atom), e)), 0
        for atom, e in powers.items():
            kind = self.atoms[atom]
            if e > 0 and kind.kind == "pos":
                other = self._atom_ids.get(Atom("neg", "", kind.args))
                if other is not None and powers.get(other, 0) > 0:
                    return None
        made = self.monomial(tuple(sorted((a, e) for a, e in powers.items() if e)), h)
        return made, (None if extra is self.one else extra)

    # order and factors

    def above(self, m: int, n: int) -> bool:
        """A total order of monomials that multiplication by a power or an exp keeps."""
        (left, g), (right, h) = self.monomials[m], self.monomials[n]
        if g != h:
            return self.lexsign(self.sub(self.exprs[g], self.exprs[h])) > 0
        powers = dict(left)
        for atom, e in right:
            powers[atom] = powers.get(atom, 0) - e
        first = min((a for a, e in powers.items() if e), default=None)
        return first is not None and powers[first] > 0

    def lexsign(self, e: Expr) -> int:
        """A sign for expressions that linear combinations keep; 0 for the zero alone."""
        if not e.terms:
            return 0
        return 1 if e.terms[min(e.terms)] > 0 else -1

    def lead(self, e: Expr) -> int:
        """The highest monomial."""
        found = self._leads.get(e.id)
        if found is None:
            terms = iter(e.terms)
            found = next(terms)
            for m in terms:
                if self.above(m, found):
                    found = m
            self._leads[e.id] = found
        return found

    def primitive(self, e: Expr) -> tuple[Number, int, Expr]:
        """`(c, m, p)` with `e = c m p`: a number, a monomial, and 1 or a sum without factors.

        The highest monomial of `p` has a positive coefficient and no exp. The monomial may hold
        negative powers; in `p` they are left only where clearing them would make it long.
        """
        found = self._primitives.get(e.id)
        if found is None:
            found = self._primitives[e.id] = self._primitive(e, 8)
        return found

    def _primitive(self, e: Expr, depth: int) -> tuple[Number, int, Expr]:
        if not e.terms:
            return 0, self.unit, self.one
        if len(e.terms) == 1:
            ((m, c),) = e.terms.items()
            return c, m, self.one
        lead = self.lead(e)
        exponent = self.monomials[lead][1]
        powers = self._common(e)
        if not powers and not exponent:
            values = [Fraction(c) for c in e.terms.values()]
            content = Fraction(
                math.gcd(*(v.numerator for v in values)),
                math.lcm(*(v.denominator for v in values)),
            )
            c = number(content if e.terms[lead] > 0 else -content)
            return c, self.unit, self.scale(e, over(1, c))
        factors = tuple(sorted(powers.items()))
        outer = self.monomial(factors, exponent)
        inverse = self.inverse(outer)
        rest = self.expand(e, self.raw(inverse))
        if not depth:
            return 1, self.unit, e
        c, m, p = self._primitive(rest, depth - 1)
        joined = self._join(outer, m)
        return (1, self.unit, e) if joined is None else (c, joined, p)

    def _common(self, e: Expr) -> dict[int, int]:
        """The least powers of atoms over all terms, long denominators of some terms left aside."""
        counts: dict[int, int] = {}
        least: dict[int, int] = {}
        for m in e.terms:
            for atom, k in self.monomials[m][0]:
                counts[atom] = counts.get(atom, 0) + 1
                least[atom] = min(least.get(atom, k), k)
        out, sums = dict[int, int](), list[int]()
        for atom, k in least.items():
            if counts[atom] == len(e.terms):
                out[atom] = k
            elif k < 0:
                out[atom] = k
                if self.atoms[atom].kind == "sum":
                    sums.append(atom)
        if len(sums) > 1 or any(len(e.terms) * len(self.base(a).terms) > LONG for a in sums):
            for atom in sums:
                del out[atom]
        return {atom: k for atom, k in out.items() if k}

    def _join(self, m: int, n: int) -> int | None:
        if n == self.unit:
            return m
        product = self.times(m, n)
        return product[0] if product is not None and product[1] is None else None

    def inverse(self, m: int) -> int:
        """The monomial with all powers negated, as it stands: an operand, not a value."""
        factors, h = self.monomials[m]
        minus = self.neg(self.exprs[h]).id
        return self.monomial(tuple((a, -e) for a, e in factors), minus)

    def raw(self, m: int) -> Expr:
        return self.single(m)

    def named(self, e: Expr) -> Expr:
        """A long sum as a number times one factor."""
        found = self._names.get(e.id)
        if found is None:
            c, m, p = self.primitive(e)
            found = e
            if len(p.terms) > SHORT:
                name = self.monomial(((self.atom("sum", "", (p,)), 1),), 0)
                found = self.scale(self.expand(self.single(m), self.single(name)), c)
            self._names[e.id] = found
        return found
