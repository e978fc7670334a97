"""What an op body may ask of the values it runs on.

Index values (ints, bools) are plain numpy arrays in every domain; only float tensors differ.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
LOGICAL: dict[str, Callable[..., Array]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
}


class UndefinedError(TypeError):
    """An operation that has no meaning on the values of a domain."""


def is_index(x: Array) -> bool:
    """Whether an array holds ints or bools rather than values of the domain."""
    return x.dtype.kind in "ib"


def objects(value: Any) -> Array:
    """Results of `frompyfunc` on 0-d arrays come back bare."""
    if isinstance(value, np.ndarray):
        return cast(Array, value)
    out = np.empty((), dtype=object)
    out[()] = value
    return out


def largest(order: Array, k: int, axis: int) -> Array:
    """Indices of the k largest entries of each line, the largest first, ties by lower index.

    Raises:
        ValueError: a line has fewer than k entries.
    """
    lines = np.moveaxis(order, axis, -1)
    if k > lines.shape[-1]:
        raise ValueError(f"the {k} largest of {lines.shape[-1]}")
    backward = np.argsort(lines[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return np.moveaxis(lines.shape[-1] - 1 - backward[..., :k], -1, axis)


def chosen(order: Array, k: int, axis: int) -> Array:
    """Whether each entry is among the k largest of its line, ties by lower index."""
    out = np.zeros(order.shape, dtype=bool)
    np.put_along_axis(out, largest(order, k, axis), values=True, axis=axis)
    return out


class Domain(ABC):
    """Scalar arithmetic on arrays. Structure (reshape, concat, ...) is numpy's own."""

    dtype: Any

    @abstractmethod
    def const(self, value: Fraction) -> Array:
        """A 0-d array holding a rational constant."""

    @abstractmethod
    def _add(self, a: Array, b: Array) -> Array: ...

    @abstractmethod
    def _mul(self, a: Array, b: Array) -> Array: ...

    @abstractmethod
    def _neg(self, a: Array) -> Array: ...

    @abstractmethod
    def reciprocal(self, a: Array) -> Array: ...

    @abstractmethod
    def _compare(self, name: str, a: Array, b: Array) -> Array: ...

    @abstractmethod
    def _maximum(self, a: Array, b: Array) -> Array: ...

    @abstractmethod
    def unary(self, name: str, a: Array) -> Array:
        """A nonlinear scalar function by name (`exp`, `rsqrt`, `gelu`, ...)."""

    @abstractmethod
    def matmul(self, a: Array, b: Array) -> Array:
        """`... m k, ... k n -> ... m n`."""

    @abstractmethod
    def sum(self, a: Array, axes: tuple[int, ...]) -> Array: ...

    @abstractmethod
    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Arbitrary float values: what a law quantifies over."""

    def random_like(self, a: Array, rng: np.random.Generator) -> Array:
        """Arbitrary values of the kind and shape of `a`."""
        if a.dtype.kind == "b":
            return rng.integers(2, size=a.shape).astype(bool)
        return rng.integers(-3, 7, size=a.shape) if is_index(a) else self.random(a.shape, rng)

    def lift(self, a: Array) -> Array:
        """Index values as values of the domain."""
        if not is_index(a):
            return a
        out = np.empty(a.shape, dtype=self.dtype)
        for value in np.unique(a):
            out[a == value] = self.const(Fraction(int(value)))
        return out

    def truncate(self, a: Array) -> Array:
        """Values of the domain as integers, toward zero. Raises TypeError where none are meant."""
        raise TypeError("a cast of a float to an integer has no meaning here")

    def byte(self, a: Array) -> Array:
        """Integers modulo 256."""
        return a % 256

    def add(self, a: Array, b: Array) -> Array:
        if is_index(a) and is_index(b):
            return np.add(a, b)
        return self._add(self.lift(a), self.lift(b))

    def neg(self, a: Array) -> Array:
        return np.negative(a) if is_index(a) else self._neg(a)

    def sub(self, a: Array, b: Array) -> Array:
        if is_index(a) and is_index(b):
            return np.subtract(a, b)
        return self.add(a, self.neg(self.lift(b)))

    def mul(self, a: Array, b: Array) -> Array:
        if is_index(a) and is_index(b):
            return np.multiply(a, b)
        return self._mul(self.lift(a), self.lift(b))

    def div(self, a: Array, b: Array) -> Array:
        return self._mul(self.lift(a), self.reciprocal(self.lift(b)))

    def compare(self, name: str, a: Array, b: Array) -> Array:
        if is_index(a) and is_index(b):
            return COMPARE[name](a, b)
        return self._compare(name, self.lift(a), self.lift(b))

    def maximum(self, a: Array, b: Array) -> Array:
        if is_index(a) and is_index(b):
            return np.maximum(a, b)
        return self._maximum(self.lift(a), self.lift(b))

    def minimum(self, a: Array, b: Array) -> Array:
        if is_index(a) and is_index(b):
            return np.minimum(a, b)
        return self.neg(self._maximum(self.neg(self.lift(a)), self.neg(self.lift(b))))

    def row(self, name: str, a: Array, axis: int) -> Array:
        """A function of each whole line along `axis`: entry i of a line is `f_i(line)`.

        Any function of n reals is some `f_i(g_1(x_1) + ... + g_n(x_n))`, so leaving the scalar
        functions open leaves the function of the line open too.
        """
        lines = np.moveaxis(self.lift(a), axis, -1)
        count = lines.shape[-1]
        key = self.full(lines.shape[:-1], Fraction(0))
        for j in range(count):
            key = self._add(key, self.unary(f"{name}[{j}/{count}]", lines[..., j]))
        out = np.empty(lines.shape, dtype=self.dtype)
        for i in range(count):
            out[..., i] = self.unary(f"{name}.{i}/{count}", key)
        return np.moveaxis(out, -1, axis)

    def topk_mask(self, a: Array, k: int, axis: int) -> Array:
        """1 at the k largest entries of each line along `axis`, ties by lower index, else 0."""
        return self.row(f"topk_mask:{k}", a, axis)

    def topk_index(self, a: Array, k: int, axis: int) -> Array:
        """Where the k largest entries of each line are, the largest first, ties by lower index."""
        return self.row(f"topk_index:{k}", a, axis).take(range(k), axis=axis)

    def dropout_mask(self, p: Fraction, stream: int, seed: Array, index: Array) -> Array:
        """`1/(1-p)` with probability `1-p`, else 0: a function of seed and element index."""
        name = f"dropout_mask:{p}:{stream}"
        start = self.unary(f"{name}.seed", self.lift(seed))
        return self.unary(name, self._add(start, self.lift(index)))

    def where(self, cond: Array, a: Array, b: Array) -> Array:
        if is_index(a) and is_index(b):
            return np.where(cond, a, b)
        return np.where(cond, self.lift(a), self.lift(b))

    def logical(self, name: str, *operands: Array) -> Array:
        """`and`, `or`, `not` of truth values."""
        return np.asarray(LOGICAL[name](*operands))

    def full(self, shape: tuple[int, ...], value: Fraction) -> Array:
        out = np.empty(shape, dtype=self.dtype)
        out[...] = self.const(value)
        return out

    def amax(self, a: Array, axes: tuple[int, ...]) -> Array:
        for axis in sorted(axes, reverse=True):
            parts = [a[(slice(None),) * axis + (i, ...)] for i in range(a.shape[axis])]
            out = parts[0]
            for part in parts[1:]:
                out = self.maximum(out, part)
            a = out
        return a


class Symbols(Domain):
    """A domain with inputs of any value."""

    @abstractmethod
    def symbols(self, name: str, shape: tuple[int, ...]) -> Array:
        """An array of distinct entries, by a name."""
