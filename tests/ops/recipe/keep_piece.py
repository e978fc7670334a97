"""A collective: of a value that ranks hold whole, each keeps its own chunk, beside zeros."""

from __future__ import annotations

from collections.abc import Sequence

from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.kernel.ops.collectives import group_size
from shardproof.verifier.kernel.program.registry import REQUIRED, Op, Site, register
from shardproof.verifier.kernel.program.traits import Traits
from shardproof.verifier.kernel.program.types import Attr, TensorType
from shardproof.verifier.ops.bounds import among_or_zero
from shardproof.verifier.ops.collectives import dual, shard_pad, shard_slice
from shardproof.verifier.ops.facets import moves


def _types(site: Site) -> tuple[TensorType, ...]:
    size, shape, dim = group_size(site), site.types[0].shape, site.attrs["dim"]
    if not 0 <= dim < len(shape) or shape[dim] % size:
        raise site.fail(f"dim {dim} does not divide into {size} equal pieces")
    return site.types


def _keep_piece(d: Domain, group: Sequence[Array], mesh_dim: Attr, dim: int) -> list[Array]:
    chunks = shard_slice.meaning(d, group, dim=dim)
    return shard_pad.meaning(d, chunks, dim=dim)


KEPT = register(
    Op(
        "keep_piece",
        "collective",
        "... -> ...",
        _types,
        (frozenset({0}),),
        {"mesh_dim": REQUIRED, "dim": REQUIRED},
        Traits(keeps=0),
    )
)
keep_piece = moves(
    KEPT,
    _keep_piece,
    "Replicate to Partial: each rank's own chunk along `dim`, zeros elsewhere; nothing is sent.",
    bounds=among_or_zero,
)
keep_piece.vjp(dual(KEPT.name, {"dim": "dim"}))
