"""Payloads of canary runs, and what their fingerprints are, known before running."""

from typing import Literal

import numpy as np

from shardproof.synthesis.guard.fingerprint.errors import FingerprintError, expect, integer
from shardproof.synthesis.guard.fingerprint.mix import key as make_key
from shardproof.synthesis.guard.fingerprint.movement import (
    Fp,
    colors,
    common_width,
    coverage,
    fingerprint,
    total,
)
from shardproof.synthesis.guard.fingerprint.partition import GAY_SEED, TensorPartition
from shardproof.synthesis.guard.fingerprint.region import BLOCK, Array, Region, checked, dtype_of


def expected_fingerprint(
    seed: int,
    n_tokens: int,
    hidden_dim: int,
    layer: int = 1,
    *,
    kind: Literal["canary", "coverage"] = "canary",
    dtype: np.dtype | str = "float32",
    width: int | None = None,
) -> Fp:
    """The fingerprint of the hidden states of a layer, known before running.

    `canary`: of the colors of `color_hidden_states`, which the shards of a run on colors add up to
    (`ShardedTensor(..., layer=layer)`, or `fingerprint` with `layer_key(seed, layer)`).
    `coverage`: of the places, which the claims of all ranks add up to. No one can know that of
    model data. `width` is the word size of the shards (`common_width`), where they cannot be read
    in words of 8 bytes as the whole can.

    Raises:
        FingerprintError: no tokens or dims, no such kind or dtype.
    """
    n_tokens = integer(n_tokens, "expected_fingerprint: n_tokens")
    hidden_dim = integer(hidden_dim, "expected_fingerprint: hidden_dim")
    if min(n_tokens, hidden_dim) < 1:
        raise FingerprintError(
            f"expected_fingerprint: {n_tokens} tokens of {hidden_dim} dims; at least 1 each"
        )
    shape, salt = (n_tokens, hidden_dim), layer_key(seed, layer)
    if kind == "coverage":
        return coverage(Region.whole(shape), salt)
    if kind != "canary":
        raise FingerprintError(f"expected_fingerprint: kind {kind!r}; canary or coverage")
    item = dtype_of(dtype, "expected_fingerprint")
    if width is None:
        width = common_width([Region.whole(shape)], item.itemsize)
    rows = max(8, BLOCK // hidden_dim // 8 * 8)  # whole words, whatever a row is
    pieces = (
        Region(shape, (first, 0), (min(rows, n_tokens - first), hidden_dim))
        for first in range(0, n_tokens, rows)
    )
    return total(
        fingerprint(colors(r, salt, item, width=width), r, salt, width=width) for r in pieces
    )


def layer_key(seed: int, layer: int) -> int:
    """The key of the hidden states of a layer."""
    return make_key(seed, "hidden", layer)


def color_hidden_states(
    local: Array, partition: TensorPartition, seed: int = GAY_SEED, layer: int = 1
) -> Array:
    """Colors of the shape and dtype of a piece of hidden states, for a canary run."""
    return _color(local, partition, layer_key(seed, layer))


def color_logits(logits: Array, partition: TensorPartition, seed: int = GAY_SEED) -> Array:
    """Colors of the shape and dtype of a shard of logits, for a canary run.

    They take the place of the data: added to it, they would change it and could not be told apart
    from it.
    """
    return _color(logits, partition, make_key(seed, "logits"))


def color_embeddings(local: Array, partition: TensorPartition, seed: int = GAY_SEED) -> Array:
    """Colors of the shape and dtype of a shard of embeddings, for a canary run."""
    return _color(local, partition, make_key(seed, "embeddings"))


def _color(local: Array, partition: TensorPartition, salt: int) -> Array:
    local = checked(local, "a canary run")
    expect(partition, TensorPartition, "a canary run: expected a TensorPartition")
    region = partition.region(local.shape)
    width = common_width(partition.extremes(), local.dtype.itemsize, region.global_shape)
    return colors(region, salt, local.dtype, width=width)
