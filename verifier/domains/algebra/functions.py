"""Functions of expressions: reciprocals, roots, exp and its kin, logarithms.

Where a law has a side condition, the condition is asked for with `need_*`, or the law is applied
only where `sign` knows it. A function that may have no value is an atom of which nothing is known;
below a choice it is chosen together with its condition, so that it is asked for where it is needed.
"""

from fractions import Fraction

from shardproof.verifier.domains.algebra.expressions import Budget, Expr, Number, number
from shardproof.verifier.domains.algebra.signs import Signs
from shardproof.verifier.domains.floats import FUNCTIONS

PRIMES = [p for p in range(2, 2000) if all(p % d for d in range(2, int(p**0.5) + 1))]


MASK = -(10**29)
"""A constant summand at or below this is a mask, where masks are minus infinity."""
PLAIN = 10**9
"""A weight up to this is small beside a mask: `-10^30 + 10^30 [p > 0]` is none."""


CHOSEN = "chosen"
NOTHING: frozenset[int] = frozenset()


def selecting(name: str) -> bool:
    """Whether floats may have a value of a function where an operand is infinite, or none."""
    return name in FUNCTIONS and not FUNCTIONS[name].strict


class Functions(Signs):
    """Expressions with functions."""

    masks = False
    """Whether a masked entry has weight 0: `exp(h + c) = 0` and `max(a, h + c) = a` for a mask
    `c`. This is an assumption, that everything else is small beside a mask; `masked` says whether
    it was used."""
    masked = False

    def is_mask(self, e: Expr) -> bool:
        """Whether `e` is `h + c`, `c` a mask and nothing in `h` weighted like one."""
        found = self.masks and e.terms.get(self.unit, 0) <= MASK
        found = found and all(abs(c) <= PLAIN for m, c in e.terms.items() if m != self.unit)
        self.masked = self.masked or found
        return found

    def __init__(self, budget: Budget | None = None) -> None:
        super().__init__(budget)
        self._made: dict[tuple[str, int], Expr] = {}
        self.opened = 0
        """How often a function was taken of what may be outside of where it has values."""
        self._loose: set[int] = set()
        self._closed: set[int] = set()
        self._leaves: dict[int, frozenset[int]] = {}

    def function(self, name: str, *args: Expr) -> Expr:
        """A function that nothing is known of, but that equal operands give equal values."""
        return self.of_atom(self.atom("fn", name, args))

    # what may have no value

    def loose(self, name: str, e: Expr) -> Expr:
        """A function of what may be outside of where it has values."""
        self.opened += 1
        atom = self.atom("fn", f"{name}?", (e,))
        self._loose.add(atom)
        return self.of_atom(atom)

    def leaves(self, e: Expr) -> frozenset[int]:
        """Atoms in an expression that may have no value: it has one where all of them do."""
        if not self._loose:
            return NOTHING
        found = self._leaves.get(e.id)
        if found is None:
            ids: set[int] = set()
            for m in e.terms:
                factors, h = self.monomials[m]
                ids |= self.leaves(self.exprs[h])
                for atom, _ in factors:
                    ids |= self._leaves_of(atom)
            found = self._leaves[e.id] = frozenset(ids)
        return found

    def _leaves_of(self, atom: int) -> frozenset[int]:
        kind = self.atoms[atom]
        if kind.name == CHOSEN:
            return frozenset({atom}) | self.leaves(self.base(atom))
        if atom in self._closed:
            return frozenset({atom})
        inner = [self.leaves(self.exprs[i]) for i in kind.args]
        return frozenset({atom} & self._loose).union(*inner)

    def closed(self, name: str, *args: Expr) -> Expr:
        """A function that may have a value where an operand has none: nothing else is known."""
        atom = self.atom("fn", f"{name}?", args)
        self._closed.add(atom)
        return self.of_atom(atom)

    def chosen(self, cond: Expr, e: Expr) -> Expr:
        """`e` where a condition holds, else 0, whether `e` has a value there or not."""
        if not self.leaves(e):
            return self.mul(cond, e)
        out: list[tuple[Number, Expr]] = []
        for m, c in e.terms.items():
            factors, h = self.monomials[m]
            held = tuple(f for f in factors if self._leaves_of(f[0]))
            under = h if self.leaves(self.exprs[h]) else 0
            rest = tuple(f for f in factors if f not in held)
            plain = self.single(self.monomial(rest, 0 if under else h))
            if not held and not under:
                out.append((c, self.mul(plain, cond)))
                continue
            kept = self._chosen(cond, self.single(self.monomial(held, under)))
            out.append((c, self.mul(plain, kept)))
        return self.total(out)

    def _chosen(self, cond: Expr, e: Expr) -> Expr:
        ((m, _),) = e.terms.items()
        factors, h = self.monomials[m]
        alone = len(factors) == 1 and factors[0][1] == 1 and not h
        if alone and self.atoms[factors[0][0]].name == CHOSEN:
            first, inner = (self.exprs[i] for i in self.atoms[factors[0][0]].args)
            cond, e = self.both(cond, first), inner
        if not cond.terms:
            return self.zero
        if cond is self.one:
            return e
        atom = self.atom("fn", CHOSEN, (cond, e))
        self._loose.add(atom)
        return self.of_atom(atom)

    def both(self, a: Expr, b: Expr) -> Expr:
        raise NotImplementedError

    def reciprocal(self, e: Expr) -> Expr:
        return self.inverted(e) if self.need_nonzero(e) else self.loose("pow:-1", e)

    def inverted(self, e: Expr) -> Expr:
        c, m, p = self.primitive(e)
        factors, h = self.monomials[m]
        kept = [(a, -n) for a, n in factors if self.atoms[a].kind not in ("pos", "neg")]
        if p is not self.one:
            kept.append((self.atom("sum", "", (p,)), -1))
        inverse = self.monomial(tuple(sorted(kept)), self.neg(self.exprs[h]).id)
        return self.scale(self.expand(self.one, self.single(inverse)), number(Fraction(1) / c))

    def raised(self, e: Expr, exponent: Fraction) -> Expr:
        """`e ** exponent`."""
        whole, part = divmod(exponent.numerator, exponent.denominator)
        if not part:
            return self.power(e if whole >= 0 else self.reciprocal(e), abs(whole))
        if not self.need_positive(e, strict=exponent < 0):
            return self.loose(f"pow:{exponent}", e)
        out = self.power(self.root(e, exponent.denominator), part)
        base = e if whole >= 0 else self.inverted(e)
        return self.mul(out, self.power(base, abs(whole)))

    # roots

    def root(self, e: Expr, n: int) -> Expr:
        """The n-th root of an expression that is 0 or more."""
        c, m, p = self.primitive(e)
        if not c:
            return self.zero
        factors, h = self.monomials[m]
        out = self._root_of_number(Fraction(abs(c)), n)
        if h:
            out = self.mul(out, self.exp(self.scale(self.exprs[h], Fraction(1, n))))
        rest = p if c > 0 else self.neg(p)
        plain = self.nonnegative(rest) and all(
            k % 2 == 0 or (k > 0 and self.nonnegative_atom(a)) or self.positive_atom(a)
            for a, k in factors
        )
        for atom, power in factors:
            if self.positive_atom(atom) or (plain and self.nonnegative_atom(atom)):
                out = self.mul(out, self._power_of_root(atom, n, power))
            elif plain and n == 2:
                half = self._integer_power(self.of_atom(atom), power // 2)
                out = self.mul(out, half if power % 4 == 0 else self.absolute(half))
            else:
                rest = self.mul(rest, self._integer_power(self.of_atom(atom), power))
        if rest is not self.one:
            out = self.mul(out, self.of_atom(self.atom("root", "", (rest,), n)))
        return out

    def _integer_power(self, base: Expr, power: int) -> Expr:
        return self.power(base if power >= 0 else self.inverted(base), abs(power))

    def _power_of_root(self, atom: int, n: int, power: int) -> Expr:
        kind, base = self.atoms[atom], self.of_atom(atom)
        if kind.kind in ("pos", "neg"):
            return base
        if kind.kind == "root":
            base, n = self.base(atom), n * kind.degree
        elif kind.kind == "sum":
            base = self.base(atom)
        made = self.of_atom(self.atom("root", "", (base,), n))
        return self._integer_power(made, power)

    def _root_of_number(self, value: Fraction, n: int) -> Expr:
        out = self.one
        for whole, side in ((value.numerator, 1), (value.denominator, -1)):
            for prime, count in _factors(whole):
                outside, inside = divmod(side * count, n)
                out = self.scale(out, number(Fraction(prime) ** outside))
                if inside:
                    atom = self.atom("root", "", (self.const(prime),), n)
                    out = self.mul(out, self.power(self.of_atom(atom), inside))
        return out

    def absolute(self, e: Expr) -> Expr:
        raise NotImplementedError

    # exp and log

    def exp(self, e: Expr) -> Expr:
        """`exp(sum c_i log a_i + h) = prod a_i^c_i exp(h)`, `c_i` of small denominator."""
        found = self._made.get(("exp", e.id))
        if found is None:
            out, rest = self.one, dict(e.terms)
            for m, c in e.terms.items():
                operand = self._log_operand(m)
                if operand is not None and Fraction(c).denominator <= 4:
                    del rest[m]
                    part = Fraction(c)
                    base = self.root(operand, part.denominator) if part.denominator > 1 else operand
                    out = self.mul(out, self._integer_power(base, part.numerator))
            h = self.make(rest)
            if self.is_mask(h):
                return self.zero
            found = self.mul(out, self.single(self.monomial((), h.id)))
            self._made["exp", e.id] = found
        return found

    def _log_operand(self, m: int) -> Expr | None:
        factors, h = self.monomials[m]
        if h or len(factors) != 1 or factors[0][1] != 1:
            return None
        atom = self.atoms[factors[0][0]]
        return self.exprs[atom.args[0]] if (atom.kind, atom.name) == ("fn", "log") else None

    def log(self, e: Expr) -> Expr:
        """`log(c exp(h) prod a_i^k_i p)`, the factors that are known to be positive apart."""
        if not self.need_positive(e):
            return self.loose("log", e)
        c, m, p = self.primitive(e)
        factors, h = self.monomials[m]
        out = self.add(self.exprs[h], self._log_of_number(Fraction(abs(c))))
        rest = p if c > 0 else self.neg(p)
        for atom, power in factors:
            if self.positive_atom(atom):
                out = self.add(out, self.scale(self._log_of_atom(atom), power))
            else:
                rest = self.mul(rest, self._integer_power(self.of_atom(atom), power))
        return out if rest is self.one else self.add(out, self.function("log", rest))

    def _log_of_atom(self, atom: int) -> Expr:
        kind = self.atoms[atom]
        if kind.kind == "sum":
            return self.function("log", self.base(atom))
        if kind.kind == "root":
            return self.scale(self.log(self.base(atom)), Fraction(1, kind.degree))
        return self.function("log", self.of_atom(atom))

    def _log_of_number(self, value: Fraction) -> Expr:
        parts: list[tuple[Number, Expr]] = []
        for whole, side in ((value.numerator, 1), (value.denominator, -1)):
            for prime, count in _factors(whole):
                parts.append((side * count, self.function("log", self.const(prime))))
        return self.total(parts)

    # the named functions of programs

    def sigmoid(self, x: Expr) -> Expr:
        e = self.exp(x)
        return self.mul(e, self.inverted(self.add(self.one, e)))

    def tanh(self, x: Expr) -> Expr:
        return self.sub(self.scale(self.sigmoid(self.scale(x, 2)), 2), self.one)

    def odd(self, name: str, x: Expr) -> Expr:
        if not x.terms:
            return self.zero
        if self.lexsign(x) < 0:
            return self.neg(self.function(name, self.neg(x)))
        return self.function(name, x)

    def even(self, name: str, x: Expr) -> Expr:
        if not x.terms:
            return self.one
        return self.function(name, self.neg(x) if self.lexsign(x) < 0 else x)

    def root_of(self, value: Fraction) -> Expr:
        return self._root_of_number(value, 2)

    def half_erf(self, x: Expr) -> Expr:
        """`(1 + erf(x / sqrt 2)) / 2`: the normal distribution function."""
        inner = self.mul(x, self.root_of(Fraction(1, 2)))
        return self.scale(self.add(self.one, self.odd("erf", inner)), Fraction(1, 2))

    def root_of_pi(self) -> Expr:
        return self.of_atom(self.atom("root", "", (self.of_atom(self.atom("const", "pi")),), 2))

    def gelu_grad(self, x: Expr) -> Expr:
        bell = self.exp(self.scale(self.mul(x, x), Fraction(-1, 2)))
        scale = self.mul(self.root_of(Fraction(1, 2)), self.inverted(self.root_of_pi()))
        return self.add(self.half_erf(x), self.mul(x, self.mul(bell, scale)))

    def _inner_tanh(self, x: Expr) -> tuple[Expr, Expr]:
        """tanh of the cubic in `gelu_tanh`, and the derivative of the cubic."""
        root = self.mul(self.root_of(Fraction(2)), self.inverted(self.root_of_pi()))
        square, k = self.mul(x, x), Fraction(44715, 10**6)
        cubic = self.add(x, self.scale(self.mul(square, x), k))
        slope = self.add(self.one, self.scale(square, 3 * k))
        return self.tanh(self.mul(root, cubic)), self.mul(root, slope)

    def gelu_tanh(self, x: Expr) -> Expr:
        t, _ = self._inner_tanh(x)
        return self.scale(self.mul(x, self.add(self.one, t)), Fraction(1, 2))

    def gelu_tanh_grad(self, x: Expr) -> Expr:
        t, slope = self._inner_tanh(x)
        bend = self.mul(self.mul(x, self.sub(self.one, self.mul(t, t))), slope)
        return self.scale(self.add(self.add(self.one, t), bend), Fraction(1, 2))

    def silu_grad(self, x: Expr) -> Expr:
        s = self.sigmoid(x)
        return self.mul(s, self.add(self.one, self.mul(x, self.sub(self.one, s))))

    def unary(self, name: str, x: Expr) -> Expr:
        """A function by the name programs use; of one that is not known here, nothing is known."""
        if name.startswith("pow:"):
            return self.raised(x, Fraction(name[4:]))
        if ":" in name:  # rounding, and functions of whole rows and of indices: nothing is known
            return self.function(name, x)
        if selecting(name) and self.leaves(x):
            return self.closed(name, x)
        known = FUNCTIONS.get(name)
        how = None if known is None else known.algebra or known.by
        return self.function(name, x) if how is None else how(self, x)

    def sign_of(self, x: Expr) -> Expr:
        raise NotImplementedError

    def relu(self, x: Expr) -> Expr:
        raise NotImplementedError

    def relu_grad(self, x: Expr) -> Expr:
        raise NotImplementedError


def _factors(value: int) -> list[tuple[int, int]]:
    """Small primes of a positive integer with their powers; what is left over counts as one."""
    out: list[tuple[int, int]] = []
    for prime in PRIMES:
        if value == 1:
            break
        count = 0
        while value % prime == 0:
            value, count = value // prime, count + 1
        if count:
            out.append((prime, count))
    return [*out, (value, 1)] if value > 1 else out
