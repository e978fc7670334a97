"""Which module of the class interface has which name."""

from __future__ import annotations

_MODULES = {
    "attention": "FlashAttention RingAttention RingAttentionStep RingRotate",
    "checks": "DistributedVerifier",
    "comm": (
        "AllGather AllReduce AllReduceAsync AllToAll Broadcast COMM_STREAM COMPUTE_STREAM "
        "CollectiveOp DEFAULT_STREAM Gather Handle OverlapRegion Recv RecvAsync Reduce "
        "ReduceScatter Scatter Send SendAsync Stream Wait WaitAll"
    ),
    "compute": (
        "Add CrossEntropyLoss ElementWiseBinaryOp Embedding GELU LayerNorm MatMul Multiply RMSNorm "
        "ReLU Reshape SiLU Softmax Transpose"
    ),
    "deadlock": "DeadlockChecker",
    "pipeline": "ActivationTracker MicroBatch OpType PP1F1BSchedule Phase",
    "errors": "ProgramError RelationError SPMDConsistencyError",
    "executor": "DeviceState MultiDeviceExecutor",
    "gradients": "AutogradEngine CoreOp GradientCheckResult",
    "mesh": "DeviceMesh DeviceNode DeviceTopology Link",
    "order": "RaceReport RaceType TemporalVerifyResult verify_temporal",
    "parallel": (
        "Dropout ExpertCompute MoECombine MoEDispatch TopKGate ZeROGatherParam "
        "ZeROPartitionOptState ZeROScatterGrad"
    ),
    "precision": "AmaxUpdate Cast DtypeGuard FP8Dequantize FP8Quantize LossScale",
    "program": "IROp Program ir_to_str",
    "repairs": "PlacementAnalysis PlacementAnalyzer",
    "sharding": (
        "LocalSPMDType Partial Placement Replicate Shard ShardingSpec StridedShard TensorSlice "
        "compute_local_shape compute_tensor_slices padded_shape"
    ),
    "spmd": "Convert Reinterpret SPMDGuard",
    "synthesize": "SynthesisEngine SynthesisResult synthesize_parallel_program",
    "verdicts": "VerifyResult",
    "tensor": "TensorState",
}
HOME = {
    name: f"shardproof.compat.{module}"
    for module, names in _MODULES.items()
    for name in names.split()
}
"""Name -> the module that defines it."""
