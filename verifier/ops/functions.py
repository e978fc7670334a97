"""Functions of one real number: each on floats, by its definition or as expressions, with its slope
and what is known of it."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from shardproof.verifier.domains.base import Array, Domain, is_index
from shardproof.verifier.domains.floats import Calculus, Function, declared
from shardproof.verifier.kernel.ops import functions
from shardproof.verifier.kernel.ops.map import is_natural
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.registry import AttrMap, Op
from shardproof.verifier.ops.bounds import (
    Bounded,
    Bounds,
    always,
    applied,
    grows,
    inverse,
    magnitude,
)
from shardproof.verifier.ops.facets import Facets, Names, Pulled, describe

Slope = Callable[[Builder, str, str], str]
"""(builder, operand, result) -> the derivative."""


def function(
    op: Op,
    floats: Callable[[Any], Any],
    slope: Slope | None = None,
    *,
    by: Callable[[Calculus[Any], Any], Any] | None = None,
    parity: Literal[-1, 0, 1] = 0,
    integers: Callable[[Array], Array] | None = None,
    aten: tuple[str, ...] | None = None,
    **known: Any,
) -> Facets:
    """Describe a function of one real number. `integers` is what it makes of these as integers;
    PyTorch has it by the same name where `aten` does not say. `known` are fields of `Facets`."""
    name = op.name
    rising = 0 in known.get("rises", ())
    declared(Function(name, floats, by, parity, op.traits.strict, rising))

    def meaning(d: Domain, x: Array) -> Array:
        return integers(x) if integers is not None and is_index(x) else d.unary(name, x)

    def vjp(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
        assert slope is not None
        return [b.add("mul", cts[0], slope(b, ins[0], outs[0]))]

    aten = (f"{name}.default",) if aten is None else aten
    doc = f"`{name}(x)`, element by element."
    rule = None if slope is None else vjp
    return describe(op, meaning, doc, vjp_rule=rule, aten=aten, **known)


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
    functions.exp,
    np.exp,
    lambda b, x, y: y,
    by=lambda c, x: c.exp(x),
    analytic=True,
    rises=(0,),
    bounds=grows(math.exp, least=0),
)
log = function(
    functions.log,
    np.log,
    lambda b, x, y: b.add("reciprocal", x),
    by=lambda c, x: c.log(x),
    analytic=True,
    bounds=grows(math.log, start=0),
)
log1p = function(
    functions.log1p,
    np.log1p,
    lambda b, x, y: b.add("reciprocal", b.add("add_scalar", x, value=Fraction(1))),
    by=lambda c, x: c.log(c.add(c.one, x)),
    analytic=True,
    bounds=grows(math.log1p, start=-1),
)
expm1 = function(
    functions.expm1,
    np.expm1,
    lambda b, x, y: b.add("add_scalar", y, value=Fraction(1)),
    by=lambda c, x: c.sub(c.exp(x), c.one),
    analytic=True,
    bounds=grows(math.expm1, least=-1),
)
sqrt = function(
    functions.sqrt,
    np.sqrt,
    lambda b, x, y: b.add("mul_scalar", b.add("reciprocal", y), value=HALF),
    analytic=True,
    bounds=grows(math.sqrt, start=0, least=0),
)
rsqrt = function(
    functions.rsqrt,
    lambda x: 1 / np.sqrt(x),
    lambda b, x, y: b.add("mul_scalar", b.add("pow", y, exponent=Fraction(3)), value=-HALF),
    analytic=True,
    bounds=always(0, math.inf),
)
sin = function(
    functions.sin,
    np.sin,
    lambda b, x, y: b.add("cos", x),
    parity=-1,
    analytic=True,
    bounds=always(-1, 1),
)
cos = function(
    functions.cos,
    np.cos,
    lambda b, x, y: b.add("neg", b.add("sin", x)),
    parity=1,
    analytic=True,
    bounds=always(-1, 1),
)
tanh = function(
    functions.tanh,
    np.tanh,
    lambda b, x, y: b.add("add_scalar", b.add("neg", b.add("mul", y, y)), value=Fraction(1)),
    parity=-1,
    analytic=True,
    bounds=grows(math.tanh, least=-1),
)
sigmoid = function(
    functions.sigmoid,
    _sigmoid,
    lambda b, x, y: b.add("sub", y, b.add("mul", y, y)),
    by=_logistic,
    analytic=True,
    bounds=always(0, 1),
)
erf = function(functions.erf, _erf, parity=-1, analytic=True, bounds=always(-1, 1))
abs_ = function(
    functions.abs_,
    np.abs,
    lambda b, x, y: b.add("sign", x),
    parity=1,
    integers=np.abs,
    bounds=applied(magnitude),
)
sign = function(
    functions.sign,
    np.sign,
    aten=("sign.default", "sgn.default"),
    integers=np.sign,
    bounds=always(-1, 1),
)
floor = function(functions.floor, np.floor, integers=np.copy, steps=True, bounds=grows(math.floor))
relu = function(
    functions.relu,
    lambda x: np.maximum(x, 0),
    lambda b, x, y: b.add("relu_grad", x),
    integers=lambda x: np.maximum(x, 0),
    rises=(0,),
    picks="zero",
    bounds=_relu_bounds,
)
relu_grad = function(
    functions.relu_grad,
    lambda x: (x > 0).astype(np.float64),
    aten=(),
)
silu = function(
    functions.silu,
    lambda x: x * _sigmoid(x),
    lambda b, x, y: b.add("silu_grad", x),
    by=lambda c, x: c.mul(x, _logistic(c, x)),
    analytic=True,
)
silu_grad = function(
    functions.silu_grad,
    lambda x: _sigmoid(x) * (1 + x * (1 - _sigmoid(x))),
    aten=(),
    analytic=True,
)
gelu = function(
    functions.gelu,
    lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    lambda b, x, y: b.add("gelu_grad", x),
    aten=(),
    analytic=True,
)
gelu_grad = function(functions.gelu_grad, _gelu_grad, aten=(), analytic=True)
gelu_tanh = function(
    functions.gelu_tanh,
    lambda x: 0.5 * x * (1 + _gelu_tanh_inner(x)),
    lambda b, x, y: b.add("gelu_tanh_grad", x),
    aten=(),
    analytic=True,
)
gelu_tanh_grad = function(
    functions.gelu_tanh_grad,
    _gelu_tanh_grad,
    aten=(),
    analytic=True,
)
softplus = function(
    functions.softplus,
    lambda x: np.logaddexp(0, x),
    lambda b, x, y: b.add("sigmoid", x),
    by=lambda c, x: c.log(c.add(c.one, c.exp(x))),
    aten=(),
    analytic=True,
    bounds=always(0, math.inf),
)


def _reciprocal(d: Domain, x: Array) -> Array:
    return d.reciprocal(d.lift(x))


reciprocal = describe(
    functions.reciprocal,
    _reciprocal,
    "`1/x`.",
    aten=("reciprocal.default",),
    analytic=True,
    bounds=applied(inverse),
)


def _pow(d: Domain, x: Array, exponent: Fraction) -> Array:
    if is_index(x) and is_natural(Fraction(exponent)):
        return np.power(x, int(exponent))
    return d.unary(f"pow:{exponent}", x)


pow_ = describe(
    functions.pow_,
    _pow,
    "`x ** exponent`, a rational exponent.",
    analytic=True,
    literal="exponent",
    nothing=Fraction(1),
)


@pow_.vjp
def _pow_vjp(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    e = Fraction(attrs["exponent"])
    slope = b.add("mul_scalar", b.add("pow", ins[0], exponent=e - 1), value=e)
    return [b.add("mul", cts[0], slope)]


reciprocal.vjp(
    lambda b, ins, outs, cts, attrs: [
        b.add("neg", b.add("mul", cts[0], b.add("mul", outs[0], outs[0])))
    ]
)
