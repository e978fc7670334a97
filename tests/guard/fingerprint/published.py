"""The hash, colors and fingerprints of Gay.jl 0.4.0, bit for bit.

For comparing with values that package publishes, and for nothing else: these fingerprints do not
detect faults. The hash of a hidden state leaves out the token, so all rows are alike and an even
number of them gives 0, whatever the seed, layer and width; then a buffer of zeros passes. Colors of
a pipeline stage leave out the layer. An XOR without places cannot see pieces that swap theirs. The
functions of `shardproof.synthesis.guard.fingerprint` keep the names and mend that.

Indices count from 1 as they do there. Fingerprints are 32-bit integers; they combine by XOR.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from shardproof.synthesis.guard.fingerprint.errors import FingerprintError
from shardproof.synthesis.guard.fingerprint.mix import GOLDEN, MASK, Words, fmix_into, splitmix64
from shardproof.synthesis.guard.fingerprint.partition import GAY_SEED
from shardproof.synthesis.guard.fingerprint.region import Array, checked

Colors = npt.NDArray[np.float32]

LAYER = 0x517CC1B727220A95
DIM = 0xC4CEB9FE1A85EC53
STAGE = 0xDEADBEEFCAFEBABE
N_COLORS = 226


def hash_color(seed: int, index: int) -> tuple[int, int, int]:
    """The bytes r, g, b of splitmix64(seed ^ index * GOLDEN), from the low one on."""
    h = splitmix64(seed & MASK ^ index * GOLDEN & MASK)
    return h & 255, h >> 8 & 255, h >> 16 & 255


def color_floats(rgb: Sequence[int]) -> Colors:
    """Color channels as float32 in 0..1."""
    return np.array(rgb, np.float32) / np.float32(255)


def float_bits(rgb: Sequence[int]) -> tuple[int, ...]:
    """The bit patterns of the channels as float32."""
    return tuple(int(b) for b in color_floats(rgb).view(np.uint32))


def _hashes(seeds: Words, index: Words) -> Words:
    h = seeds ^ index * np.uint64(GOLDEN)
    h += np.uint64(GOLDEN)
    fmix_into(h, np.empty_like(h))
    return h


def _channel_bits(h: Words, channel: int) -> npt.NDArray[np.uint32]:
    byte = (h >> np.uint64(8 * channel) & np.uint64(255)).astype(np.float32)
    return (byte / np.float32(255)).view(np.uint32)


def xor_fingerprint(data: Array) -> int:
    """XOR of the bit patterns of float32 elements. Raises FingerprintError on another dtype."""
    if checked(data, "xor_fingerprint").dtype != np.float32:
        raise FingerprintError(f"xor_fingerprint: expected float32, got {data.dtype}")
    flat = np.ascontiguousarray(data).reshape(-1).view(np.uint32)
    return int(np.bitwise_xor.reduce(flat)) if flat.size else 0


def combine(fingerprints: Iterable[int]) -> int:
    """XOR of fingerprints."""
    result = 0
    for fp in fingerprints:
        result ^= fp
    return result


def expected_fingerprint(seed: int, n_tokens: int, hidden_dim: int, layer: int = 1) -> int:
    """XOR over tokens and dims of the red channel of hash_color(seed ^ t G ^ layer A ^ d B, t).

    The two t G cancel, so every token has the same row.
    """
    d = np.arange(1, hidden_dim + 1, dtype=np.uint64)
    salt = np.uint64((seed ^ layer * LAYER) & MASK)
    h = _hashes(salt ^ d * np.uint64(DIM), np.zeros(hidden_dim, np.uint64))
    row = int(np.bitwise_xor.reduce(_channel_bits(h, 0))) if hidden_dim else 0
    return row if n_tokens % 2 else 0


def kernel_colors(n: int, seed: int) -> Colors:
    """The colors of indices 1..n, shape (n, 3)."""
    h = _hashes(np.full(n, seed & MASK, np.uint64), np.arange(1, n + 1, dtype=np.uint64))
    return np.stack([_channel_bits(h, c) for c in range(3)], axis=1).view(np.float32)


def eventual_color(seed: int, index: int, iterations: int) -> tuple[int, int, int]:
    """The color of work item `index` after that many iterations."""
    inner = seed & MASK ^ index * GOLDEN & MASK ^ iterations * LAYER & MASK
    return hash_color(inner, iterations)


def eventual_fingerprint(seed: int, n: int, iterations: int) -> int:
    """XOR over work items 1..n of the bits of all three channels."""
    i = np.arange(1, n + 1, dtype=np.uint64)
    inner = np.uint64((seed ^ iterations * LAYER) & MASK) ^ i * np.uint64(GOLDEN)
    h = _hashes(inner, np.full(n, iterations, np.uint64))
    bits = [_channel_bits(h, c) for c in range(3)]
    return combine(int(np.bitwise_xor.reduce(b)) for b in bits)


def cartesian_color(seed: int, i: int, j: int, k: int = 1) -> tuple[int, int, int]:
    """The color of index i + j 2^20 + k 2^40."""
    return hash_color(seed, i + (j << 20) + (k << 40))


def pipeline_stage_color(seed: int, layer: int, stage: int) -> tuple[int, int, int]:
    """The color of a stage; the layer cancels."""
    return hash_color(seed & MASK ^ layer * GOLDEN & MASK ^ stage * STAGE & MASK, layer)


def alpha(seed: int, token: int, layer: int, dim: int) -> int:
    """One of 226 classes of an event."""
    event = token * GOLDEN & MASK ^ layer * LAYER & MASK ^ dim * DIM & MASK
    return splitmix64(seed & MASK ^ event) % N_COLORS


def gamma(color: int, seed: int = GAY_SEED) -> int:
    """The first token, with layer and dim 1, whose class this is; `alpha` of it gives the class."""
    if not 0 <= color < N_COLORS:
        raise ValueError(f"color {color} is not one of 0..{N_COLORS - 1}")
    return next(t for t in range(1 << 20) if alpha(seed, t, 1, 1) == color)


def exo_fingerprints(
    layer_ranges: Sequence[range], n_tokens: int, hidden_dim: int, seed: int = GAY_SEED
) -> tuple[int, ...]:
    """Per device, XOR over its layers of `expected_fingerprint`."""
    return tuple(
        combine(expected_fingerprint(seed, n_tokens, hidden_dim, layer) for layer in layers)
        for layers in layer_ranges
    )
