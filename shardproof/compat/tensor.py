"""`TensorState`: a tensor of the ranks, its whole shape, its shape on a rank, its placements."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from shardproof.compat.errors import RelationError
from shardproof.compat.sharding import LocalSPMDType, Partial, Replicate, ShardingSpec, StridedShard

FLOAT_NAMES = {
    "fp64": "f64", "float64": "f64", "fp32": "f32", "float32": "f32", "fp16": "f16",
    "float16": "f16", "bf16": "bf16", "bfloat16": "bf16", "fp8e4m3": "f16", "fp8e5m2": "f16",
    "int64": "i64", "int32": "i32", "bool": "bool",
}  # fmt: skip
"""dtype names -> those of the core; 8-bit floats are floats there."""


@dataclass(eq=False)
class TensorState:
    """A tensor of the ranks.

    Raises:
        ValueError: a local shape that is not the one the placements give.
    """

    name: str
    global_shape: tuple[int, ...]
    local_shape: tuple[int, ...]
    sharding: ShardingSpec | None
    """None: no relation to the one-device program was found; `relation` says why."""
    expr: str = ""
    dtype: str | None = None
    local_type: LocalSPMDType | None = None
    requires_grad: bool = False
    grad: TensorState | None = None
    grad_name: str = ""
    stage: int | None = None
    microbatch_id: int | None = None
    is_activation: bool = False
    cp_rank: int | None = None
    ring_step: int | None = None
    zero_stage: int | None = None
    param_group: str | None = None
    fp8_scale_expr: str | None = None
    expert_id: int | None = None
    num_experts: int | None = None
    expert_capacity: int | None = None
    _async_handle: str | None = None
    devices: tuple[int, ...] = ()
    """The devices that hold it, where not all do."""
    relation: str = field(default="", repr=False)
    """What the core found this value to be, in words."""

    def __post_init__(self) -> None:
        self.global_shape, self.local_shape = tuple(self.global_shape), tuple(self.local_shape)
        spec = self.sharding
        if spec is None or any(isinstance(p, StridedShard) for p in spec.placements):
            return
        want = spec.layout(self.global_shape).local_shape
        if self.local_shape != want:
            raise ValueError(
                f"tensor {self.name}: global shape {list(self.global_shape)} as {spec} is "
                f"{list(want)} on each rank, got {list(self.local_shape)}"
            )

    @property
    def spec(self) -> ShardingSpec:
        """The placements.

        Raises:
            RelationError: there are none, because the value has no relation.
        """
        if self.sharding is None:
            raise RelationError(f"tensor {self.name} has no placement: {self.relation}")
        return self.sharding

    @property
    def partial(self) -> bool:
        """Whether a reduction over some mesh dim is still to be done."""
        return self.spec.partial

    @property
    def is_replicated(self) -> bool:
        """Whether every device holds the whole."""
        return not self.devices and all(isinstance(p, Replicate) for p in self.spec.placements)

    @property
    def spmd_type(self) -> LocalSPMDType:
        """`local_type`, or the one that the placements amount to."""
        if self.local_type is not None:
            return self.local_type
        if any(isinstance(p, Partial) for p in self.spec.placements):
            return LocalSPMDType.PARTIAL
        return LocalSPMDType.REPLICATE if self.is_replicated else LocalSPMDType.VARYING

    @property
    def is_partial(self) -> bool:
        return self.spmd_type is LocalSPMDType.PARTIAL

    @property
    def is_replicate(self) -> bool:
        return self.spmd_type is LocalSPMDType.REPLICATE

    @property
    def is_invariant(self) -> bool:
        return self.spmd_type is LocalSPMDType.INVARIANT

    @property
    def is_varying(self) -> bool:
        return self.spmd_type is LocalSPMDType.VARYING

    @property
    def gradient_type(self) -> LocalSPMDType:
        return self.spmd_type.gradient_type()

    @property
    def is_async_in_flight(self) -> bool:
        return self._async_handle is not None

    @property
    def is_fp16(self) -> bool:
        return self.dtype in ("fp16", "float16")

    @property
    def is_bf16(self) -> bool:
        return self.dtype in ("bf16", "bfloat16")

    @property
    def is_fp32(self) -> bool:
        return self.dtype in ("fp32", "float32")

    @property
    def is_fp8e4m3(self) -> bool:
        return self.dtype == "fp8e4m3"

    @property
    def is_fp8e5m2(self) -> bool:
        return self.dtype == "fp8e5m2"

    @property
    def is_fp8(self) -> bool:
        return self.is_fp8e4m3 or self.is_fp8e5m2

    def with_dtype(self, dtype: str | None) -> TensorState:
        return replace(self, dtype=dtype)

    def with_fp8_scale(self, scale_expr: str | None) -> TensorState:
        return replace(self, fp8_scale_expr=scale_expr)

    def with_local_type(self, local_type: LocalSPMDType | None) -> TensorState:
        return replace(self, local_type=local_type)

    def with_name(self, name: str) -> TensorState:
        return replace(self, name=name)

    def grad_tensor(self, name: str = "") -> TensorState:
        """The state of the cotangent: same shapes; a sharded one sharded alike, R as P, P as R."""
        swap = {"R": Partial(), "P": Replicate()}
        placements = tuple(
            swap["R" if isinstance(p, Replicate) else "P"]
            if isinstance(p, (Replicate, Partial))
            else p
            for p in self.spec.placements
        )
        spec = ShardingSpec(placements, self.spec.mesh)
        called = name or self.grad_name or f"grad_{self.name}"
        kind = self.local_type.gradient_type() if self.local_type else None
        return replace(self, name=called, sharding=spec, local_type=kind, grad=None)

    def _key(self) -> tuple[Any, ...]:
        return (self.name, self.global_shape, self.local_shape, self.sharding, self.dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorState) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())
