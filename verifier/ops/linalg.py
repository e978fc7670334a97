"""Products: what they compute, and their gradients."""

from collections.abc import Callable
from typing import Any

from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.kernel.ops import linalg
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.registry import AttrMap, Op
from shardproof.verifier.ops.bounds import Bounded, Bounds, counted, times
from shardproof.verifier.ops.facets import Facets, Names, Pulled, describe


def _meaning(d: Domain, a: Array, b: Array) -> Array:
    return d.matmul(d.lift(a), d.lift(b))


def _bounds(a: Bounded) -> Bounds:
    return counted(times(*a.args), a.shapes[0][-1])


def _product(op: Op, doc: str) -> Facets:
    aten = (f"{op.name}.default",)
    return describe(op, _meaning, doc, bounds=_bounds, aten=aten, analytic=True, adds=True)


mm = _product(linalg.mm, "Matrix product. Splitting `k` leaves a pending sum.")
bmm = _product(linalg.bmm, "Batched matrix product.")


def _vjp(dims: tuple[int, ...]) -> Callable[..., Any]:
    def rule(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
        name = "mm" if len(dims) == 2 else "bmm"
        x, w = ins
        return [
            b.add(name, cts[0], b.add("permute", w, dims=dims)),
            b.add(name, b.add("permute", x, dims=dims), cts[0]),
        ]

    return rule


mm.vjp(_vjp((1, 0)))
bmm.vjp(_vjp((0, 2, 1)))
