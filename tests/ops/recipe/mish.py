"""A function of one number: `x tanh(log(1 + exp(x)))` (Misra 2020)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from shardproof.verifier.domains.floats import Calculus
from shardproof.verifier.kernel.ops.map import elementwise
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.traits import Traits
from shardproof.verifier.ops.functions import function


def _by(c: Calculus[Any], x: Any) -> Any:
    """`tanh(log(s)) = (s^2 - 1) / (s^2 + 1)`, with `s = 1 + exp(x)`."""
    s = c.add(c.one, c.exp(x))
    square = c.mul(s, s)
    return c.mul(x, c.mul(c.sub(square, c.one), c.reciprocal(c.add(square, c.one))))


def _slope(b: Builder, x: str, y: str) -> str:
    t = b.add("tanh", b.add("softplus", x))
    bend = b.add("add_scalar", b.add("neg", b.add("mul", t, t)), value=Fraction(1))
    return b.add("add", t, b.add("mul", x, b.add("mul", bend, b.add("sigmoid", x))))


mish = function(
    elementwise("mish", 1, Traits(strict=True)),
    lambda x: x * np.tanh(np.logaddexp(0, x)),
    _slope,
    by=_by,
    analytic=True,
)
