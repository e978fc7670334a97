"""The class interface: named tensors, placements, ops as classes, over the core.

There is one rule book, that of the core. Every op class says what it means on one device and what
ranks run, as ops of the core (`program.py`); a program is lowered to a one-device program, a
program of the ranks and a contract (`lowering.py`), and every answer is a verdict on those.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shardproof.compat.names import HOME

if TYPE_CHECKING:
    from shardproof.compat.attention import (
        FlashAttention,
        RingAttention,
        RingAttentionStep,
        RingRotate,
    )
    from shardproof.compat.checks import (
        DistributedVerifier,
    )
    from shardproof.compat.comm import (
        COMM_STREAM,
        COMPUTE_STREAM,
        DEFAULT_STREAM,
        AllGather,
        AllReduce,
        AllReduceAsync,
        AllToAll,
        Broadcast,
        CollectiveOp,
        Gather,
        Handle,
        OverlapRegion,
        Recv,
        RecvAsync,
        Reduce,
        ReduceScatter,
        Scatter,
        Send,
        SendAsync,
        Stream,
        Wait,
        WaitAll,
    )
    from shardproof.compat.compute import (
        GELU,
        Add,
        CrossEntropyLoss,
        ElementWiseBinaryOp,
        Embedding,
        LayerNorm,
        MatMul,
        Multiply,
        ReLU,
        Reshape,
        RMSNorm,
        SiLU,
        Softmax,
        Transpose,
    )
    from shardproof.compat.deadlock import (
        DeadlockChecker,
    )
    from shardproof.compat.errors import (
        ProgramError,
        RelationError,
        SPMDConsistencyError,
    )
    from shardproof.compat.executor import (
        DeviceState,
        MultiDeviceExecutor,
    )
    from shardproof.compat.gradients import (
        AutogradEngine,
        CoreOp,
        GradientCheckResult,
    )
    from shardproof.compat.mesh import (
        DeviceMesh,
        DeviceNode,
        DeviceTopology,
        Link,
    )
    from shardproof.compat.order import (
        RaceReport,
        RaceType,
        TemporalVerifyResult,
        verify_temporal,
    )
    from shardproof.compat.parallel import (
        Dropout,
        ExpertCompute,
        MoECombine,
        MoEDispatch,
        TopKGate,
        ZeROGatherParam,
        ZeROPartitionOptState,
        ZeROScatterGrad,
    )
    from shardproof.compat.pipeline import (
        ActivationTracker,
        MicroBatch,
        OpType,
        Phase,
        PP1F1BSchedule,
    )
    from shardproof.compat.precision import (
        AmaxUpdate,
        Cast,
        DtypeGuard,
        FP8Dequantize,
        FP8Quantize,
        LossScale,
    )
    from shardproof.compat.program import (
        IROp,
        Program,
        ir_to_str,
    )
    from shardproof.compat.repairs import (
        PlacementAnalysis,
        PlacementAnalyzer,
    )
    from shardproof.compat.sharding import (
        LocalSPMDType,
        Partial,
        Placement,
        Replicate,
        Shard,
        ShardingSpec,
        StridedShard,
        TensorSlice,
        compute_local_shape,
        compute_tensor_slices,
        padded_shape,
    )
    from shardproof.compat.spmd import (
        Convert,
        Reinterpret,
        SPMDGuard,
    )
    from shardproof.compat.synthesize import (
        SynthesisEngine,
        SynthesisResult,
        synthesize_parallel_program,
    )
    from shardproof.compat.tensor import (
        TensorState,
    )
    from shardproof.compat.verdicts import (
        VerifyResult,
    )

__all__ = [
    "COMM_STREAM",
    "COMPUTE_STREAM",
    "DEFAULT_STREAM",
    "GELU",
    "ActivationTracker",
    "Add",
    "AllGather",
    "AllReduce",
    "AllReduceAsync",
    "AllToAll",
    "AmaxUpdate",
    "AutogradEngine",
    "Broadcast",
    "Cast",
    "CollectiveOp",
    "Convert",
    "CoreOp",
    "CrossEntropyLoss",
    "DeadlockChecker",
    "DeviceMesh",
    "DeviceNode",
    "DeviceState",
    "DeviceTopology",
    "DistributedVerifier",
    "Dropout",
    "DtypeGuard",
    "ElementWiseBinaryOp",
    "Embedding",
    "ExpertCompute",
    "FP8Dequantize",
    "FP8Quantize",
    "FlashAttention",
    "Gather",
    "GradientCheckResult",
    "Handle",
    "IROp",
    "LayerNorm",
    "Link",
    "LocalSPMDType",
    "LossScale",
    "MatMul",
    "MicroBatch",
    "MoECombine",
    "MoEDispatch",
    "MultiDeviceExecutor",
    "Multiply",
    "OpType",
    "OverlapRegion",
    "PP1F1BSchedule",
    "Partial",
    "Phase",
    "Placement",
    "PlacementAnalysis",
    "PlacementAnalyzer",
    "Program",
    "ProgramError",
    "RMSNorm",
    "RaceReport",
    "RaceType",
    "ReLU",
    "Recv",
    "RecvAsync",
    "Reduce",
    "ReduceScatter",
    "Reinterpret",
    "RelationError",
    "Replicate",
    "Reshape",
    "RingAttention",
    "RingAttentionStep",
    "RingRotate",
    "SPMDConsistencyError",
    "SPMDGuard",
    "Scatter",
    "Send",
    "SendAsync",
    "Shard",
    "ShardingSpec",
    "SiLU",
    "Softmax",
    "Stream",
    "StridedShard",
    "SynthesisEngine",
    "SynthesisResult",
    "TemporalVerifyResult",
    "TensorSlice",
    "TensorState",
    "TopKGate",
    "Transpose",
    "VerifyResult",
    "Wait",
    "WaitAll",
    "ZeROGatherParam",
    "ZeROPartitionOptState",
    "ZeROScatterGrad",
    "compute_local_shape",
    "compute_tensor_slices",
    "ir_to_str",
    "padded_shape",
    "synthesize_parallel_program",
    "verify_temporal",
]


def __getattr__(name: str) -> Any:
    if name not in HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOME[name]), name)
