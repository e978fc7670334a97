"""Scalar functions of one operand, element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from verifier.domains.base import Array, Domain, is_index
from verifier.kernel.ops.map import declare, is_natural, one
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.registry import REQUIRED, AttrMap, Op

INTEGRAL: dict[str, Callable[[Array], Array]] = {
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.copy,
    "relu": lambda x: np.maximum(x, 0),
}
"""What functions that keep integers do to them."""


def _function(name: str) -> Op:
    def meaning(d: Domain, x: Array) -> Array:
        exact = INTEGRAL.get(name)
        return exact(x) if exact is not None and is_index(x) else d.unary(name, x)

    return declare(name, 1, meaning, doc=f"`{name}(x)`, element by element.", flops=8)


UNARY = {
    name: _function(name)
    for name in [
        "exp",
        "log",
        "log1p",
        "expm1",
        "sqrt",
        "rsqrt",
        "sin",
        "cos",
        "tanh",
        "sigmoid",
        "erf",
        "abs",
        "sign",
        "floor",
        "relu",
        "relu_grad",
        "silu",
        "silu_grad",
        "gelu",
        "gelu_grad",
        "gelu_tanh",
        "gelu_tanh_grad",
        "softplus",
    ]
}

reciprocal = declare(
    "reciprocal", 1, one(lambda d, x: d.reciprocal(d.lift(x))), doc="`1/x`.", flops=4
)


def _pow(d: Domain, x: Array, exponent: Fraction) -> Array:
    if is_index(x) and is_natural(Fraction(exponent)):
        return np.power(x, int(exponent))
    return d.unary(f"pow:{exponent}", x)


pow_ = declare(
    "pow",
    1,
    _pow,
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


def _derivative(name: str, slope: Callable[[Builder, str, str], str]) -> None:
    def rule(
        b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
    ) -> list[str | None]:
        return [b.add("mul", cts[0], slope(b, ins[0], outs[0]))]

    UNARY[name].vjp(rule)


_derivative("exp", lambda b, x, y: y)
_derivative("log", lambda b, x, y: b.add("reciprocal", x))
_derivative("relu", lambda b, x, y: b.add("relu_grad", x))
_derivative("silu", lambda b, x, y: b.add("silu_grad", x))
_derivative("gelu", lambda b, x, y: b.add("gelu_grad", x))
_derivative("gelu_tanh", lambda b, x, y: b.add("gelu_tanh_grad", x))
_derivative("softplus", lambda b, x, y: b.add("sigmoid", x))
_derivative("sin", lambda b, x, y: b.add("cos", x))
_derivative("cos", lambda b, x, y: b.add("neg", b.add("sin", x)))
_derivative("abs", lambda b, x, y: b.add("sign", x))
_derivative(
    "sqrt", lambda b, x, y: b.add("mul_scalar", b.add("reciprocal", y), value=Fraction(1, 2))
)
_derivative(
    "rsqrt",
    lambda b, x, y: b.add(
        "mul_scalar", b.add("pow", y, exponent=Fraction(3)), value=Fraction(-1, 2)
    ),
)
_derivative(
    "tanh",
    lambda b, x, y: b.add("add_scalar", b.add("neg", b.add("mul", y, y)), value=Fraction(1)),
)
_derivative("sigmoid", lambda b, x, y: b.add("sub", y, b.add("mul", y, y)))


_derivative("log1p", lambda b, x, y: b.add("reciprocal", b.add("add_scalar", x, value=Fraction(1))))
_derivative("expm1", lambda b, x, y: b.add("add_scalar", y, value=Fraction(1)))


@reciprocal.vjp
def _reciprocal_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    return [b.add("neg", b.add("mul", cts[0], b.add("mul", outs[0], outs[0])))]
