"""Megatron's MLP: the first weight split by columns, the second by rows, one all-reduce."""

from verifier import (
    GELU,
    Add,
    AllReduce,
    DeviceMesh,
    DistributedVerifier,
    MatMul,
    MultiDeviceExecutor,
    Program,
    Replicate,
    Shard,
    ShardingSpec,
    TensorState,
    compute_local_shape,
)

mesh = DeviceMesh((4,), ("tp",))
TENSORS = {
    "x": ((8, 16), Replicate()),
    "up": ((16, 64), Shard(1)),
    "down": ((64, 16), Shard(0)),
    "bias": ((16,), Replicate()),
}


def check(name, *ops):
    program, executor = Program(name, list(ops)), MultiDeviceExecutor(mesh)
    for tensor, (shape, placement) in TENSORS.items():
        spec = ShardingSpec((placement,), mesh)
        local = compute_local_shape(shape, spec)
        executor.register_tensor(TensorState(tensor, shape, local, spec))
    final = executor.run_program(program)
    verifier = DistributedVerifier()
    results = verifier.verify_all(program, final)
    print(f"{name}: {verifier.summary()}\n")
    return all(r.passed for r in results)


assert check(
    "bias after the sum",
    MatMul("x", "up", "h"),
    GELU("h", "a"),
    MatMul("a", "down", "p"),
    AllReduce("p", "s"),
    Add("s", "bias", "y"),
)
assert not check(
    "bias before the sum: added by every rank",
    MatMul("x", "up", "h"),
    GELU("h", "a"),
    MatMul("a", "down", "p"),
    Add("p", "bias", "q"),
    AllReduce("q", "y"),
)
