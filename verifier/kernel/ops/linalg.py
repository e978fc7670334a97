"""Products: ops whose signature names every factor, contracted factors summed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from verifier.domains.base import Array, Domain
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.registry import (
    AttrMap,
    Op,
    Site,
    groups,
    register,
)
from verifier.kernel.program.traits import Bounded, Bounds, Traits, counted, times
from verifier.kernel.program.types import TensorType


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


def _flops(signature: str) -> Callable[..., int]:
    operands, _ = parse(signature)

    def count(types: Sequence[TensorType], results: Sequence[TensorType], attrs: AttrMap) -> int:
        extents = {
            f: n
            for t, fs in zip(types, operands, strict=True)
            for f, n in zip(fs, t.shape, strict=True)
        }
        return 2 * math.prod(extents.values())

    return count


def _meaning(d: Domain, a: Array, b: Array) -> Array:
    return d.matmul(d.lift(a), d.lift(b))


def _bounds(a: Bounded) -> Bounds:
    return counted(times(*a.args), a.shapes[0][-1])


def _product(name: str, signature: str, doc: str) -> Op:
    return register(
        Op(
            name,
            "einsum",
            signature,
            _meaning,
            einsum_types(signature),
            linear=groups("each", 2),
            flops=_flops(signature),
            doc=doc,
            traits=Traits(strict=True, analytic=True, keeps=0, adds=True, bounds=_bounds),
        )
    )


mm = _product("mm", "m k, k n -> m n", "Matrix product. Splitting `k` leaves a pending sum.")
bmm = _product("bmm", "b m k, b k n -> b m n", "Batched matrix product.")


def _vjp(dims: tuple[int, ...]) -> Callable[..., Any]:
    def rule(
        b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
    ) -> list[str | None]:
        name = "mm" if len(dims) == 2 else "bmm"
        x, w = ins
        return [
            b.add(name, cts[0], b.add("permute", w, dims=dims)),
            b.add(name, b.add("permute", x, dims=dims), cts[0]),
        ]

    return rule


mm.vjp(_vjp((1, 0)))
bmm.vjp(_vjp((0, 2, 1)))
