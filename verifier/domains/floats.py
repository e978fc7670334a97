"""Float64 with the real functions: what a witness is replayed on."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from verifier.domains.base import COMPARE, Array, Domain, chosen, largest
from verifier.domains.rounding import FORMATS, round_to

_ERF = np.frompyfunc(math.erf, 1, 1)
_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def _erf(x: Array) -> Array:
    return np.asarray(_ERF(x), dtype=np.float64)


def _sigmoid(x: Array) -> Array:
    return 0.5 * (1 + np.tanh(0.5 * x))


def _gelu_tanh_inner(x: Array) -> Array:
    return np.tanh(_SQRT_2_OVER_PI * (x + 0.044715 * x**3))


def _gelu_tanh_grad(x: Array) -> Array:
    t = _gelu_tanh_inner(x)
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * _SQRT_2_OVER_PI * (1 + 3 * 0.044715 * x * x)


def _gelu_grad(x: Array) -> Array:
    pdf = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return 0.5 * (1 + _erf(x / math.sqrt(2))) + x * pdf


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": _erf,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "sigmoid": _sigmoid,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "relu": lambda x: np.maximum(x, 0),
    "relu_grad": lambda x: (x > 0).astype(np.float64),
    "silu": lambda x: x * _sigmoid(x),
    "silu_grad": lambda x: _sigmoid(x) * (1 + x * (1 - _sigmoid(x))),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "gelu_grad": _gelu_grad,
    "gelu_tanh": lambda x: 0.5 * x * (1 + _gelu_tanh_inner(x)),
    "gelu_tanh_grad": _gelu_tanh_grad,
    "softplus": lambda x: np.logaddexp(0, x),
    **{f"round_to:{name}": partial(round_to, format=name) for name in FORMATS},
}


def _mixed(x: Array) -> Array:
    """splitmix64 (Steele, Lea, Flood 2014)."""
    with np.errstate(over="ignore"):
        z = x + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _bits(a: Array) -> Array:
    return a.astype(np.int64).astype(np.uint64)


class Floats(Domain):
    dtype = np.float64

    def const(self, value: Fraction) -> Array:
        try:
            return np.asarray(float(value))
        except OverflowError:
            return np.asarray(-math.inf if value < 0 else math.inf)

    def _add(self, a: Array, b: Array) -> Array:
        return a + b

    def _mul(self, a: Array, b: Array) -> Array:
        return a * b

    def _neg(self, a: Array) -> Array:
        return -a

    def reciprocal(self, a: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / a)

    def _compare(self, name: str, a: Array, b: Array) -> Array:
        return COMPARE[name](a, b)

    def _maximum(self, a: Array, b: Array) -> Array:
        return np.maximum(a, b)

    def unary(self, name: str, a: Array) -> Array:
        if name.startswith("pow:"):
            exponent = float(Fraction(name[4:]))
            with np.errstate(invalid="ignore", divide="ignore"):
                return np.power(a, exponent)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            return np.asarray(FUNCTIONS[name](self.lift(a)), dtype=np.float64)

    def truncate(self, a: Array) -> Array:
        return np.trunc(np.nan_to_num(a)).clip(-(2**53), 2**53).astype(np.int64)

    def matmul(self, a: Array, b: Array) -> Array:
        return np.matmul(a, b)

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        return np.asarray(a.sum(axis=axes))

    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return np.asarray(rng.standard_normal(shape))

    def amax(self, a: Array, axes: tuple[int, ...]) -> Array:
        return np.asarray(a.max(axis=axes))

    def topk_mask(self, a: Array, k: int, axis: int) -> Array:
        return chosen(self.lift(a), k, axis).astype(np.float64)

    def topk_index(self, a: Array, k: int, axis: int) -> Array:
        return largest(self.lift(a), k, axis)

    def dropout_mask(self, p: Fraction, stream: int, seed: Array, index: Array) -> Array:
        key = _mixed(_mixed(np.uint64(stream) + np.zeros_like(seed, np.uint64)) ^ _bits(seed))
        drawn = _mixed(_mixed(key ^ _bits(index))) >> np.uint64(11)
        return np.where(drawn.astype(np.float64) * 2.0**-53 >= float(p), float(1 / (1 - p)), 0.0)

    def lift(self, a: Array) -> Array:
        return a.astype(np.float64) if a.dtype != np.float64 else a
