"""The arctangent of a number."""

from fractions import Fraction

import numpy as np

from shardproof.verifier.kernel.ops.map import elementwise
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.traits import Traits
from shardproof.verifier.ops.bounds import always
from shardproof.verifier.ops.functions import function


def _slope(b: Builder, x: str, y: str) -> str:
    return b.add("reciprocal", b.add("add_scalar", b.add("mul", x, x), value=Fraction(1)))


atan = function(
    elementwise("atan", 1, Traits(strict=True)),
    np.arctan,
    _slope,
    parity=-1,
    analytic=True,
    bounds=always(-2, 2),
)
