"""Values of expressions at one random point of a prime field.

Equal forms have equal values. The values obey the laws of exp, of roots where the field has them,
of sine and cosine, so a value other than 0 mostly shows that no rewriting takes a form to 0.
"""

import hashlib
from fractions import Fraction

from verifier.domains.algebra.expressions import Expr, Expressions, Number

ORDER = 2305843009213645679
P = 2 * ORDER + 1
"""Both are prime, so the squares modulo P are a group of prime order: rational powers exist.

2, 3, 5, 7 and 11 are squares modulo P, and P = 3 modulo 4.
"""


class Point:
    """A point. Variables are squares, so that they have roots.

    Args:
        above: every comparison `p > 0` that is open is taken to hold; else truth values are random
            numbers, which tells apart what is equal by cases only.
    """

    def __init__(self, table: Expressions, above: bool = False) -> None:
        self.table, self.above = table, above
        self._exprs: dict[int, int] = {}
        self._monomials: dict[int, int] = {}
        self._atoms: dict[int, int] = {}
        self._refutes: dict[int, bool] = {}
        self._inverses: dict[int, int] = {}
        self._steps: dict[int, int] = {}

    def value(self, e: Expr) -> int:
        """The value modulo P."""
        found = self._exprs.get(e.id)
        if found is None:
            total = 0
            for m, c in e.terms.items():
                total += self._residue(c) * self._monomial(m)
            found = self._exprs[e.id] = total % P
        return found

    def refutes(self, e: Expr) -> bool:
        """Whether a value other than 0 shows that `e` is not found to be 0."""
        found = self._refutes.get(e.id)
        if found is None:
            atoms = {a for m in e.terms for a, _ in self.table.monomials[m][0]}
            found = self._refutes[e.id] = all(map(self._lawful, atoms))
        return found

    def _lawful(self, atom: int) -> bool:
        kind = self.table.atoms[atom]
        if kind.kind in ("pos", "neg"):
            return self.above
        if kind.kind not in ("sum", "root"):
            return True
        base = self.table.base(atom)
        if kind.kind == "root" and not self._has_root(base, kind.degree):
            return False
        return self.refutes(base) and self.value(base) != 0

    def _residue(self, c: Number) -> int:
        if isinstance(c, int):
            return c
        below = self._inverses.get(c.denominator)
        if below is None:
            below = self._inverses[c.denominator] = pow(c.denominator, -1, P)
        return c.numerator * below

    def _monomial(self, m: int) -> int:
        found = self._monomials.get(m)
        if found is None:
            factors, h = self.table.monomials[m]
            found = 1
            for atom, e in factors:
                value = self._atom(atom)
                if e == 1:
                    found = found * value % P
                elif value or e > 0:
                    found = found * pow(value, e, P) % P
            found = found * self._exp(h) % P
            self._monomials[m] = found
        return found

    def _exp(self, h: int) -> int:
        """A homomorphism from expressions to the squares: a random base for each monomial."""
        found = self._steps.get(h)
        if found is None:
            found = 1
            for m, c in self.table.exprs[h].terms.items():
                ratio = Fraction(c)
                power = ratio.numerator * pow(ratio.denominator, -1, ORDER) % ORDER
                found = found * pow(_square(f"exp {m}"), power, P) % P
            self._steps[h] = found
        return found

    def _atom(self, atom: int) -> int:
        found = self._atoms.get(atom)
        if found is None:
            found = self._atoms[atom] = self._find(atom)
        return found

    def _find(self, atom: int) -> int:
        kind = self.table.atoms[atom]
        if kind.kind == "sum":
            return self.value(self.table.base(atom))
        if kind.kind in ("pos", "neg") and self.above:
            return int(kind.kind == "pos")
        if kind.kind == "root" and self._has_root(self.table.base(atom), kind.degree):
            value, degree = self.value(self.table.base(atom)), kind.degree
            while degree > 1:
                value, degree = pow(value, (P + 1) // 4, P), degree // 2
            return value
        if kind.kind == "fn" and kind.name in ("sin", "cos"):
            t = _square(f"angle {kind.args[0]}")
            over = pow(1 + t * t, -1, P)
            return (2 * t if kind.name == "sin" else 1 - t * t) * over % P
        return _square(f"atom {atom}")

    def _has_root(self, base: Expr, degree: int) -> bool:
        return degree & (degree - 1) == 0 and pow(self.value(base), ORDER, P) == 1


def _square(key: str) -> int:
    """A random square other than 0."""
    digest = hashlib.blake2b(key.encode(), digest_size=16).digest()
    return pow(int.from_bytes(digest, "little") % (P - 1) + 1, 2, P)
