"""Products: ops whose signature names every factor, contracted factors summed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from verifier.domains.base import Array, Domain
from verifier.kernel.layout import Dim, Layout, bound
from verifier.kernel.ops.map import join_partial
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.registry import (
    AttrMap,
    Op,
    Operands,
    Placed,
    Refused,
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


def place_einsum(op: Op, given: Operands) -> list[Placed]:
    """A factor split alike wherever it occurs is split in the result, or leaves a pending sum."""
    operands, result = parse(op.signature)
    dims: dict[str, Dim] = {}
    for i, (layout, factors) in enumerate(zip(given.layouts, operands, strict=True)):
        for factor, dim in zip(factors, layout.dims, strict=True):
            if dims.setdefault(factor, dim) != dim:
                name = next((n for n in (*bound(dim), *bound(dims[factor]))), None)
                raise Refused(f"factor {factor} is split differently in the operands", name, i)
    owner: dict[str, str] = {}
    for factor, dim in dims.items():
        for name in bound(dim):
            if owner.setdefault(name, factor) != factor:
                raise Refused(
                    f"factors {owner[name]} and {factor} are both split over {name}", name
                )
    partial = dict(join_partial(op, given))
    for name, factor in owner.items():
        if name in partial:
            raise Refused(
                f"factor {factor} is split over {name}, over which a sum is pending", name
            )
        if factor not in result:
            partial[name] = "sum"
    layout = Layout(tuple(dims[f] for f in result)).with_partial(partial.items())
    return [Placed((layout,), given.attrs)]


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
            place_einsum,
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
