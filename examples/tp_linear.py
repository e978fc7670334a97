"""A linear layer whose input is split by columns and whose weight by rows, on two ranks."""

from verifier import (
    AllReduce,
    DeviceMesh,
    DistributedVerifier,
    MatMul,
    MultiDeviceExecutor,
    Program,
    Shard,
    ShardingSpec,
    TensorState,
    compute_local_shape,
)

mesh = DeviceMesh(shape=(2,), dim_names=("tp",))


def tensor(name, shape, *placements):
    spec = ShardingSpec(placements, mesh)
    return TensorState(name, shape, compute_local_shape(shape, spec), spec)


def check(program):
    executor = MultiDeviceExecutor(mesh)
    executor.register_tensor(tensor("x", (8, 16), Shard(1)))
    executor.register_tensor(tensor("w", (16, 32), Shard(0)))
    verifier = DistributedVerifier()
    results = verifier.verify_all(program, executor.run_program(program))
    print(f"{program.name}: {verifier.summary()}\n")
    return all(r.passed for r in results)


right = Program("with all-reduce", [MatMul("x", "w", "y_partial"), AllReduce("y_partial", "y")])
wrong = Program("without", [MatMul("x", "w", "y")])
mean = Program("mean", [MatMul("x", "w", "y_partial"), AllReduce("y_partial", "y", "mean")])

assert check(right)
assert not check(wrong)
assert not check(mean)
