"""Context parallel attention: the sequence is split, so keys and values must go around."""

from verifier import (
    AllGather,
    DeviceMesh,
    DistributedVerifier,
    FlashAttention,
    MultiDeviceExecutor,
    Program,
    RingAttention,
    RingAttentionStep,
    RingRotate,
    Shard,
    ShardingSpec,
    TensorState,
    compute_local_shape,
)

mesh = DeviceMesh((2,), ("cp",))
spec = ShardingSpec((Shard(1),), mesh)
shape = (2, 8, 2, 4)
one_device = Program("attention", [FlashAttention("q", "k", "v", "y", 0.5, causal=True)])


def check(name, *ops):
    program, executor = Program(name, list(ops)), MultiDeviceExecutor(mesh)
    for tensor in "qkv":
        local = compute_local_shape(shape, spec)
        executor.register_tensor(TensorState(tensor, shape, local, spec))
    final = executor.run_program(program)
    verifier = DistributedVerifier()
    results = verifier.verify_all(program, final, reference=one_device)
    print(f"{name}: {verifier.summary()}\n")
    return all(r.passed for r in results)


scaled = {"softmax_scale": 0.5, "causal": True}
assert check("around the ring", RingAttention("q", "k", "v", "y", ring_size=2, **scaled))
assert not check("every rank on its own", FlashAttention("q", "k", "v", "y", **scaled))
assert not check(
    "keys go around, values stay",
    RingRotate("k", "k1", ring_size=2),
    RingAttentionStep("q", "k1", "v", "y", ring_step=1, ring_size=2, **scaled),
)
assert not check(
    "masked by the place on the rank",
    AllGather("k", "keys", 1),
    AllGather("v", "values", 1),
    FlashAttention("q", "keys", "values", "y", **scaled),
)
