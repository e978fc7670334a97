"""Ops that fold dims: reductions, and products, which sum over the factors that they contract.

The signature of a product names every factor.
"""

from collections.abc import Callable
from functools import partial

from shardproof.verifier.kernel.program.registry import REQUIRED, Op, Site, groups, register
from shardproof.verifier.kernel.program.traits import Traits
from shardproof.verifier.kernel.program.types import TensorType


def _types(site: Site, empty: bool) -> tuple[TensorType, ...]:
    (x,) = site.types
    dims: tuple[int, ...] = tuple(site.attrs["dims"])
    if not all(0 <= d < len(x.shape) for d in dims) or len(set(dims)) != len(dims):
        raise site.fail(f"dims {tuple(dims)} on a tensor of {len(x.shape)} dims")
    if site.attrs["keepdim"]:
        shape = tuple(1 if i in dims else n for i, n in enumerate(x.shape))
    else:
        shape = tuple(n for i, n in enumerate(x.shape) if i not in dims)
    dtype = "i64" if not x.is_float else x.dtype
    if not empty and any(x.shape[d] == 0 for d in dims):
        raise site.fail("one of no entries")
    return (TensorType(shape, dtype),)


def reduction(
    name: str, traits: Traits, *, linear: tuple[frozenset[int], ...] = (), checked: str = ""
) -> Op:
    """Declare a reduction over dims. One that is not linear takes an entry or more."""
    attrs = {"dims": REQUIRED, "keepdim": False}
    types = partial(_types, empty=bool(linear))
    made = Op(name, "reduce", "... [dims] -> ...", types, linear, attrs, traits, checked=checked)
    return register(made)


sum_ = reduction("sum", Traits(strict=True, keeps=1), linear=(frozenset({0}),))
amax = reduction("amax", Traits(keeps=1))


def parse(signature: str) -> tuple[list[list[str]], list[str]]:
    """`"m k, k n -> m n"` to operand factors and result factors."""
    left, right = signature.split("->")
    return [part.split() for part in left.split(",")], right.split()


def einsum_types(signature: str) -> Callable[[Site], tuple[TensorType, ...]]:
    operands, result = parse(signature)

    def rule(site: Site) -> tuple[TensorType, ...]:
        if len(site.types) != len(operands):
            raise site.fail(f"takes {len(operands)} operands, as in {signature!r}")
        extents: dict[str, int] = {}
        for type, factors in zip(site.types, operands, strict=True):
            if len(type.shape) != len(factors) or not type.is_float:
                raise site.fail(f"expected float operands with the dims of {signature!r}")
            for factor, n in zip(factors, type.shape, strict=True):
                if extents.setdefault(factor, n) != n:
                    raise site.fail(
                        f"factor {factor} is {extents[factor]} and {n} in {signature!r}"
                    )
        return (TensorType(tuple(extents[f] for f in result), site.types[0].dtype),)

    return rule


def _product(name: str, signature: str) -> Op:
    known = Traits(strict=True, keeps=0)
    types = einsum_types(signature)
    return register(Op(name, "einsum", signature, types, groups("each", 2), traits=known))


mm = _product("mm", "m k, k n -> m n")
bmm = _product("bmm", "b m k, b k n -> b m n")
