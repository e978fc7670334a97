"""The domain: float tensors as numpy object arrays of expressions of one table."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, cast

import numpy as np

from shardproof.verifier.domains.algebra.equality import Equality
from shardproof.verifier.domains.algebra.expressions import Budget, Expr
from shardproof.verifier.domains.algebra.functions import selecting
from shardproof.verifier.domains.base import (
    Array,
    Domain,
    UndefinedError,
    is_index,
    objects,
)


class Algebra(Domain):
    """Entries are `Expr` of `table`. Truth values of comparisons are numpy's where they are known.

    Run what the outputs of the one-device program need inside `table.assuming()`. With `watched`,
    as another program is run, `lost` names results that have a value where their operands may have
    none: such a program need not be defined where its form is.

    Raises:
        ExceededError: from any operation, once the budget is used up.
    """

    dtype = object

    def __init__(self, budget: Budget | None = None, *, masks: bool = False) -> None:
        """`masks`: constants of -10^29 and below stand for minus infinity in exp and max."""
        self.table = Equality(budget)
        self.table.masks = masks
        self.watched = False
        self.lost = ""
        self._fresh = 0

    def symbols(self, name: str, shape: tuple[int, ...]) -> Array:
        """An array of distinct variables `name[i,j]`."""
        out = np.empty(shape, dtype=object)
        for index in np.ndindex(*shape):
            out[index] = self.variable(f"{name}[{','.join(map(str, index))}]")
        return out

    def variable(self, name: str) -> Expr:
        return self.table.of_atom(self.table.atom("var", name))

    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        self._fresh += 1
        return self.symbols(f"r{self._fresh}", shape)

    def const(self, value: Fraction) -> Array:
        return objects(self.table.const(Fraction(value)))

    def full(self, shape: tuple[int, ...], value: Fraction) -> Array:
        out = np.empty(shape, dtype=object)
        out.fill(self.table.const(Fraction(value)))
        return out

    def lift(self, a: Array) -> Array:
        if a.dtype == object:
            return a
        if not is_index(a):
            raise UndefinedError("a float array where expressions are meant")
        return super().lift(a)

    def _add(self, a: Array, b: Array) -> Array:
        return self._pairs(self.table.add, a, b)

    def _mul(self, a: Array, b: Array) -> Array:
        return self._pairs(self.table.mul, a, b)

    def _neg(self, a: Array) -> Array:
        return self._each(self.table.neg, a)

    def reciprocal(self, a: Array) -> Array:
        return self._each(self.table.reciprocal, a)

    def unary(self, name: str, a: Array) -> Array:
        with self._unwatched(selecting(name)):
            return self._each(lambda x: self.table.unary(name, x), self.lift(a))

    def _compare(self, name: str, a: Array, b: Array) -> Array:
        with self._unwatched():
            return self._plain(self._pairs(lambda x, y: self.table.compare(name, x, y), a, b))

    def _maximum(self, a: Array, b: Array) -> Array:
        with self._unwatched():
            return self._pairs(self.table.maximum, a, b)

    def logical(self, name: str, *operands: Array) -> Array:
        if all(is_index(x) for x in operands):
            return super().logical(name, *operands)
        apply: dict[str, Callable[..., Expr]] = {
            "and": self.table.both,
            "or": self.table.either,
            "not": self.table.negation,
        }
        lifted = [self.lift(x.astype(bool)) if is_index(x) else x for x in operands]
        return self._plain(objects(np.frompyfunc(apply[name], len(lifted), 1)(*lifted)))

    def where(self, cond: Array, a: Array, b: Array) -> Array:
        if is_index(cond):
            return super().where(cond, a, b)

        def choose(held: Expr, x: Expr, y: Expr) -> Expr:
            made = self.table.choose(held, x, y)
            self._watch(made, held)
            return made

        return objects(np.frompyfunc(choose, 3, 1)(cond, self.lift(a), self.lift(b)))

    def truncate(self, a: Array) -> Array:
        out = np.empty(a.shape, dtype=np.int64)
        for index in np.ndindex(*a.shape):
            value = self.table.value(cast(Any, a[index]))
            if value is None:
                raise UndefinedError("a cast of a float that is not a constant to an integer")
            out[index] = int(value)
        return out

    def topk_index(self, a: Array, k: int, axis: int) -> Array:
        raise UndefinedError("an index that depends on values")

    def matmul(self, a: Array, b: Array) -> Array:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        left = np.broadcast_to(a, (*batch, *a.shape[-2:]))
        right = np.broadcast_to(b, (*batch, *b.shape[-2:]))
        out = np.empty((*batch, a.shape[-2], b.shape[-1]), dtype=object)
        mul, total = self.table.mul, self.table.total
        for index in np.ndindex(*out.shape):
            row, column = left[index[:-1]], right[(*index[:-2], slice(None), index[-1])]
            out[index] = total((1, mul(x, y)) for x, y in zip(row, column, strict=True))
            self._watch(out[index], *row, *column)
        return out

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        return self._folded(a, axes, lambda row: self.table.total((1, x) for x in row))

    def amax(self, a: Array, axes: tuple[int, ...]) -> Array:
        if is_index(a):
            return super().amax(a, axes)
        with self._unwatched():
            return self._folded(a, axes, self.table.largest)

    def _folded(self, a: Array, axes: tuple[int, ...], fold: Callable[[Array], Expr]) -> Array:
        kept = [i for i in range(a.ndim) if i not in axes]
        shape = tuple(a.shape[i] for i in kept)
        count = int(np.prod([a.shape[i] for i in axes]))
        moved = a.transpose(*kept, *axes).reshape(*shape, count)
        out = np.empty(shape, dtype=object)
        for index in np.ndindex(*shape):
            out[index] = fold(moved[index])
            self._watch(out[index], *moved[index])
        return out

    def _each(self, apply: Callable[[Expr], Expr], a: Array) -> Array:
        return objects(np.frompyfunc(self._kept(apply), 1, 1)(a))

    def _pairs(self, apply: Callable[[Expr, Expr], Expr], a: Array, b: Array) -> Array:
        return objects(np.frompyfunc(self._kept(apply), 2, 1)(a, b))

    def _kept(self, apply: Callable[..., Expr]) -> Callable[..., Expr]:
        """The function, its results watched."""
        if not self.watched:
            return apply

        def watched(*operands: Expr) -> Expr:
            made = apply(*operands)
            self._watch(made, *operands)
            return made

        return watched

    @contextmanager
    def _unwatched(self, chooses: bool = True) -> Generator[None]:
        """For ops that choose among their operands, which need not all have a value."""
        before, self.watched = self.watched, self.watched and not chooses
        try:
            yield
        finally:
            self.watched = before

    def _watch(self, made: Any, *operands: Any) -> None:
        if not self.watched or self.lost:
            return
        leaves, table = self.table.leaves(made), self.table
        for operand in operands:
            if not table.leaves(operand) <= leaves:
                self.lost = f"{table.show(operand)} may have no value where the result has one"

    def _plain(self, a: Array) -> Array:
        """An array of truth values that are all known becomes a numpy one."""
        known = {self.table.one.id: True, self.table.zero.id: False}
        if all(v.id in known for v in a.reshape(-1)):
            out = [known[v.id] for v in a.reshape(-1)]
            return np.asarray(out, dtype=bool).reshape(a.shape)
        return a
