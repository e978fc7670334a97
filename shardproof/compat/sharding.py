"""Placements, and what they say of shapes. Every layout is one of `verifier.kernel.layout`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from shardproof.compat.mesh import DeviceMesh
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.refute.scatter import scatter


class LocalSPMDType(Enum):
    """What the ranks along a mesh dim hold."""

    REPLICATE = "R"
    INVARIANT = "I"
    VARYING = "V"
    PARTIAL = "P"

    def gradient_type(self) -> LocalSPMDType:
        """The type of the cotangent: R and P change places."""
        swap = {LocalSPMDType.REPLICATE: "P", LocalSPMDType.PARTIAL: "R"}
        return LocalSPMDType(swap.get(self, self.value))


@dataclass(frozen=True)
class Shard:
    """Each rank holds one block of a tensor dim."""

    dim: int

    def __post_init__(self) -> None:
        if self.dim < 0:
            raise ValueError(f"Shard(dim={self.dim}): expected a dim of 0 or more")


@dataclass(frozen=True)
class StridedShard(Shard):
    """A tensor dim is split, but not in one block per rank."""


@dataclass(frozen=True)
class Replicate:
    """Every rank holds the whole."""


@dataclass(frozen=True)
class Partial:
    """The whole is the fold of what the ranks hold."""

    reduce: str = "sum"


Placement = Shard | Replicate | Partial


@dataclass(frozen=True)
class ShardingSpec:
    """One placement per mesh dim.

    Raises:
        ValueError: more or fewer placements than mesh dims.
    """

    placements: tuple[Placement, ...]
    mesh: DeviceMesh

    def __post_init__(self) -> None:
        object.__setattr__(self, "placements", tuple(self.placements))
        if len(self.placements) != self.mesh.ndim:
            raise ValueError(
                f"{len(self.placements)} placements for the mesh {self.mesh.core}, "
                f"expected {self.mesh.ndim}"
            )

    @property
    def partial(self) -> bool:
        return any(isinstance(p, Partial) for p in self.placements)

    def get_shard_dims(self) -> dict[int, list[int]]:
        """Tensor dim -> the mesh dims that split it."""
        out: dict[int, list[int]] = {}
        for index, p in enumerate(self.placements):
            if isinstance(p, Shard):
                out.setdefault(p.dim, []).append(index)
        return out

    def layout(self, shape: Sequence[int]) -> Layout:
        """The core's layout of a tensor of this shape.

        Raises:
            ValueError: a dim that its mesh dims do not divide, or that the tensor does not have.
        """
        if any(isinstance(p, StridedShard) for p in self.placements):
            raise ValueError("a strided split is a result, not a spec")
        named = zip(self.mesh.dim_names, self.mesh.shape, self.placements, strict=True)
        return from_placements(shape, [(n, size, _written(p)) for n, size, p in named])

    def __str__(self) -> str:
        pairs = zip(self.mesh.dim_names, self.placements, strict=True)
        return " ".join(f"{n}={_written(p)}" for n, p in pairs)


def _written(p: Placement) -> str:
    if isinstance(p, Shard):
        return f"S({p.dim})"
    if isinstance(p, Partial):
        return f"P({p.reduce})"
    return "R"


def spec_of(layout: Layout, mesh: DeviceMesh) -> ShardingSpec:
    """The placements that say most of a layout; a split not in one block per rank is strided."""
    out: list[Placement] = []
    for name in mesh.dim_names:
        word = layout.placement(name)
        if word.startswith("Partial"):
            out.append(Partial(word[8:-1]))
        elif word == "Replicate":
            out.append(Replicate())
        else:
            out.append(Shard(int(word[word.index("(") + 1 : -1])))
    spec = ShardingSpec(tuple(out), mesh)
    try:
        plain = spec.layout(layout.global_shape) == layout
    except ValueError:
        plain = False
    if plain:
        return spec
    strided = (StridedShard(p.dim) if isinstance(p, Shard) else p for p in out)
    return ShardingSpec(tuple(strided), mesh)


def compute_local_shape(global_shape: Sequence[int], spec: ShardingSpec) -> tuple[int, ...]:
    """The shape on each rank.

    Raises:
        ValueError: a dim that its mesh dims do not divide; `padded_shape` gives one that they do.
    """
    return spec.layout(global_shape).local_shape


def padded_shape(global_shape: Sequence[int], spec: ShardingSpec) -> tuple[int, ...]:
    """The least shape, at least this one, that the mesh dims divide.

    Tables whose rows do not divide, such as a vocabulary of 50257, are padded on one device too.
    """
    out = list(global_shape)
    for dim, mesh_dims in spec.get_shard_dims().items():
        parts = int(np.prod([spec.mesh.shape[i] for i in mesh_dims]))
        out[dim] = -(-out[dim] // parts) * parts
    return tuple(out)


@dataclass(frozen=True)
class TensorSlice:
    """The block of a tensor on one device."""

    device_id: int
    global_shape: tuple[int, ...]
    local_shape: tuple[int, ...]
    offsets: tuple[int, ...]

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        return tuple((o, o + n) for o, n in zip(self.offsets, self.local_shape, strict=True))

    def range_str(self) -> str:
        return "[" + ", ".join(f"{a}:{b}" for a, b in self.ranges) + "]"


def compute_tensor_slices(
    global_shape: Sequence[int], spec: ShardingSpec
) -> dict[int, TensorSlice]:
    """Device id -> the block it holds."""
    shape, mesh = tuple(global_shape), spec.mesh
    layout = spec.layout(shape).with_partial(())
    starts: list[tuple[int, ...]] = [() for _ in mesh.ids]
    for dim, extent in enumerate(shape):
        line = Layout((layout.dims[dim],))
        index = np.arange(extent)
        pieces = scatter(index, line, mesh.core, Floats(), np.random.default_rng(0))
        starts = [(*s, int(p[0]) if p.size else 0) for s, p in zip(starts, pieces, strict=True)]
    return {
        device: TensorSlice(device, shape, layout.local_shape, start)
        for device, start in zip(mesh.ids, starts, strict=True)
    }
