"""A shard on one rank, where it belongs, and its fingerprint."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from shardproof.synthesis.guard.fingerprint.canary import layer_key
from shardproof.synthesis.guard.fingerprint.errors import FingerprintError, expect, integer
from shardproof.synthesis.guard.fingerprint.mix import key as make_key
from shardproof.synthesis.guard.fingerprint.movement import Fp, fingerprint, total
from shardproof.synthesis.guard.fingerprint.partition import GAY_SEED, TensorPartition
from shardproof.synthesis.guard.fingerprint.region import Array, Region, checked


@dataclass(frozen=True, eq=False)
class ShardedTensor:
    """A piece on one rank, and where it belongs.

    Its fingerprint has the key of the seed; with a `layer`, that of the hidden states of the layer,
    so that the shards of a canary run add up to `expected_fingerprint`.

    Raises:
        FingerprintError: no numpy array, or not of the shape of its shard.
    """

    data: Array
    partition: TensorPartition
    seed: int = GAY_SEED
    layer: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        expect(self.partition, TensorPartition, "ShardedTensor: expected a TensorPartition")
        data = checked(self.data, f"ShardedTensor, shard {self.partition.shard_id}")
        integer(self.seed, "ShardedTensor: seed")
        self.partition.region(data.shape)

    @property
    def region(self) -> Region:
        """Its box in the global tensor."""
        return self.partition.region(self.data.shape)

    @property
    def key(self) -> int:
        """The key of its fingerprint."""
        return make_key(self.seed) if self.layer is None else layer_key(self.seed, self.layer)

    @property
    def fingerprint(self) -> Fp:
        """The movement hash of its data as they are now (see `fingerprint`)."""
        return fingerprint(self.data, self.partition, self.key)


def shard_fingerprint(shard: ShardedTensor) -> Fp:
    """The fingerprint of a piece on one rank, with the key of its seed."""
    if not isinstance(shard, ShardedTensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FingerprintError(f"expected a ShardedTensor, got {type(shard).__name__}")
    return shard.fingerprint


def combined_fingerprint(shards: Iterable[ShardedTensor]) -> Fp:
    """The fingerprint of the tensor that the shards make together. Raises FingerprintError where
    there are none, or where they differ in seed."""
    return total(shard_fingerprint(shard) for shard in shards)
