"""Scalar functions of one operand, element by element: each on floats, by its definition or as
expressions, with what is known of it and its slope."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from verifier.domains.base import Array, Domain, is_index
from verifier.domains.functions import Calculus, Function, declared
from verifier.kernel.ops.map import declare, is_natural, one
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.registry import REQUIRED, AttrMap, Op
from verifier.kernel.program.traits import (
    Bounded,
    Bounds,
    Traits,
    always,
    applied,
    grows,
    inverse,
    magnitude,
)

Slope = Callable[[Builder, str, str], str]
"""(builder, operand, result) -> the derivative."""


def function(
    name: str,
    floats: Callable[[Any], Any],
    traits: Traits,
    slope: Slope | None = None,
    *,
    by: Callable[[Calculus[Any], Any], Any] | None = None,
    algebra: Callable[[Any, Any], Any] | None = None,
    integers: Callable[[Array], Array] | None = None,
    aten: tuple[str, ...] | None = None,
) -> Op:
    """Declare a function of one real number. `integers` is what it makes of these as integers;
    PyTorch has it by the same name where `aten` does not say."""
    declared(Function(name, floats, by, algebra, traits.strict, 0 in traits.rises))

    def meaning(d: Domain, x: Array) -> Array:
        return integers(x) if integers is not None and is_index(x) else d.unary(name, x)

    aten = (f"{name}.default",) if aten is None else aten
    doc = f"`{name}(x)`, element by element."
    op = declare(name, 1, meaning, traits, doc=doc, flops=8, aten=aten)

    def vjp(
        b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
    ) -> list[str | None]:
        assert slope is not None
        return [b.add("mul", cts[0], slope(b, ins[0], outs[0]))]

    if slope is not None:
        op.vjp(vjp)
    return op


def smooth(**more: Any) -> Traits:
    """Of a function that is analytic wherever it has a value."""
    return Traits(strict=True, analytic=True, **more)


HALF = Fraction(1, 2)
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


def _logistic(c: Calculus[Any], x: Any) -> Any:
    return c.reciprocal(c.add(c.one, c.exp(c.neg(x))))


def _relu_bounds(a: Bounded) -> Bounds:
    return max(a.args[0][0], 0), max(a.args[0][1], 0)


exp = function(
    "exp",
    np.exp,
    smooth(sign=1, rises=(0,), bounds=grows(math.exp, least=0)),
    lambda b, x, y: y,
    by=lambda c, x: c.exp(x),
)
log = function(
    "log",
    np.log,
    smooth(needs="positive", bounds=grows(math.log, start=0)),
    lambda b, x, y: b.add("reciprocal", x),
    by=lambda c, x: c.log(x),
)
log1p = function(
    "log1p",
    np.log1p,
    smooth(needs="above -1", bounds=grows(math.log1p, start=-1)),
    lambda b, x, y: b.add("reciprocal", b.add("add_scalar", x, value=Fraction(1))),
    by=lambda c, x: c.log(c.add(c.one, x)),
)
expm1 = function(
    "expm1",
    np.expm1,
    smooth(bounds=grows(math.expm1, least=-1)),
    lambda b, x, y: b.add("add_scalar", y, value=Fraction(1)),
    by=lambda c, x: c.sub(c.exp(x), c.one),
)
sqrt = function(
    "sqrt",
    np.sqrt,
    smooth(needs="not negative", sign=0, bounds=grows(math.sqrt, start=0, least=0)),
    lambda b, x, y: b.add("mul_scalar", b.add("reciprocal", y), value=HALF),
    algebra=lambda t, x: t.raised(x, HALF),
)
rsqrt = function(
    "rsqrt",
    lambda x: 1 / np.sqrt(x),
    smooth(needs="positive", sign=1, bounds=always(0, math.inf)),
    lambda b, x, y: b.add("mul_scalar", b.add("pow", y, exponent=Fraction(3)), value=-HALF),
    algebra=lambda t, x: t.raised(x, -HALF),
)
sin = function(
    "sin",
    np.sin,
    smooth(bounds=always(-1, 1)),
    lambda b, x, y: b.add("cos", x),
    algebra=lambda t, x: t.odd("sin", x),
)
cos = function(
    "cos",
    np.cos,
    smooth(bounds=always(-1, 1)),
    lambda b, x, y: b.add("neg", b.add("sin", x)),
    algebra=lambda t, x: t.even("cos", x),
)
tanh = function(
    "tanh",
    np.tanh,
    smooth(bounds=grows(math.tanh, least=-1)),
    lambda b, x, y: b.add("add_scalar", b.add("neg", b.add("mul", y, y)), value=Fraction(1)),
    algebra=lambda t, x: t.tanh(x),
)
sigmoid = function(
    "sigmoid",
    _sigmoid,
    smooth(sign=1, bounds=always(0, 1)),
    lambda b, x, y: b.add("sub", y, b.add("mul", y, y)),
    by=_logistic,
    algebra=lambda t, x: t.sigmoid(x),
)
erf = function("erf", _erf, smooth(bounds=always(-1, 1)), algebra=lambda t, x: t.odd("erf", x))
abs_ = function(
    "abs",
    np.abs,
    Traits(strict=True, sign=0, closed="integers", bounds=applied(magnitude)),
    lambda b, x, y: b.add("sign", x),
    algebra=lambda t, x: t.absolute(x),
    integers=np.abs,
)
sign = function(
    "sign",
    np.sign,
    Traits(closed="integers", bounds=always(-1, 1)),
    algebra=lambda t, x: t.sign_of(x),
    aten=("sign.default", "sgn.default"),
    integers=np.sign,
)
floor = function(
    "floor",
    np.floor,
    Traits(strict=True, steps=True, closed="integers", bounds=grows(math.floor)),
    integers=np.copy,
)
relu = function(
    "relu",
    lambda x: np.maximum(x, 0),
    Traits(sign=0, rises=(0,), picks="zero", closed="integers", bounds=_relu_bounds),
    lambda b, x, y: b.add("relu_grad", x),
    algebra=lambda t, x: t.relu(x),
    integers=lambda x: np.maximum(x, 0),
)
relu_grad = function(
    "relu_grad",
    lambda x: (x > 0).astype(np.float64),
    Traits(),
    algebra=lambda t, x: t.relu_grad(x),
    aten=(),
)
silu = function(
    "silu",
    lambda x: x * _sigmoid(x),
    smooth(),
    lambda b, x, y: b.add("silu_grad", x),
    by=lambda c, x: c.mul(x, _logistic(c, x)),
    algebra=lambda t, x: t.mul(x, t.sigmoid(x)),
)
silu_grad = function(
    "silu_grad",
    lambda x: _sigmoid(x) * (1 + x * (1 - _sigmoid(x))),
    smooth(),
    algebra=lambda t, x: t.silu_grad(x),
    aten=(),
)
gelu = function(
    "gelu",
    lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    smooth(),
    lambda b, x, y: b.add("gelu_grad", x),
    algebra=lambda t, x: t.mul(x, t.half_erf(x)),
    aten=(),
)
gelu_grad = function(
    "gelu_grad", _gelu_grad, smooth(), algebra=lambda t, x: t.gelu_grad(x), aten=()
)
gelu_tanh = function(
    "gelu_tanh",
    lambda x: 0.5 * x * (1 + _gelu_tanh_inner(x)),
    smooth(),
    lambda b, x, y: b.add("gelu_tanh_grad", x),
    algebra=lambda t, x: t.gelu_tanh(x),
    aten=(),
)
gelu_tanh_grad = function(
    "gelu_tanh_grad", _gelu_tanh_grad, smooth(), algebra=lambda t, x: t.gelu_tanh_grad(x), aten=()
)
softplus = function(
    "softplus",
    lambda x: np.logaddexp(0, x),
    smooth(sign=1, bounds=always(0, math.inf)),
    lambda b, x, y: b.add("sigmoid", x),
    by=lambda c, x: c.log(c.add(c.one, c.exp(x))),
    aten=(),
)

reciprocal = declare(
    "reciprocal",
    1,
    one(lambda d, x: d.reciprocal(d.lift(x))),
    smooth(needs="not zero", keeps=1, bounds=applied(inverse)),
    doc="`1/x`.",
    flops=4,
    aten=("reciprocal.default",),
)


def _pow(d: Domain, x: Array, exponent: Fraction) -> Array:
    if is_index(x) and is_natural(Fraction(exponent)):
        return np.power(x, int(exponent))
    return d.unary(f"pow:{exponent}", x)


pow_ = declare(
    "pow",
    1,
    _pow,
    smooth(needs="positive", literal="exponent", nothing=Fraction(1), wraps=True),
    attrs={"exponent": REQUIRED},
    doc="`x ** exponent`, a rational exponent.",
    flops=8,
)


@pow_.vjp
def _pow_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    e = Fraction(attrs["exponent"])
    slope = b.add("mul_scalar", b.add("pow", ins[0], exponent=e - 1), value=e)
    return [b.add("mul", cts[0], slope)]


@reciprocal.vjp
def _reciprocal_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    return [b.add("neg", b.add("mul", cts[0], b.add("mul", outs[0], outs[0])))]
