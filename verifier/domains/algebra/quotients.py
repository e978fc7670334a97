"""`p / p`: fractions over one sum whose numerators are that sum."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardproof.verifier.domains.algebra.expressions import Expressions

Number = int | Fraction
Shift = tuple[int, Number, list[tuple[int, Number]]]
"""Of a term over its sum: what takes it to the quotient, its coefficient, steps to the others."""


def number(value: Number) -> Number:
    """An integer where the value is one."""
    if isinstance(value, Fraction) and value.denominator == 1:
        return value.numerator
    return value


def over(a: Number, b: Number) -> Number:
    return number(Fraction(a) / b)


class Quotients:
    """Sums of terms of one table, cleared of fractions that add up to 1."""

    def __init__(self, table: Expressions) -> None:
        self.table = table
        self._shifts: dict[int, Shift | None] = {}

    def cancel(self, terms: dict[int, Number]) -> None:
        """Replace `t p_1 / p + ... + t p_n / p`, `p` the sum of the `p_i`, by `t`."""
        again = True
        while again:
            again = False
            groups: dict[int, list[int]] = {}
            for m in terms:
                for atom in self.table.denominators[m]:
                    groups.setdefault(atom, []).append(m)
            for atom, members in groups.items():
                if len(members) < len(self.table.base(atom).terms):
                    continue
                shifts = self._shift(atom)
                if shifts is None:
                    continue
                for m in members:
                    again = self._cancel_one(terms, m, shifts) or again

    def _shift(self, atom: int) -> Shift | None:
        """What takes the pivot term of a sum to the quotient, and to its other terms."""
        if atom in self._shifts:
            return self._shifts[atom]
        p = self.table.base(atom)
        kinds = self.table.atoms
        pivot = next(
            (
                m
                for m in p.terms
                if not any(kinds[a].kind in ("pos", "neg") for a, _ in self.table.monomials[m][0])
            ),
            None,
        )
        found = None
        if pivot is not None:
            factors, h = self.table.monomials[self.table.inverse(pivot)]
            powers = dict(factors)
            powers[atom] = powers.get(atom, 0) + 1
            quotient = self.table.monomial(tuple(sorted(powers.items())), h)
            lead, others = p.terms[pivot], list[tuple[int, Number]]()
            inverse = self.table.inverse(pivot)
            for m, c in p.terms.items():
                if m != pivot:
                    step = self.table.times(m, inverse)
                    if step is None or step[1] is not None:
                        self._shifts[atom] = None
                        return None
                    others.append((step[0], over(c, lead)))
            found = quotient, lead, others
        self._shifts[atom] = found
        return found

    def _cancel_one(
        self,
        terms: dict[int, Number],
        m: int,
        shifts: Shift,
    ) -> bool:
        coef = terms.get(m)
        if coef is None:
            return False
        quotient, lead, others = shifts
        gone = {m}
        for step, ratio in others:
            at = self.table.times(m, step)
            if at is None or at[1] is not None or at[0] in gone:
                return False
            other = terms.get(at[0])
            if other is None or other != (coef if ratio == 1 else coef * ratio):
                return False
            gone.add(at[0])
        left = self.table.times(m, quotient)
        if left is None or left[1] is not None:
            return False
        for k in gone:
            del terms[k]
        value = number(terms.get(left[0], 0) + over(coef, lead))
        if value:
            terms[left[0]] = value
        else:
            terms.pop(left[0], None)
        return True
