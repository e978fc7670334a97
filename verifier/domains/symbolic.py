"""Real numbers as Z3 terms: what is proved here holds for all values.

Nonlinear functions are uninterpreted, so an equality proved here follows from congruence and
arithmetic alone. That a function rises comes in as facts where it is asked for.
A maximum is kept as the set of its operands: it is associative, commutative and idempotent.
Entries of an array are `Fraction` where constant, Z3 terms elsewhere.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import z3 as _z3

from shardproof.verifier.domains.base import Array, Symbols, is_index, objects
from shardproof.verifier.domains.floats import FUNCTIONS

z3: Any = _z3
Entry = Any
LAWS = ("max", "rising")


def term(value: Entry) -> Any:
    """A Z3 real term of an entry."""
    if isinstance(value, Fraction):
        return z3.RealVal(f"{value.numerator}/{value.denominator}")
    return value


def is_truth(value: Entry) -> bool:
    """Whether an entry is a truth value."""
    return isinstance(value, bool | np.bool_) or z3.is_bool(value)


def _flags(a: Array) -> bool:
    return a.size > 0 and all(is_truth(v) for v in a.reshape(-1))


def _plus(a: Entry, b: Entry) -> Entry:
    if isinstance(a, Fraction) and a == 0:
        return b
    if isinstance(b, Fraction) and b == 0:
        return a
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a + b
    return term(a) + term(b)


def _times(a: Entry, b: Entry) -> Entry:
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Fraction):
            if x == 0:
                return Fraction(0)
            if x == 1:
                return y
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b
    return term(a) * term(b)


def _minus(a: Entry) -> Entry:
    return -a


def number(a: Entry) -> Entry:
    """An entry as a number: 1 where it is true, 0 where it is not."""
    if is_truth(a):
        return z3.If(a, z3.RealVal(1), z3.RealVal(0)) if z3.is_bool(a) else Fraction(int(a))
    return a if isinstance(a, Fraction) or z3.is_expr(a) else Fraction(int(a))


def _choose(cond: Entry, a: Entry, b: Entry) -> Entry:
    return z3.If(cond, term(a), term(b)) if z3.is_bool(cond) else (a if cond else b)


RELATIONS: dict[str, Callable[[Entry, Entry], Entry]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_PLUS = np.frompyfunc(_plus, 2, 1)
_TIMES = np.frompyfunc(_times, 2, 1)
_MINUS = np.frompyfunc(_minus, 1, 1)
_NUMBER = np.frompyfunc(number, 1, 1)
_CHOOSE = np.frompyfunc(_choose, 3, 1)


class Symbolic(Symbols):
    """Entries are reals. `laws` names the functions whose laws are recorded in `facts`."""

    dtype = object

    def __init__(self, laws: Iterable[str] = ()) -> None:
        self.laws = frozenset(laws)
        unknown = self.laws - set(LAWS)
        if unknown:
            raise ValueError(f"no laws of {min(unknown)!r}; there are {', '.join(LAWS)}")
        self.facts: list[Any] = []
        self._functions: dict[str, Any] = {}
        self._sets: dict[Any, frozenset[Any]] = {}
        self._maxima: dict[frozenset[Any], Any] = {}
        self._seen: set[Any] = set()
        self._applied: dict[str, list[tuple[Any, Any]]] = {}
        self._fresh = 0

    @property
    def opaque(self) -> bool:
        """Whether a maximum was taken of which no law is recorded."""
        return bool(self._maxima) and "max" not in self.laws

    def symbols(self, name: str, shape: tuple[int, ...]) -> Array:
        """An array of distinct constants `name[i,j]`."""
        out = np.empty(shape, dtype=object)
        for index in np.ndindex(*shape):
            out[index] = z3.Real(f"{name}[{','.join(map(str, index))}]")
        return out

    def truths(self, name: str, shape: tuple[int, ...]) -> Array:
        """An array of distinct truth values."""
        out = np.empty(shape, dtype=object)
        for index in np.ndindex(*shape):
            out[index] = z3.Bool(f"{name}[{','.join(map(str, index))}]")
        return out

    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        self._fresh += 1
        return self.symbols(f"r{self._fresh}", shape)

    def const(self, value: Fraction) -> Array:
        return objects(Fraction(value))

    def lift(self, a: Array) -> Array:
        return objects(_NUMBER(a.astype(object)))

    def truncate(self, a: Array) -> Array:
        """Of a truth value 1 or 0; of a number some function, the same everywhere."""

        def entry(x: Entry) -> Entry:
            return number(x) if is_truth(x) else self._apply("truncate", term(x))

        return objects(np.frompyfunc(entry, 1, 1)(a))

    def byte(self, a: Array) -> Array:
        """Of a number that is not known some function, the same everywhere."""

        def entry(x: Entry) -> Entry:
            return x % 256 if isinstance(x, Fraction) else self._apply("byte", term(x))

        return super().byte(a) if is_index(a) else objects(np.frompyfunc(entry, 1, 1)(a))

    def _add(self, a: Array, b: Array) -> Array:
        return objects(_PLUS(a, b))

    def _mul(self, a: Array, b: Array) -> Array:
        return objects(_TIMES(a, b))

    def _neg(self, a: Array) -> Array:
        return objects(_MINUS(a))

    def reciprocal(self, a: Array) -> Array:
        return objects(np.frompyfunc(self._over, 1, 1)(a))

    def _over(self, a: Entry) -> Entry:
        if isinstance(a, Fraction) and a != 0:
            return 1 / a
        return self._apply("reciprocal", term(a))

    def _compare(self, name: str, a: Array, b: Array) -> Array:
        relation = RELATIONS[name]

        def entry(x: Entry, y: Entry) -> Entry:
            if isinstance(x, Fraction) and isinstance(y, Fraction):
                return bool(relation(x, y))
            return relation(term(x), term(y))

        return _plain(objects(np.frompyfunc(entry, 2, 1)(a, b)))

    def where(self, cond: Array, a: Array, b: Array) -> Array:
        if is_index(cond) and is_index(a) and is_index(b):
            return np.where(cond, a, b)
        return objects(_CHOOSE(cond, self.lift(a), self.lift(b)))

    def logical(self, name: str, *operands: Array) -> Array:
        if all(is_index(x) for x in operands):
            return super().logical(name, *operands)
        build = {"and": z3.And, "or": z3.Or, "not": z3.Not}[name]

        def entry(*values: Entry) -> Entry:
            terms = [v if z3.is_bool(v) else z3.BoolVal(bool(v)) for v in values]
            return z3.simplify(build(*terms))

        return objects(np.frompyfunc(entry, len(operands), 1)(*operands))

    def unary(self, name: str, a: Array) -> Array:
        a = self.lift(a)
        if name.startswith("pow:") and Fraction(name[4:]).denominator == 1:
            return self._power(a, int(Fraction(name[4:])))
        return objects(np.frompyfunc(lambda x: self._apply(name, term(x)), 1, 1)(a))

    def _power(self, a: Array, exponent: int) -> Array:
        base = a if exponent >= 0 else self.reciprocal(a)
        out = self.full(a.shape, Fraction(1))
        for _ in range(abs(exponent)):
            out = self._mul(out, base)
        return out

    def matmul(self, a: Array, b: Array) -> Array:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        left = np.broadcast_to(a, (*batch, *a.shape[-2:]))[..., :, :, None]
        right = np.broadcast_to(b, (*batch, *b.shape[-2:]))[..., None, :, :]
        return self.sum(objects(_TIMES(left, right)), (len(batch) + 1,))

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        kept = [i for i in range(a.ndim) if i not in axes]
        moved = a.transpose(*kept, *axes).reshape(*(a.shape[i] for i in kept), -1)
        out = np.empty(moved.shape[:-1], dtype=object)
        for index in np.ndindex(*out.shape):
            total: Entry = Fraction(0)
            for value in moved[index]:
                total = _plus(total, value)
            out[index] = total
        return out

    def _maximum(self, a: Array, b: Array) -> Array:
        return objects(np.frompyfunc(self._larger, 2, 1)(a, b))

    def _larger(self, a: Entry, b: Entry) -> Entry:
        operands = self._operands(a) | self._operands(b)
        numbers = [x for x in operands if isinstance(x, Fraction)]
        if len(numbers) > 1:
            operands = (operands - set(numbers)) | {max(numbers)}
        if len(operands) == 1:
            return _unkey(next(iter(operands)))
        if operands not in self._maxima:
            top = z3.Real(f"max{len(self._maxima)}")
            self._maxima[operands] = top
            self._sets[_key(top)] = operands
            values = [term(_unkey(x)) for x in operands]
            bound = z3.And(*(top >= v for v in values), z3.Or(*(top == v for v in values)))
            self._fact("max", top, bound)
        return self._maxima[operands]

    def _operands(self, a: Entry) -> frozenset[Any]:
        return self._sets.get(_key(a), frozenset({_key(a)}))

    def maximum(self, a: Array, b: Array) -> Array:
        return self.logical("or", a, b) if _flags(a) and _flags(b) else super().maximum(a, b)

    def minimum(self, a: Array, b: Array) -> Array:
        return self.logical("and", a, b) if _flags(a) and _flags(b) else super().minimum(a, b)

    def _apply(self, name: str, x: Any) -> Any:
        out = self._function(name)(x)
        if "rising" in self.laws and name in FUNCTIONS and FUNCTIONS[name].rising:
            for other, value in self._applied.setdefault(name, []):
                self._fact("rising", out, z3.Implies(x <= other, out <= value))
                self._fact("rising", out, z3.Implies(other <= x, value <= out))
            self._applied[name].append((x, out))
        return out

    def _function(self, name: str) -> Any:
        if name not in self._functions:
            self._functions[name] = z3.Function(name, z3.RealSort(), z3.RealSort())
        return self._functions[name]

    def _fact(self, law: str, about: Any, fact: Any) -> None:
        if law in self.laws and fact.get_id() not in self._seen:
            self._seen.add(fact.get_id())
            self.facts.append(fact)


class _Hashed:
    """A term that is equal to the same term only (Z3's own `==` builds an equation)."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return int(self.value.hash())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashed) and bool(self.value.eq(other.value))


def _key(value: Entry) -> Any:
    return value if isinstance(value, Fraction) else _Hashed(value)


def _unkey(value: Any) -> Entry:
    return value.value if isinstance(value, _Hashed) else value


def _plain(a: Array) -> Array:
    """An array of truth values without terms becomes a numpy one."""
    if all(isinstance(v, bool) for v in a.reshape(-1)):
        return a.astype(bool)
    return a
