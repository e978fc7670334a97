"""Context parallel attention: the sequence is split, so keys and values must go around.

First as one op of the class interface, whose meaning on the ranks is attention over all blocks.
Then the ring itself in the core language: at each step a rank takes in the block at hand with an
online softmax, and passes keys and values on.
"""

from fractions import Fraction

from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.verdict import Counterexample, Proof
from verifier import (
    AllGather,
    DeviceMesh,
    DistributedVerifier,
    FlashAttention,
    MultiDeviceExecutor,
    Problem,
    Program,
    RingAttention,
    Shard,
    ShardingSpec,
    TensorState,
    compute_local_shape,
    verify,
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
    "masked by the place on the rank",
    AllGather("k", "keys", 1),
    AllGather("v", "values", 1),
    FlashAttention("q", "keys", "values", "y", **scaled),
)


def ring(ranks, turn_values=True, steps=None):
    """Attention around a ring of ranks, `[batch, heads, 4 / ranks rows, 2]` on each."""
    rows = 4 // ranks
    b = Builder("ring", Mesh.of(cp=ranks))
    q, k, v = (b.input(name, TensorType((1, 1, rows, 2))) for name in "qkv")
    state = (
        b.add("full", shape=(1, 1, rows, 1), value=Fraction(-(10**30))),
        b.add("full", shape=(1, 1, rows, 1), value=Fraction(0)),
        b.add("full", shape=(1, 1, rows, 2), value=Fraction(0)),
    )
    for step in range(steps or ranks):
        if step:
            k = b.add("ring_shift", k, mesh_dim="cp", shift=1)
            v = b.add("ring_shift", v, mesh_dim="cp", shift=1) if turn_values else v
        state = b.add_node("attention_step", [*state, q, k, v], {"scale": Fraction(1, 2)})
    b.output(b.add_node("attention_end", state)[0], path="y")
    return b.build()


def whole():
    b = Builder("whole")
    q, k, v = (b.input(name, TensorType((1, 1, 4, 2))) for name in "qkv")
    b.output(b.add("sdpa", q, k, v, scale=Fraction(1, 2)), path="y")
    return b.build()


def decide(name, distributed, ranks):
    split = from_placements((1, 1, 4, 2), [("cp", ranks, "S(2)")])
    contract = Contract(dict.fromkeys("qkv", split), {"output:y": split})
    verdict = verify(Problem(whole(), distributed, contract))
    print(f"{name}: {type(verdict).__name__}")
    if isinstance(verdict, Counterexample):
        w = verdict.witness
        print(f"  on rank {w.rank} at {w.index}: expected {w.expected:.4g}, got {w.got:.4g}")
    return verdict


assert isinstance(decide("ring of 2", ring(2), 2), Proof)
assert isinstance(decide("ring of 4", ring(4), 4), Proof)
assert isinstance(decide("values stay", ring(2, turn_values=False), 2), Counterexample)
assert isinstance(decide("a step too few", ring(4, steps=3), 4), Counterexample)
