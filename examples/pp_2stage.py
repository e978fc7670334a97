"""Two pipeline stages: what is sent, who receives it, and the 1F1B schedule around it."""

from verifier import (
    DeadlockChecker,
    DeviceMesh,
    DistributedVerifier,
    MatMul,
    MultiDeviceExecutor,
    PP1F1BSchedule,
    Program,
    Recv,
    Replicate,
    Send,
    ShardingSpec,
    TensorState,
)

mesh = DeviceMesh((2,), ("pp",))
whole = ShardingSpec((Replicate(),), mesh)
one_device = Program("model", [MatMul("x", "w0", "h"), MatMul("h", "w1", "y")])


def check(name, *ops):
    program, executor = Program(name, list(ops)), MultiDeviceExecutor(mesh)
    for tensor, shape, stages in (
        ("x", (8, 16), [0, 1]),
        ("w0", (16, 16), [0]),
        ("w1", (16, 4), [1]),
    ):
        executor.register_tensor(TensorState(tensor, shape, shape, whole), stages)
    final = executor.run_program(program)
    verifier = DistributedVerifier()
    results = verifier.verify_all(program, final, reference=one_device, output_names=["y"])
    print(f"{name}: {verifier.summary()}")
    return all(r.passed for r in results)


first, send, recv = MatMul("x", "w0", "h"), Send("h", "m", 0, 1), Recv("m", "r", 0, 1)
assert check("stage 1 takes what stage 0 sent", first, send, recv, MatMul("r", "w1", "y"))
assert not check("stage 1 takes the input", first, send, recv, MatMul("x", "w1", "y"))
assert not check("a message too many", first, send, send, recv, MatMul("r", "w1", "y"))

schedule = PP1F1BSchedule(num_stages=2, num_microbatches=4)
steps = schedule.generate()
print("\n1F1B:", DeadlockChecker().verify_schedule(steps), "kept:", schedule.peak_activations())
steps[-2].sends.clear()
ok, errors = DeadlockChecker().verify_schedule(steps)
print("a gradient that is never sent:", errors[0])
assert not ok
