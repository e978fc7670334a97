"""Gradients of composite ops that have better ones than their expansion has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verifier.kernel.composites import layers
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.registry import AttrMap
from verifier.ops.facets import Facets, describe


def _from_output(backward: str) -> Callable[..., list[str | None]]:
    """A cotangent that another composite computes from the result."""

    def rule(
        b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
    ) -> list[str | None]:
        return [b.add(backward, cts[0], outs[0])]

    return rule


detach = describe(layers.detach, Facets())


@detach.vjp
def _nothing_passes(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    return [None]


describe(layers.softmax, Facets()).vjp(_from_output("softmax_backward"))
describe(layers.log_softmax, Facets()).vjp(_from_output("log_softmax_backward"))
