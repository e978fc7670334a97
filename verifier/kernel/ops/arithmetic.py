"""Sums, products, comparisons, choices and casts, element by element."""

from shardproof.verifier.kernel.ops.map import broadcast_shape, elementwise, promote
from shardproof.verifier.kernel.program.registry import REQUIRED, Op, Site, register
from shardproof.verifier.kernel.program.traits import Traits
from shardproof.verifier.kernel.program.types import TensorType

AFFINE = Traits(strict=True, closed="integers", wraps=True)
"""Of sums and multiples."""
neg = elementwise("neg", 1, AFFINE, linear="each")
mul_scalar = elementwise("mul_scalar", 1, AFFINE, linear="each", attrs={"value": REQUIRED})
add_scalar = elementwise("add_scalar", 1, AFFINE, attrs={"value": REQUIRED})
cast = elementwise(
    "cast", 1, Traits(keeps=0, closed="bools"), linear="each", attrs={"dtype": REQUIRED}
)
add = elementwise(
    "add",
    2,
    Traits(strict=True, closed="integers", wraps=True, symmetric=True, keeps=1),
    linear="joint",
)
sub = elementwise("sub", 2, AFFINE, linear="joint")
mul = elementwise(
    "mul",
    2,
    Traits(strict=True, closed="bools", wraps=True, symmetric=True, keeps=1),
    linear="each",
)
div = elementwise("div", 2, Traits(strict=True, needs="not zero"), linear=[[0]])
maximum = elementwise("maximum", 2, Traits(closed="bools", symmetric=True, keeps=1))
minimum = elementwise("minimum", 2, Traits(closed="bools", symmetric=True, keeps=1))


def _truth(name: str, arity: int, symmetric: bool = False) -> Op:
    known = Traits(sign=0, closed="bools", symmetric=symmetric)
    return elementwise(name, arity, known, result="bool")


COMPARISONS = [
    *(_truth(name, 2, symmetric=True) for name in ("eq", "ne")),
    *(_truth(name, 2) for name in ("lt", "le", "gt", "ge")),
]
LOGIC = [
    *(_truth(f"logical_{word}", 2, symmetric=True) for word in ("and", "or")),
    _truth("logical_not", 1),
]


def _where_types(site: Site) -> tuple[TensorType, ...]:
    if len(site.types) != 3 or site.types[0].dtype != "bool":
        raise site.fail("takes a bool condition and two operands")
    return (TensorType(broadcast_shape(site), promote(site, site.types[1:])),)


where = register(
    Op(
        "where",
        "map",
        "..., ..., ... -> ...",
        _where_types,
        linear=(frozenset({1, 2}),),
        traits=Traits(keeps=1),
    )
)
