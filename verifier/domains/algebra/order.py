"""Comparisons and maxima.

The truth of a comparison is an expression that is 0 or 1: `[p > 0]` and `[p < 0]` are atoms that
equal their squares and exclude each other, and `and`, `or`, `not` are arithmetic on them.
"""

from collections.abc import Iterable
from fractions import Fraction

from shardproof.verifier.domains.algebra.expressions import Budget, Expr, Number
from shardproof.verifier.domains.algebra.functions import Functions


class Order(Functions):
    """Expressions with an order."""

    def __init__(self, budget: Budget | None = None) -> None:
        super().__init__(budget)
        self.truths: set[int] = {self.zero.id, self.one.id}
        """Expressions that are 0 or 1 for all values."""
        self._maxima: dict[int, frozenset[int]] = {}

    def _truth(self, e: Expr) -> Expr:
        self.truths.add(e.id)
        return e

    def signs(self, d: Expr) -> tuple[Expr, Expr]:
        """`[d > 0]` and `[d < 0]`."""
        value = self.value(d)
        known = self.sign(d) if value is None else (value > 0) - (value < 0)
        if known or value is not None:
            yes = (self.one, self.zero)
            return yes if known > 0 else (self.zero, self.zero if known == 0 else self.one)
        c, m, p = self.primitive(d)
        kept = [(a, e) for a, e in self.monomials[m][0] if not self.positive_atom(a)]
        outer = self.single(self.monomial(tuple(kept), 0))
        base = self.mul(outer, p)
        above, below = (
            self._truth(self.of_atom(self.atom(k, "", (base,)))) for k in ("pos", "neg")
        )
        if self.nonnegative(base):
            below = self.zero
        elif self.nonnegative(self.neg(base)):
            above = self.zero
        return (above, below) if c > 0 else (below, above)

    def compare(self, name: str, a: Expr, b: Expr) -> Expr:
        """The truth of a comparison, by the name programs use."""
        if a.id in self.truths and b.id in self.truths:
            return self._compare_truths(name, a, b)
        if self.leaves(a) or self.leaves(b):
            return self._compare_loose(name, a, b)
        above, below = self.signs(self.sub(a, b))
        either = self.add(above, below)
        made = {
            "gt": above,
            "lt": below,
            "ge": self.sub(self.one, below),
            "le": self.sub(self.one, above),
            "ne": either,
            "eq": self.sub(self.one, either),
        }
        return self._truth(made[name])

    def _compare_loose(self, name: str, a: Expr, b: Expr) -> Expr:
        """Of what may have no value neither `a > b` nor `a <= b` need hold."""
        if name in ("eq", "ne"):
            equal = self._truth(self.closed("eq", *sorted((a, b), key=lambda e: e.id)))
            return equal if name == "eq" else self.negation(equal)
        a, b = (a, b) if name in ("gt", "ge") else (b, a)
        return self._truth(self.closed("gt" if name in ("gt", "lt") else "ge", a, b))

    def _compare_truths(self, name: str, a: Expr, b: Expr) -> Expr:
        both = self.mul(a, b)
        only_a, only_b = self.sub(a, both), self.sub(b, both)
        either = self.add(only_a, only_b)
        made = {
            "gt": only_a,
            "lt": only_b,
            "ge": self.sub(self.one, only_b),
            "le": self.sub(self.one, only_a),
            "ne": either,
            "eq": self.sub(self.one, either),
        }
        return self._truth(made[name])

    def both(self, a: Expr, b: Expr) -> Expr:
        return self._truth(self.mul(a, b))

    def either(self, a: Expr, b: Expr) -> Expr:
        return self._truth(self.sub(self.add(a, b), self.mul(a, b)))

    def negation(self, a: Expr) -> Expr:
        return self._truth(self.sub(self.one, a))

    def choose(self, cond: Expr, a: Expr, b: Expr) -> Expr:
        if a is b or cond is self.one:
            return a
        if not cond.terms:
            return b
        if self.leaves(a) or self.leaves(b):
            return self.add(self.chosen(cond, a), self.chosen(self.negation(cond), b))
        return self.add(b, self.mul(cond, self.sub(a, b)))

    # maxima

    def maximum(self, a: Expr, b: Expr) -> Expr:
        return self.largest((a, b))

    def largest(self, operands: Iterable[Expr]) -> Expr:
        """A maximum of a set of expressions; nested maxima are flat."""
        operands = tuple(operands)
        if any(map(self.leaves, operands)):
            distinct = {e.id: e for e in operands}
            return self.closed("max", *(distinct[i] for i in sorted(distinct)))
        ids = {i for e in operands for i in self._maxima.get(e.id, (e.id,))}
        best: dict[int, tuple[Number, int]] = {}
        for i in sorted(ids):
            c = self.exprs[i].terms.get(self.unit, 0)
            rest = self.sub(self.exprs[i], self.const(c)).id if c else i
            if rest not in best or best[rest][0] < c:
                best[rest] = c, i
        kept = [self.exprs[i] for _, i in best.values()]
        if len(kept) > 1:
            kept = [e for e in kept if not self.is_mask(e)] or kept
        if len(kept) == 1:
            return kept[0]
        made = self._larger(*kept) if len(kept) == 2 else self._largest(kept)
        if made not in kept:
            self._maxima[made.id] = frozenset(e.id for e in kept)
        return made

    def _larger(self, a: Expr, b: Expr) -> Expr:
        """`b + (a - b) [a > b]`, with `a - b` of positive leading coefficient."""
        d = self.sub(a, b)
        if self.primitive(d)[0] < 0:
            a, b, d = b, a, self.neg(d)
        if self.nonnegative(d):
            return a
        if self.nonnegative(self.neg(d)):
            return b
        return self.add(b, self.mul(d, self.signs(d)[0]))

    def _largest(self, operands: list[Expr]) -> Expr:
        """`top + k max((a_i - top) / k)`, `top` and `k > 0` chosen alike for all shifts, scales."""
        top = operands[0]
        for e in operands[1:]:
            if self.lexsign(self.sub(e, top)) > 0:
                top = e
        gaps = [self.sub(e, top) for e in operands]
        least = gaps[0]
        for e in gaps[1:]:
            if self.lexsign(self.sub(e, least)) < 0:
                least = e
        scale = abs(least.terms[min(least.terms)])
        inner = {self.scale(e, Fraction(1) / scale).id for e in gaps}
        args = tuple(self.exprs[i] for i in sorted(inner))
        return self.add(top, self.scale(self.of_atom(self.atom("max", "", args)), scale))

    def absolute(self, e: Expr) -> Expr:
        if self.nonnegative(e):
            return e
        if self.primitive(e)[0] < 0:
            e = self.neg(e)
        above, _ = self.signs(e)
        return self.mul(e, self.sub(self.scale(above, 2), self.one))

    def sign_of(self, x: Expr) -> Expr:
        above, below = self.signs(x)
        return self.sub(above, below)

    def relu(self, x: Expr) -> Expr:
        return self.largest((x, self.zero))

    def relu_grad(self, x: Expr) -> Expr:
        return self.signs(x)[0]
