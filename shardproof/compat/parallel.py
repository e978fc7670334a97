"""Ops of ZeRO, of mixtures of experts, and dropout by rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from shardproof.compat.comm import CollectiveOp
from shardproof.compat.compute import exact, matmul
from shardproof.compat.errors import ProgramError
from shardproof.compat.program import IROp, Ranks
from shardproof.compat.tensor import TensorState
from shardproof.verifier.kernel.layout import Atom, Dim
from shardproof.verifier.kernel.ops.create import row_major
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import Affine, TensorType


@dataclass
class Dropout(IROp):
    """Dropout whose mask is a function of a seed.

    `rng` says how ranks draw: `global` by the place in the whole tensor, `local` by the place in
    the local one with the same seed everywhere, `per_rank` with a seed of each rank's own.
    """

    x: str
    output: str
    p: float = 0.1
    seed: str = "dropout_seed"
    rng: str = "global"
    stream: int = 0
    reads: ClassVar[tuple[str, ...]] = ("x", "seed")
    given: ClassVar[tuple[tuple[str, TensorType], ...]] = (("seed", TensorType((), "i64")),)

    def one_device(self, b: Builder, *operands: str) -> str:
        x, seed = operands
        return b.add("dropout", x, seed, p=exact(self.p), stream=self.stream)

    def on_ranks(self, at: Ranks, *operands: str) -> str:
        x, seed = operands
        layout, local = at.layouts.get(x), at.b.types[x].shape
        strides, offset = row_major(local), Affine()
        if self.rng == "global" and layout is not None:
            strides, offset = _places(layout.dims, layout.global_shape)
        elif self.rng == "per_rank":
            step = math.prod(local)
            sizes = dict(at.mesh.core.dims)
            offset = Affine.of(0, dict.fromkeys(sizes, step))
        elif self.rng not in ("global", "local"):
            raise ProgramError(f"{self}: rng is global, local or per_rank")
        p = exact(self.p)
        more: dict[str, tuple[int, ...] | Affine] = {"strides": strides, "offset": offset}
        return at.b.add("dropout", x, seed, p=p, stream=self.stream, **more)


def _places(dims: Sequence[Dim], shape: Sequence[int]) -> tuple[tuple[int, ...], Affine]:
    """Strides and offset of a piece whose dims are each one run of free entries."""
    strides: list[int] = []
    moving: dict[str, int] = {}
    for dim, stride in zip(dims, row_major(shape), strict=True):
        inner, own = 1, 1
        for atom in reversed(dim or (Atom(1),)):
            if atom.mesh_dim is None:
                own = inner
            else:
                moving[atom.mesh_dim] = stride * inner
            inner *= atom.size
        strides.append(stride * own)
    return tuple(strides), Affine.of(0, moving)


@dataclass
class ZeROGatherParam(CollectiveOp):
    """Stage 3: a parameter from its blocks."""

    gather_dim: int
    zero_stage: int = 3
    mesh_dim: str | None = None
    core: ClassVar[str] = "all_gather"


@dataclass
class ZeROScatterGrad(CollectiveOp):
    """Stage 2: each rank gets its block of the sum of the gradients."""

    scatter_dim: int
    zero_stage: int = 2
    mesh_dim: str | None = None
    core: ClassVar[str] = "reduce_scatter"


@dataclass
class ZeROPartitionOptState(CollectiveOp):
    """Stage 1: each rank keeps its block of a state that all hold. Nothing is sent."""

    partition_dim: int
    zero_stage: int = 1
    mesh_dim: str | None = None
    communicates: ClassVar[bool] = False
    core: ClassVar[str] = "shard_slice"


@dataclass
class TopKGate(IROp):
    """Router: `output` holds each token's weight of every expert, `indices_output` a 1 at the
    chosen ones. Softmax over all experts, the k largest kept, their weights made to sum to 1."""

    x: str
    gate_weight: str
    output: str
    indices_output: str
    num_experts: int
    top_k: int = 1
    capacity_factor: float = 1.0
    reads: ClassVar[tuple[str, ...]] = ("x", "gate_weight")
    writes: ClassVar[tuple[str, ...]] = ("output", "indices_output")

    def one_device(self, b: Builder, *operands: str) -> tuple[str, str]:
        experts = b.types[operands[1]].shape[-1]
        if experts != self.num_experts:
            raise ProgramError(f"{self}: {self.gate_weight} scores {experts} experts on a rank")
        gates, mask, _ = b.add_node("top_k_gate", operands, {"k": self.top_k})
        return gates, mask


@dataclass
class MoEDispatch(CollectiveOp):
    """Tokens to their experts: split along `split_dim` before, along `concat_dim` after."""

    num_experts: int
    split_dim: int
    concat_dim: int
    expert_capacity: int | None = None
    mesh_dim: str | None = None
    core: ClassVar[str] = "all_to_all"


@dataclass
class MoECombine(CollectiveOp):
    """Results of the experts back to their tokens: the reverse of a dispatch."""

    num_experts: int
    split_dim: int
    concat_dim: int
    mesh_dim: str | None = None
    core: ClassVar[str] = "all_to_all"


@dataclass
class ExpertCompute(IROp):
    """The network of experts, token by token: `gelu(x w)`.

    With `expert_id` all tokens go to one expert, whose weight is a tensor `expert{id}` of its own.
    With `weight` the leading dim of `x` and of that tensor runs over the experts.
    """

    x: str
    output: str
    expert_id: int | None
    num_experts: int
    weight: str = ""
    reads: ClassVar[tuple[str, ...]] = ("x", "weight")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weight:
            return
        if self.expert_id is None or not 0 <= self.expert_id < self.num_experts:
            raise ProgramError(f"{self}: an expert of {self.num_experts}, or a weight, is expected")
        self.weight = f"expert{self.expert_id}"

    def needs(self, states: Sequence[TensorState]) -> TensorType:
        """The type of the expert's own weight."""
        width = states[0].global_shape[-1]
        return TensorType((width, width))

    def one_device(self, b: Builder, *operands: str) -> str:
        return b.add("gelu", matmul(b, *operands))
