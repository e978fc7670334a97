"""Laws between tensor terms, each an equality for all values at all extents that its shapes allow.

A law looks at the top of a term and gives an equal one, or None where it says nothing. Together
they lead one way: products are spelled out over sums, views and slices move inward,
concatenations outward, scales out of products and reductions, pieces of one tensor together. A
step that only made a term larger the other way round would not end, so none is here.
"""

from __future__ import annotations

from verifier.provers.rewrite import edges, pieces, products, runs, sums, views
from verifier.provers.rewrite.blocks import LAWS, Law

__all__ = ["LAWS", "Law", "edges", "pieces", "products", "runs", "sums", "views"]
