"""A view: all dims in reverse."""

from __future__ import annotations

from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.kernel.ops.views import view
from shardproof.verifier.ops.facets import moves


def _mirror(d: Domain, x: Array) -> Array:
    return x[(slice(None, None, -1),) * x.ndim]


REVERSED = view("mirror", lambda site: site.types, {})
mirror = moves(
    REVERSED,
    _mirror,
    "The entries of all dims in reverse.",
    rearranges=True,
)
mirror.vjp(lambda b, ins, outs, cts, attrs: [b.add("mirror", cts[0])])
