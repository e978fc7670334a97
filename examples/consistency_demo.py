"""A program of the ranks is held against one of a single device that was written apart from it."""

from verifier import (
    AllGather,
    AllReduce,
    DeviceMesh,
    DistributedVerifier,
    LayerNorm,
    MatMul,
    MultiDeviceExecutor,
    Multiply,
    Program,
    ReduceScatter,
    Shard,
    ShardingSpec,
    SiLU,
    Softmax,
    TensorState,
    compute_local_shape,
)

mesh = DeviceMesh((2,), ("tp",))
one_device = Program(
    "gated mlp",
    [
        LayerNorm("x", "n"),
        MatMul("n", "gate", "g"),
        SiLU("g", "s"),
        MatMul("n", "up", "u"),
        Multiply("s", "u", "m"),
        MatMul("m", "down", "y"),
    ],
)
TENSORS = {"x": ((8, 16), 0), "gate": ((16, 32), 1), "up": ((16, 32), 1), "down": ((32, 16), 0)}


def check(name, *ops):
    program, executor = Program(name, list(ops)), MultiDeviceExecutor(mesh)
    for tensor, (shape, dim) in TENSORS.items():
        spec = ShardingSpec((Shard(dim),), mesh)
        local = compute_local_shape(shape, spec)
        executor.register_tensor(TensorState(tensor, shape, local, spec))
    final = executor.run_program(program)
    verifier = DistributedVerifier()
    results = verifier.verify_all(program, final, reference=one_device)
    print(f"{name}: {verifier.summary()}")
    if results[0].passed:
        print("  y:", results[0].details)
    return all(r.passed for r in results)


def gated(activation, *end):
    return [
        LayerNorm("x", "n"),
        AllGather("n", "all", 0),
        MatMul("all", "gate", "g"),
        activation("g", "s"),
        MatMul("all", "up", "u"),
        Multiply("s", "u", "m"),
        MatMul("m", "down", "p"),
        *end,
    ]


assert check("sequence parallel", *gated(SiLU, ReduceScatter("p", "y", 0)))
assert check("whole on every rank", *gated(SiLU, AllReduce("p", "y")))
assert not check("another activation", *gated(Softmax, AllReduce("p", "y")))
assert not check("the largest share", *gated(SiLU, ReduceScatter("p", "y", 0, "max")))
