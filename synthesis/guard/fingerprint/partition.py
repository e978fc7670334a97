"""How one tensor is split over ranks, and which layers a rank runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardproof.synthesis.guard.fingerprint.errors import FingerprintError, expect, integer
from shardproof.synthesis.guard.fingerprint.mix import Words
from shardproof.synthesis.guard.fingerprint.region import Region

GAY_SEED = 1069
"""The seed where none is given."""


@dataclass(frozen=True)
class TensorPartition:
    """Shard `shard_id` of `n_shards`, of a tensor split along `dim` (counted from 0).

    Say `global_size`, the extent of that dim, or `global_shape`; with the extent alone, the other
    dims are those of the data. Shards are those of `torch.chunk`: all of ceil(extent / n_shards)
    but the last ones. Where that does not give equal shards, `uneven=True` says it is meant.

    Raises:
        FingerprintError: no such dim or shard, or shards that are not equal.
    """

    dim: int
    n_shards: int
    shard_id: int
    global_size: int = -1
    global_shape: tuple[int, ...] | None = None
    uneven: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        where = f"TensorPartition of dim {self.dim} over {self.n_shards} ranks"
        for name in ("dim", "n_shards", "shard_id", "global_size"):
            object.__setattr__(self, name, integer(getattr(self, name), f"{where}: {name}"))
        if self.global_shape is not None:
            expect(self.global_shape, Iterable, f"{where}: expected a global_shape")
            shape = tuple(integer(n, f"{where}: an extent", 0) for n in self.global_shape)
            object.__setattr__(self, "global_shape", shape)
            if self.global_size == -1 and 0 <= self.dim < len(shape):
                object.__setattr__(self, "global_size", shape[self.dim])
        if fault := self._fault():
            raise FingerprintError(f"{where}: {fault}")

    def _fault(self) -> str:
        """What does not fit together, empty where all does."""
        dim, n, size, shape = self.dim, self.n_shards, self.global_size, self.global_shape
        if dim < 0:
            return "dims are counted from 0"
        if shape is not None and dim >= len(shape):
            return f"a tensor of shape {list(shape)} has no such dim (dims are counted from 0)"
        if shape is not None and size != shape[dim]:
            return f"global_size is {size}, but dim {dim} of {list(shape)} is {shape[dim]}"
        if size < 0:
            said = "" if size == -1 else f"; global_size is {size}"
            return f"give global_size or global_shape{said}"
        if n < 1:
            return "at least one shard"
        if not 0 <= self.shard_id < n:
            return f"shard {self.shard_id} is not one of 0..{n - 1}"
        if not self.uneven and n > size:
            return (
                f"{n} shards of {size} rows leave ranks without any; use fewer ranks, or say "
                "uneven=True"
            )
        if not self.uneven and size % n:
            sizes = [end - first for first, end in map(self.bounds, range(n))]
            return (
                f"{size} is not a multiple of {n}; torch.chunk gives shards of {sizes}: say "
                "uneven=True if that is meant"
            )
        return ""

    def bounds(self, shard_id: int) -> tuple[int, int]:
        """First and one past the last index along `dim` of a shard."""
        size = -(-self.global_size // self.n_shards)
        first, end = (min(self.global_size, i * size) for i in (shard_id, shard_id + 1))
        return first, end

    @property
    def offset(self) -> int:
        """Where this shard begins along `dim`."""
        return self.bounds(self.shard_id)[0]

    @property
    def local_size(self) -> int:
        """The extent of this shard along `dim`."""
        first, end = self.bounds(self.shard_id)
        return end - first

    @property
    def local_shape(self) -> tuple[int, ...]:
        """The shape of this shard. Raises FingerprintError where `global_shape` was not said."""
        return self.region().shape

    def indices(self) -> Words:
        """The row-major indices of this shard's elements in the global tensor, of the shape of the
        shard. Raises FingerprintError where `global_shape` was not said."""
        region = self.region()
        runs = region.runs()
        g = runs.bases[:, None] + np.arange(runs.length, dtype=np.uint64)[None, :]
        return g.reshape(region.shape)

    def siblings(self) -> tuple[TensorPartition, ...]:
        """All shards of this tensor, in order."""
        return tuple(self._shard(i) for i in range(self.n_shards))

    def extremes(self) -> tuple[TensorPartition, ...]:
        """The first shard and the last one that holds anything. Where both begin and end on whole
        words all shards do, since those between have the extent of the first."""
        size = -(-self.global_size // self.n_shards)
        last = -(-self.global_size // size) - 1 if size else 0
        return tuple(self._shard(i) for i in sorted({0, last}))

    def _shard(self, i: int) -> TensorPartition:
        return TensorPartition(
            self.dim, self.n_shards, i, self.global_size, self.global_shape, uneven=self.uneven
        )

    def region(self, local_shape: tuple[int, ...] | None = None) -> Region:
        """The box of this shard. `local_shape` is that of the data, and must be this shard's.

        Raises:
            FingerprintError: a shape that is not this shard's, or none where one is needed.
        """
        shape = self.global_shape
        if shape is None and local_shape is None:
            raise FingerprintError(
                f"shard {self.shard_id} of {self.n_shards}: give global_shape, the extent of dim "
                f"{self.dim} alone does not say where the elements are"
            )
        if shape is None and local_shape is not None:
            if self.dim >= len(local_shape):
                raise FingerprintError(
                    f"shard {self.shard_id} of {self.n_shards}: data of shape {list(local_shape)} "
                    f"has no dim {self.dim} (dims are counted from 0)"
                )
            shape = (*local_shape[: self.dim], self.global_size, *local_shape[self.dim + 1 :])
        assert shape is not None
        mine = (*shape[: self.dim], self.local_size, *shape[self.dim + 1 :])
        if local_shape is not None and tuple(local_shape) != mine:
            raise FingerprintError(
                f"shard {self.shard_id} of {self.n_shards} along dim {self.dim} of {list(shape)}: "
                f"expected shape {list(mine)}, got {list(local_shape)}"
            )
        start = tuple(self.offset if d == self.dim else 0 for d in range(len(shape)))
        return Region(shape, start, mine)

    def of_whole(self, shape: tuple[int, ...]) -> Region:
        """The box of this shard in a gathered tensor of this shape.

        Raises:
            FingerprintError: the shape is not that of the gathered tensor.
        """
        if self.global_shape is not None:
            fits = tuple(shape) == self.global_shape
        else:
            fits = self.dim < len(shape) and shape[self.dim] == self.global_size
        if not fits:
            expected = list(self.global_shape or ()) or f"{self.global_size} along dim {self.dim}"
            raise FingerprintError(f"gathered tensor: expected {expected}, got {list(shape)}")
        return self.region((*shape[: self.dim], self.local_size, *shape[self.dim + 1 :]))


@dataclass(frozen=True)
class DistributedContext:
    """Which layers one rank of a pipeline runs, counted from 1.

    Layers go round as `torch.chunk` splits: ceil(n_layers / world_size) each but the last ranks.

    Raises:
        FingerprintError: no such rank, or no number.
    """

    rank: int
    world_size: int
    seed: int = GAY_SEED
    n_layers: int = 32

    def __post_init__(self) -> None:
        for name in ("rank", "world_size", "seed", "n_layers"):
            what, least = f"DistributedContext: {name}", 0 if name == "n_layers" else None
            object.__setattr__(self, name, integer(getattr(self, name), what, least))
        if self.world_size < 1 or not 0 <= self.rank < self.world_size:
            raise FingerprintError(
                f"DistributedContext: rank {self.rank} is not one of {self.world_size} ranks"
            )

    @property
    def layer_range(self) -> range:
        """The layers of this rank; empty where there are fewer layers than ranks."""
        size = -(-self.n_layers // self.world_size)
        first = min(self.n_layers, self.rank * size)
        return range(first + 1, min(self.n_layers, first + size) + 1)

    def __contains__(self, layer: Any) -> bool:
        return layer in self.layer_range
