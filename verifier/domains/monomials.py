"""Sums of products of atoms with exact coefficients: a commutative ring, written out."""

from fractions import Fraction

Exact = Fraction | int
"""Whole numbers are those of Python, which are fast."""
Mono = tuple[tuple[int, int], ...]
"""Atoms with their powers, by number."""
Terms = dict[Mono, Exact]
Frozen = frozenset[tuple[Mono, Exact]]
"""A polynomial that is part of an atom."""


def number(value: Exact) -> Terms:
    """A number as a polynomial."""
    return {(): value} if value else {}


def exact(value: Exact) -> Exact:
    """The number as Python has it, where it is whole."""
    return value.numerator if value.denominator == 1 else value


def over(value: Exact) -> Exact:
    """Its inverse."""
    return exact(1 / Fraction(value))


def into(out: Terms, mono: Mono, coef: Exact) -> None:
    """Add a multiple of a monomial."""
    before = out.get(mono)
    total = coef if before is None else before + coef
    if total:
        out[mono] = total
    else:
        out.pop(mono, None)


def scaled(terms: Terms, by: Exact) -> Terms:
    """A multiple."""
    return {m: c if by == 1 else exact(c * by) for m, c in terms.items()} if by else {}


def difference(a: Terms, b: Terms) -> Terms:
    """One polynomial less another."""
    out = dict(a)
    for mono, coef in b.items():
        into(out, mono, -coef)
    return out


def ratio(a: Terms, b: Terms) -> Exact:
    """By what one polynomial is a multiple of another, 0 where it is none."""
    if not a or a.keys() != b.keys():
        return 0
    by = {Fraction(a[m]) / b[m] for m in a}
    return by.pop() if len(by) == 1 else 0
