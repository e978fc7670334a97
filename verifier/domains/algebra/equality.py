"""Whether two expressions are equal: denominators cleared, names spelled out, cases of signs."""

import hashlib
from collections.abc import Callable
from fractions import Fraction

from shardproof.verifier.domains.algebra.expressions import Budget, ExceededError, Expr, Number
from shardproof.verifier.domains.algebra.order import Order

ROUNDS = 400
TERMS = 50_000
"""Terms that one comparison may use."""
CASES = 6
"""Signs that one comparison may split on, one within the other."""


class LongError(ExceededError):
    """One comparison takes too many terms."""


class Equality(Order):
    """Expressions with a decision of equality."""

    def __init__(self, budget: Budget | None = None) -> None:
        self._digests: dict[int, str] = {}
        self._limit = 0
        super().__init__(budget)

    def equal(self, a: Expr, b: Expr) -> bool:
        """True only where the values are equal for all inputs in scope. Raises ExceededError."""
        if a is b:
            return True
        gap = self.sub(a, b)
        parts = self._parts(gap)
        apart = len(parts) > 1 and all(map(self._found_zero, parts))
        return apart or self._found_zero(gap)

    def _found_zero(self, e: Expr) -> bool:
        self._limit = self.made + TERMS
        return self._zero(e, CASES)

    def _parts(self, e: Expr) -> list[Expr]:
        """Summands without a common factor that is a sum.

        To clear the denominators of one part takes none of the others.
        """
        groups: list[tuple[set[int], dict[int, Number]]] = []
        for m, c in e.terms.items():
            sums, terms = set(self._sums_in(m)), {m: c}
            near = [g for g in groups if g[0] & sums or not (g[0] or sums)]
            for other, more in near:
                sums, terms = sums | other, more | terms
            groups = [g for g in groups if g not in near] + [(sums, terms)]
        return [self.make(terms) for _, terms in groups]

    # the decision

    def _zero(self, e: Expr, cases: int) -> bool:
        for _ in range(ROUNDS):
            if not e.terms:
                return True
            if self.made > self._limit:
                return False
            atom = max((a for m in e.terms for a in self._sums_in(m)), default=None)
            if atom is None:
                break
            e = self._spelled(e, atom)
        else:
            return False
        return cases > 0 and self._by_cases(e, cases)

    def _sums_in(self, m: int) -> list[int]:
        return [a for a, _ in self.monomials[m][0] if self.atoms[a].kind == "sum"]

    def _by_power(self, e: Expr, atom: int) -> dict[int, Expr]:
        """The coefficients of the powers of an atom."""
        groups: dict[int, dict[int, Number]] = {}
        for m, c in e.terms.items():
            factors, h = self.monomials[m]
            power = next((k for a, k in factors if a == atom), 0)
            rest = self.monomial(tuple(f for f in factors if f[0] != atom), h)
            groups.setdefault(power, {})[rest] = c
        return {power: self.make(terms) for power, terms in groups.items()}

    def _spelled(self, e: Expr, atom: int) -> Expr:
        """`e` times a power of the sum that `atom` stands for, the sum written out."""
        groups, base = self._by_power(e, atom), self.base(atom)
        least, most = min(0, *groups), max(groups)
        out = self.zero
        for power in range(most, least - 1, -1):
            if self.made + len(out.terms) * len(base.terms) > self._limit:
                raise LongError(f"more than {TERMS} terms to compare two expressions")
            out = self.add(self.expand(out, base), groups.get(power, self.zero))
        return out

    def _by_cases(self, e: Expr, cases: int) -> bool:
        """`a + b [p > 0] + c [p < 0]` is 0 where `a + b`, `a + c` and, if p = 0, `a` are."""
        ids = {
            self.atoms[a].args
            for m in e.terms
            for a, _ in self.monomials[m][0]
            if self.atoms[a].kind in ("pos", "neg")
        }
        if not ids:
            return False
        (base,) = min(ids)
        p = self.exprs[base]
        above, below = (self.atom(kind, "", (p,)) for kind in ("pos", "neg"))
        by_above = self._by_power(e, above)
        rest = self._by_power(by_above.get(0, self.zero), below)
        a, c, b = rest.get(0, self.zero), rest.get(1, self.zero), by_above.get(1, self.zero)
        if not {*by_above, *rest} <= {0, 1}:
            return False
        left = cases - 1
        return (
            self._zero(self.add(a, b), left)
            and (self.nonnegative(p) or self._zero(self.add(a, c), left))
            and (self._vanishes(a, p) or self._zero(a, left))
        )

    def _vanishes(self, e: Expr, p: Expr) -> bool:
        """Whether `e`, a polynomial, is a multiple of the polynomial `p`."""
        lead = self.lead(p)
        exponents = [self.monomials[m][1] for m in (*e.terms, *p.terms)]
        powers = [k for m in (*e.terms, *p.terms) for _, k in self.monomials[m][0]]
        if any(exponents) or min(powers, default=0) < 0:
            return False
        factors = dict(self.monomials[lead][0])
        for _ in range(ROUNDS):
            if not e.terms:
                return True
            top = self.lead(e)
            quotient = dict(self.monomials[top][0])
            for atom, k in factors.items():
                quotient[atom] = quotient.get(atom, 0) - k
            if min(quotient.values(), default=0) < 0:
                return False
            at = self.monomial(tuple(sorted((a, k) for a, k in quotient.items() if k)), 0)
            coef = Fraction(e.terms[top]) / p.terms[lead]
            e = self.sub(e, self.scale(self.expand(self.single(at), p), coef))
        return False

    # names

    def digest(self, e: Expr) -> str:
        """A digest of the form, for certificates."""
        found = self._digests.get(e.id)
        if found is None:
            parts = sorted(f"{c}*{self._monomial_text(m, self.digest)}" for m, c in e.terms.items())
            found = hashlib.sha256("+".join(parts).encode()).hexdigest()
            self._digests[e.id] = found
        return found

    def show(self, e: Expr, limit: int = 6) -> str:
        """The form in words, long ones cut."""
        if not e.terms:
            return "0"
        parts: list[str] = []
        for m, c in list(e.terms.items())[:limit]:
            text = self._monomial_text(m, lambda inner: self.show(inner, 3))
            sign = "-" if c < 0 else "+"
            size = "" if abs(c) == 1 and text else str(abs(c))
            parts.append(f"{sign} {' '.join(t for t in (size, text) if t)}")
        if len(e.terms) > limit:
            parts.append(f"+ {len(e.terms) - limit} more terms")
        return " ".join(parts).removeprefix("+ ")

    def _monomial_text(self, m: int, text: Callable[[Expr], str]) -> str:
        factors, h = self.monomials[m]
        parts: list[str] = []
        for atom, power in factors:
            kind = self.atoms[atom]
            name = kind.name or kind.kind
            inner = ", ".join(text(self.exprs[i]) for i in kind.args)
            shown = {
                "var": name,
                "const": name,
                "sum": f"({inner})",
                "pos": f"[{inner} > 0]",
                "neg": f"[{inner} < 0]",
                "root": f"({inner})^(1/{kind.degree})",
            }.get(kind.kind, f"{name}({inner})")
            parts.append(shown if power == 1 else f"{shown}^{power}")
        if h:
            parts.append(f"exp({text(self.exprs[h])})")
        return " ".join(parts)
