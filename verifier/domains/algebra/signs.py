"""What is known of the signs of expressions, and what must be known for a program to be defined.

A denominator must not be 0, the operand of `log` and `rsqrt` must be positive, that of `sqrt` not
negative. Where the outputs of one device need a value, as `verifier/analysis/definedness.py` finds,
it is assumed to be defined: a proof covers the inputs on which they are. Elsewhere it must follow
from signs.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from fractions import Fraction

from shardproof.verifier.domains.algebra.expressions import SHORT, Budget, Expr, Expressions


class Signs(Expressions):
    """Expressions with signs."""

    def __init__(self, budget: Budget | None = None) -> None:
        super().__init__(budget)
        self.assume = False
        """Whether undefined values are excluded by assumption at present."""
        self.unmet: list[str] = []
        """Assumptions that hold for no value."""
        self._nonzero: set[int] = set()
        self._positive: set[int] = set()
        self._nonnegative: set[int] = set()
        self._known: dict[tuple[str, int], tuple[int, int]] = {}

    @contextmanager
    def assuming(self) -> Generator[None]:
        """Values computed inside are defined, by assumption."""
        before, self.assume = self.assume, True
        try:
            yield
        finally:
            self.assume = before

    # what must hold

    def need_nonzero(self, e: Expr) -> bool:
        """Whether `e`, which is divided by, differs from 0: by assumption, or because it must."""
        c, m, p = self.primitive(e)
        if not c:
            if self.assume:
                self.unmet.append("a division by 0")
            return False
        atoms = [a for a, _ in self.monomials[m][0]]
        if p is not self.one:
            atoms.append(self.atom("sum", "", (p,)))
        if self.assume:
            self._nonzero.update(atoms)
            if self.nonnegative(e):
                self._positive.add(self._scaled(e).id)
        return self.assume or self.sign(e) != 0 or all(self.nonzero(a) for a in atoms)

    def need_positive(self, e: Expr, strict: bool = True) -> bool:
        """Whether `e`, of which a logarithm or a root is taken, is as it must be."""
        value = self.value(e)
        if value is not None:
            fits = value > 0 or (not strict and value == 0)
            if self.assume and not fits:
                self.unmet.append(f"a root or logarithm of {value}")
            return fits
        if self.assume:
            (self._positive if strict else self._nonnegative).add(self._scaled(e).id)
            if strict:
                self.need_nonzero(e)
            return True
        return self.sign(e) > 0 if strict else self.nonnegative(e)

    def _scaled(self, e: Expr) -> Expr:
        """A positive multiple, the same for all positive multiples."""
        c, _, _ = self.primitive(e)
        if not c:
            return e
        return self.scale(e, Fraction(1) / abs(c))

    # what is known

    def _once(self, key: tuple[str, int], find: Callable[[], int]) -> int:
        """What is found, remembered: a sign that is known stays so, another until more is known."""
        version = len(self._nonzero) + len(self._positive) + len(self._nonnegative)
        seen = self._known.get(key)
        if seen is not None and (seen[1] or seen[0] == version):
            return seen[1]
        found = find()
        self._known[key] = version, found
        return found

    def nonzero(self, atom: int) -> bool:
        return bool(self._once(("nonzero", atom), lambda: self._atom_nonzero(atom)))

    def _atom_nonzero(self, atom: int) -> bool:
        kind = self.atoms[atom]
        if atom in self._nonzero or self.positive_atom(atom):
            return True
        if kind.kind == "sum":
            base = self.base(atom)
            return self.sign(base) != 0 or self._square_nonzero(base)
        if kind.kind == "root":
            _, m, p = self.primitive(self.base(atom))
            inner = [a for a, _ in self.monomials[m][0]]
            if p is not self.one:
                inner.append(self.atom("sum", "", (p,)))
            return all(self.nonzero(a) for a in inner)
        return False

    def _square_nonzero(self, e: Expr) -> bool:
        """Whether the square of a short sum is among what differs from 0."""
        if not self._nonzero or len(e.terms) > SHORT:
            return False
        _, m, p = self.primitive(self.mul(e, e))
        atoms = [a for a, _ in self.monomials[m][0]]
        if p is not self.one:
            atoms.append(self.atom("sum", "", (p,)))
        return all(a in self._nonzero for a in atoms)

    def positive_atom(self, atom: int) -> bool:
        kind = self.atoms[atom]
        if kind.kind in ("sum", "root"):
            return self.sign(self.base(atom)) > 0
        return kind.kind == "const" or (kind.kind == "var" and self._alone(atom, self._positive))

    def nonnegative_atom(self, atom: int) -> bool:
        kind = self.atoms[atom]
        if kind.kind in ("root", "pos", "neg") or self.positive_atom(atom):
            return True
        if kind.kind == "sum":
            return self.nonnegative(self.base(atom))
        return self._alone(atom, self._nonnegative)

    def _alone(self, atom: int, known: set[int]) -> bool:
        return bool(known) and self.of_atom(atom).id in known

    def _monomial_sign(self, m: int) -> tuple[bool, bool]:
        """Whether a monomial is 0 or more, and whether it is positive, for all values."""
        found = self._once(("monomial", m), lambda: self._find_monomial_sign(m))
        return found > 0, found > 1

    def _find_monomial_sign(self, m: int) -> int:
        strict = True
        for atom, e in self.monomials[m][0]:
            if self.positive_atom(atom):
                continue
            if e % 2 and not self.nonnegative_atom(atom):
                return 0
            strict = strict and self.nonzero(atom)
        return 2 if strict else 1

    def sign(self, e: Expr) -> int:
        """1 where positive for all values in scope, -1 where negative, 0 where neither is known."""
        return self._once(("sign", e.id), lambda: self._find_sign(e))

    def _find_sign(self, e: Expr) -> int:
        if not e.terms:
            return 0
        if self._positive:
            if self._scaled(e).id in self._positive:
                return 1
            if self._scaled(self.neg(e)).id in self._positive:
                return -1
        signs = {1 if c > 0 else -1 for c in e.terms.values()}
        if len(signs) > 1:
            return 0
        strict = False
        for m in e.terms:
            weak, positive = self._monomial_sign(m)
            if not weak:
                return 0
            strict = strict or positive
        return signs.pop() if strict else 0

    def nonnegative(self, e: Expr) -> bool:
        return bool(self._once(("nonnegative", e.id), lambda: self._find_nonnegative(e)))

    def _find_nonnegative(self, e: Expr) -> bool:
        if self.sign(e) > 0 or (self._nonnegative and self._scaled(e).id in self._nonnegative):
            return True
        return all(c > 0 and self._monomial_sign(m)[0] for m, c in e.terms.items())
