"""Proves that a distributed program computes what a one-device program computes.

The core is in the submodules (`verifier.ir`, `verifier.verify`, ...). The names here are those of
the class interface, loaded when first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verifier.face.names import HOME

if TYPE_CHECKING:
    from verifier.face.attention import (
        FlashAttention,
        RingAttention,
        RingAttentionStep,
        RingRotate,
    )
    from verifier.face.checks import (
        DistributedVerifier,
    )
    from verifier.face.comm import (
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
    from verifier.face.compute import (
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
    from verifier.face.deadlock import (
        DeadlockChecker,
    )
    from verifier.face.errors import (
        ProgramError,
        RelationError,
        SPMDConsistencyError,
    )
    from verifier.face.executor import (
        DeviceState,
        MultiDeviceExecutor,
    )
    from verifier.face.gradients import (
        AutogradEngine,
        CoreOp,
        GradientCheckResult,
    )
    from verifier.face.mesh import (
        DeviceMesh,
        DeviceNode,
        DeviceTopology,
        Link,
    )
    from verifier.face.order import (
        RaceReport,
        RaceType,
        TemporalVerifyResult,
        verify_temporal,
    )
    from verifier.face.parallel import (
        Dropout,
        ExpertCompute,
        MoECombine,
        MoEDispatch,
        TopKGate,
        ZeROGatherParam,
        ZeROPartitionOptState,
        ZeROScatterGrad,
    )
    from verifier.face.pipeline import (
        ActivationTracker,
        MicroBatch,
        OpType,
        Phase,
        PP1F1BSchedule,
    )
    from verifier.face.precision import (
        AmaxUpdate,
        Cast,
        DtypeGuard,
        FP8Dequantize,
        FP8Quantize,
        LossScale,
    )
    from verifier.face.program import (
        IROp,
        Program,
        ir_to_str,
    )
    from verifier.face.repairs import (
        PlacementAnalysis,
        PlacementAnalyzer,
    )
    from verifier.face.sharding import (
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
    from verifier.face.spmd import (
        Convert,
        Reinterpret,
        SPMDGuard,
    )
    from verifier.face.synthesize import (
        SynthesisEngine,
        SynthesisResult,
        synthesize_parallel_program,
    )
    from verifier.face.tensor import (
        TensorState,
    )
    from verifier.face.verdicts import (
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
    from importlib import import_module

    value = getattr(import_module(HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
