"""Products: ops whose signature names every factor, contracted factors summed."""

from collections.abc import Callable

from shardproof.verifier.kernel.program.registry import Op, Site, groups, register
from shardproof.verifier.kernel.program.traits import Traits
from shardproof.verifier.kernel.program.types import TensorType


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
