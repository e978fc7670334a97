"""Local types R, I, V, P: what they allow, and the backward that goes with each collective."""

from verifier import (
    AllReduce,
    Convert,
    DeviceMesh,
    DistributedVerifier,
    LocalSPMDType,
    MatMul,
    MultiDeviceExecutor,
    Program,
    ProgramError,
    Replicate,
    Shard,
    ShardingSpec,
    SPMDConsistencyError,
    SPMDGuard,
    TensorState,
    Transpose,
    compute_local_shape,
)

R, INVARIANT, V, P = LocalSPMDType
for kind in LocalSPMDType:
    print(f"{kind.name} ({kind.value}): its gradient is {kind.gradient_type().value}")
SPMDGuard.check_multiply(R, P)
SPMDGuard.check_allreduce_input(P)
for forbidden in (
    lambda: SPMDGuard.check_multiply(P, P),
    lambda: SPMDGuard.check_allreduce_input(R),
    lambda: SPMDGuard.check_allreduce_input(INVARIANT),
):
    try:
        forbidden()
    except SPMDConsistencyError as error:
        print(error)
    else:
        raise AssertionError("accepted")

mesh = DeviceMesh((2,), ("tp",))


def states(x, w):
    executor = MultiDeviceExecutor(mesh)
    for name, shape, placement in (("x", (8, 16), x), ("w", (16, 32), w)):
        spec = ShardingSpec((placement,), mesh)
        local = compute_local_shape(shape, spec)
        executor.register_tensor(TensorState(name, shape, local, spec))
    return executor


try:
    states(Shard(1), Shard(0)).run_program(
        Program("types", [MatMul("x", "w", "p"), Convert("p", "y", "P", "R")])
    )
except ProgramError as error:
    print(error)

print("\nrow parallel: a sum forward, nothing backward")
forward = Program("row", [MatMul("x", "w", "p"), AllReduce("p", "y")])
final = states(Shard(1), Shard(0)).run_program(forward)
identity = [Transpose("w", "wt"), MatMul("grad_y", "wt", "grad_x")]
summed = [AllReduce("grad_y", "g"), Transpose("w", "wt"), MatMul("g", "wt", "grad_x")]
right = DistributedVerifier().verify_gradient_duality(forward, Program("bwd", identity), final)
wrong = DistributedVerifier().verify_gradient_duality(forward, Program("bwd", summed), final)
print(f"{right}\n{wrong}")
assert right.passed
assert not wrong.passed

print("\ncolumn parallel: nothing forward, a sum backward")
forward = Program("column", [MatMul("x", "w", "y")])
final = states(Replicate(), Shard(1)).run_program(forward)
alone = [Transpose("w", "wt"), MatMul("grad_y", "wt", "grad_x")]
summed = [Transpose("w", "wt"), MatMul("grad_y", "wt", "g"), AllReduce("g", "grad_x")]
right = DistributedVerifier().verify_gradient_duality(forward, Program("bwd", summed), final)
wrong = DistributedVerifier().verify_gradient_duality(forward, Program("bwd", alone), final)
print(f"{right}\n{wrong}")
assert right.passed
assert not wrong.passed
