"""One check per collective: from what was sent, or from colors, what must have arrived.

Every check has two modes. *Live*: the senders hand over fingerprints of their real pieces, and what
arrived has to add up to them. *Canary*: the plan's real collectives are run once on colors
(`color_logits` and the like), and what must arrive is known before running; give no fingerprints.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardproof.synthesis.guard.fingerprint.canary import layer_key
from shardproof.synthesis.guard.fingerprint.errors import FingerprintError, integer
from shardproof.synthesis.guard.fingerprint.mix import MASK, key as make_key
from shardproof.synthesis.guard.fingerprint.movement import (
    Fp,
    colors,
    common_width,
    decode,
    fingerprint,
    total,
)
from shardproof.synthesis.guard.fingerprint.outcome import Verdict, compared
from shardproof.synthesis.guard.fingerprint.partition import GAY_SEED, TensorPartition
from shardproof.synthesis.guard.fingerprint.region import Array, Region, checked, raw_words

DIAGNOSED = 64
"""Pieces that are compared with each other to name a fault."""


def verify_allgather(
    gathered: Array,
    partitions: Sequence[TensorPartition],
    seed: int = GAY_SEED,
    *,
    layer: int | None = None,
    shard_fps: Sequence[Fp] | None = None,
    key: int | None = None,
    rank: int | None = None,
) -> Verdict:
    """Whether a gathered tensor holds every shard in its place.

    Live: `shard_fps` are `fingerprint(shard, partition, key)` of the senders, in the order of the
    partitions, with the `key` given here. Canary: without them, the colors of `color_logits` are
    expected; with a `layer` those of `color_hidden_states`, or those of the `key` given here.

    Sees what `fingerprint` sees: flips, shards dropped, repeated, swapped, stale, or gathered along
    the wrong dim; names the ranks whose places are wrong and, where it can, what is there instead.
    In canary mode a wrong place tells which elements it holds. Does not see shards that were wrong
    when they were sent.

    Raises:
        FingerprintError: partitions that are not all shards of this tensor, or fingerprints of
            another key or number.
    """
    gathered = checked(gathered, "verify_allgather")
    parts = _all_shards("verify_allgather", partitions)
    if shard_fps is not None and len(shard_fps) != len(parts):
        raise FingerprintError(
            f"verify_allgather: {len(parts)} shards, {len(shard_fps)} fingerprints"
        )
    if key is None:
        key = make_key(seed, "logits") if layer is None else layer_key(seed, layer)
    salt = integer(key, "verify_allgather: the key") & MASK
    regions = [p.of_whole(gathered.shape) for p in parts]
    width = common_width(regions, gathered.dtype.itemsize)
    if shard_fps is None:
        want = [
            fingerprint(colors(r, salt, gathered.dtype, width=width), r, salt, width=width)
            for r in regions
        ]
    else:
        order = sorted(range(len(parts)), key=lambda i: partitions[i].shard_id)
        want = [shard_fps[i] for i in order]
        width = _of_key("verify_allgather", want, salt)
    got = fingerprint(gathered, None, salt, width=width)
    expected = total(want)
    if expected == got:
        return compared("all_gather", "H", expected, got, rank=rank)
    pieces = [np.ascontiguousarray(r.cut(gathered)) for r in regions]
    moved = _Pieces(want, pieces, regions, salt, width, shard_fps is None)
    found = moved.blamed("all_gather", rank)
    if expected.count != gathered.nbytes:
        said = f"{gathered.nbytes} bytes of {gathered.dtype} where {expected.count} were sent"
        return replace(found, probable_fault=f"{said}: another dtype")
    return found


def _of_key(where: str, fps: Sequence[Fp], key: int) -> int:
    """The word size of fingerprints. Raises FingerprintError where they are of another key, or do
    not combine: that says nothing of the data."""
    whole = total(fps)
    if whole.key != key & MASK:
        raise FingerprintError(
            f"{where}: fingerprints of key {whole.key:016x}, the key here is {key & MASK:016x}"
        )
    if not whole.width:
        raise FingerprintError(f"{where}: fingerprints of places, expected those of data")
    return whole.width


def _all_shards(where: str, partitions: Sequence[TensorPartition]) -> tuple[TensorPartition, ...]:
    if isinstance(partitions, TensorPartition):
        raise FingerprintError(
            f"{where}: one partition, expected those of all shards: partition.siblings()"
        )
    if not partitions:
        raise FingerprintError(f"{where}: no partitions")
    if odd := [p for p in partitions if not isinstance(p, TensorPartition)]:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FingerprintError(f"{where}: expected TensorPartitions, got {odd[0]!r:.60}")
    want = partitions[0].siblings()
    if set(partitions) != set(want) or len(partitions) != len(want):
        ids = sorted(p.shard_id for p in partitions)
        plans = {(p.dim, p.n_shards, p.global_shape or p.global_size) for p in partitions}
        other = f" of partitions (dim, shards, size) {sorted(plans, key=str)}"
        raise FingerprintError(
            f"{where}: expected shards 0..{len(want) - 1} of one partition, got shards {ids}"
            + (other if len(plans) > 1 else "")
        )
    return want


@dataclass(frozen=True)
class _Pieces:
    """What arrived where each piece belongs, and the fingerprints of what should have."""

    want: Sequence[Fp]
    pieces: Sequence[Array]
    regions: Sequence[Region]
    salt: int
    width: int
    canary: bool = False

    def _hash(self, piece: Array, region: Region) -> Fp:
        return fingerprint(piece, region, self.salt, width=self.width)

    def blamed(self, op: str, rank: int | None) -> Verdict:
        """Which pieces differ, and what the first of them is instead."""
        got = [self._hash(p, r) for p, r in zip(self.pieces, self.regions, strict=True)]
        bad = [i for i, (a, b) in enumerate(zip(self.want, got, strict=True)) if a != b]
        if not bad:
            want, why = str(total(self.want)), "the pieces are right, their sum is not"
            return Verdict("failed", op, "H", want, str(total(got)), (), None, why, rank)
        first = bad[0]
        spans = [self.regions[i].bounds for i in bad]
        span = (min(a for a, _ in spans), max(b for _, b in spans))
        why = f"the place of rank {first} {self._what_is_there(first)}"
        return compared(op, "H", self.want[first], got[first], tuple(bad), span, why, rank)

    def _what_is_there(self, at: int) -> str:
        piece = self.pieces[at]
        for i, (region, fp) in enumerate(zip(self.regions[:DIAGNOSED], self.want, strict=False)):
            if i != at and region.shape == piece.shape and self._hash(piece, region) == fp:
                return f"holds the shard of rank {i}"
        if not np.any(raw_words(piece, 1)):
            return "holds zeros: nothing was written"
        if self.canary and self.width == 8:
            return _decoded(piece, self.regions[at], self.salt)
        return "holds other bits than were sent"


def _decoded(piece: Array, region: Region, salt: int) -> str:
    """What the colors in a piece say of where they came from."""
    size = piece.dtype.itemsize
    per_word = max(1, 8 // size)
    found = decode(piece, salt)
    runs = region.runs().words(size, 8)
    mine = (runs.bases[:, None] + np.arange(runs.length, dtype=np.uint64)[None, :]).reshape(-1)
    wrong = found != mine
    end = -(-int(np.prod(region.global_shape)) * size // 8)
    known = wrong & (found < np.uint64(end))
    if not np.any(known):
        return f"has {int(np.sum(wrong))} words that are not a color of this run"
    at = int(np.argmax(known))
    came, belongs = int(found[at]) * per_word, int(mine[at]) * per_word
    return (
        f"has element {came} of the tensor where element {belongs} belongs "
        f"({int(np.sum(known))} words from another place)"
    )


def verify_broadcast(received: Array, sent_fp: Fp, key: int, *, rank: int | None = None) -> Verdict:
    """Whether a whole tensor arrived as it was sent. Sees and misses what `fingerprint` does.

    Raises FingerprintError where `sent_fp` is no fingerprint of data with this key."""
    width = _of_key("verify_broadcast", [sent_fp], key)
    got = fingerprint(checked(received, "verify_broadcast"), None, key, width=width)
    culprits = () if rank is None else (rank,)
    span = (0, received.size)
    return compared("broadcast", "H", sent_fp, got, culprits, span, "other bits", rank)


def verify_alltoall(
    received: Sequence[Array],
    regions: Sequence[Region],
    sent_fps: Sequence[Fp],
    key: int,
    *,
    rank: int | None = None,
) -> Verdict:
    """Whether the piece of every sender arrived. `regions` are the pieces' boxes in the tensor that
    is exchanged, `sent_fps` the senders' fingerprints of them. Sees what `fingerprint` sees, and
    pieces in each other's place. Raises FingerprintError where numbers of pieces, or keys, differ.
    """
    if not len(received) == len(regions) == len(sent_fps):
        raise FingerprintError(
            f"verify_alltoall: {len(received)} pieces, {len(regions)} regions, "
            f"{len(sent_fps)} fingerprints"
        )
    pieces = [checked(p, f"verify_alltoall, piece {i}") for i, p in enumerate(received)]
    if not pieces or len({fp.width for fp in sent_fps if isinstance(fp, Fp)}) > 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FingerprintError(
            "verify_alltoall: expected pieces hashed in words of one size; give every sender "
            "width=common_width(regions, itemsize)"
        )
    width = _of_key("verify_alltoall", sent_fps, key)
    got = [fingerprint(p, r, key, width=width) for p, r in zip(pieces, regions, strict=True)]
    if got == list(sent_fps):
        return compared("all_to_all", "H", total(sent_fps), total(got), rank=rank)
    return _Pieces(sent_fps, pieces, regions, key, width).blamed("all_to_all", rank)


def verify_send_buffer(before: Fp, after: Fp, rank: int) -> Verdict:
    """Whether a buffer was left alone while it was sent. Sees any write between the two hashes that
    changed a byte and was not undone. Raises FingerprintError where the two do not compare."""
    total((before, after))
    why = "race: the buffer was written while the collective read it"
    return compared("send buffer", "pre/post", before, after, (rank,), None, why, rank)


def verify_coverage(claims: Sequence[Fp], expected: Fp) -> Verdict:
    """Whether what the ranks claim is all of the tensor, once (see `coverage`). Raises
    FingerprintError where the claims are of another key."""
    got = total(claims)
    total((got, expected))
    short = expected.count - got.count
    why = f"{short} places unclaimed" if short > 0 else f"{-short} places too many"
    why = why if short else "some places are claimed twice, others not at all"
    return compared("partition", "C", expected, got, fault=why)


def handoff_key(
    seed: int, from_rank: int, to_rank: int, layer: int, micro_batch: int = 0, step: int = 0
) -> int:
    """The key of one message between pipeline stages; all of what it is for is in it. Raises
    FingerprintError where one of it is no integer."""
    what = (from_rank, to_rank, layer, micro_batch, step)
    return make_key(seed, "handoff", *(integer(i, "handoff: a rank, layer or step") for i in what))


def verify_pipeline_handoff(
    activations: Array,
    from_rank: int,
    to_rank: int,
    layer: int,
    seed: int = GAY_SEED,
    *,
    sent_fp: Fp | None = None,
    micro_batch: int = 0,
    step: int = 0,
) -> Verdict:
    """Whether activations arrived as they were sent, and are those that belong here.

    Live: `sent_fp` is the sender's `fingerprint(activations, None, handoff_key(...))`. Canary:
    without it, `colors` of that key are expected.

    Sees changed bits, and activations of another stage, layer, micro-batch or step, since all of
    that is in the key. Does not see a wrong value that was sent as it is, nor the same bytes in
    another shape or dtype (`descriptor` does).

    Raises:
        FingerprintError: ranks, layer or step that are no integers, or no fingerprint of data.
    """
    op = f"handoff of layer {layer} from rank {from_rank} to rank {to_rank}"
    activations = checked(activations, op)
    salt = handoff_key(seed, from_rank, to_rank, layer, micro_batch, step)
    if sent_fp is not None and _of_key(op, [sent_fp], total([sent_fp]).key) and sent_fp.key != salt:
        want, got = (f"key {k:016x}" for k in (salt, sent_fp.key))
        why = "sent for another stage, layer, micro-batch or step"
        return compared(op, "H", want, got, (from_rank,), None, why, to_rank)
    got = fingerprint(activations, None, salt, width=sent_fp.width if sent_fp else None)
    want = sent_fp or fingerprint(
        colors(Region.whole(activations.shape), salt, activations.dtype), None, salt
    )
    why = "other bits than were sent"
    if got != want and sent_fp is None and activations.nbytes % 8 == 0:
        why = _decoded(activations, Region.whole(activations.shape), salt)
    return compared(op, "H", want, got, (from_rank,), (0, activations.size), why, to_rank)
