"""One layer of GPT-2 as Megatron runs it, on two data parallel groups of two ranks each.

Attention is split by heads and the MLP by columns, then rows; the norms run on every rank of a
group. Sizes are those of GPT-2 small but for sequence and batch. Queries, keys and values have
weights of their own: one fused weight cut in two would give a rank the wrong columns.
"""

from verifier import (
    GELU,
    Add,
    AllReduce,
    DeviceMesh,
    DistributedVerifier,
    Embedding,
    FlashAttention,
    LayerNorm,
    MatMul,
    MultiDeviceExecutor,
    Program,
    Replicate,
    Reshape,
    Shard,
    ShardingSpec,
    TensorState,
    compute_local_shape,
)

mesh = DeviceMesh((2, 2), ("dp", "tp"))
B, S, H, HEADS, V = 2, 4, 48, 4, 64
BATCH, COLUMNS, ROWS = (Shard(0), Replicate()), (Replicate(), Shard(1)), (Replicate(), Shard(0))
TENSORS = {
    "ids": ((B, S), BATCH),
    "table": ((V, H), ROWS),
    **dict.fromkeys(("wq", "wk", "wv"), ((H, H), COLUMNS)),
    "wo": ((H, H), ROWS),
    "up": ((H, 4 * H), COLUMNS),
    "down": ((4 * H, H), ROWS),
}


def heads(name):
    return [
        MatMul("n1", f"w{name}", f"{name}_flat"),
        Reshape(f"{name}_flat", name, (B, S, HEADS, H // HEADS)),
    ]


def layer(first_sum=True):
    return [
        Embedding("ids", "table", "e_part"),
        AllReduce("e_part", "e", mesh_dim="tp"),
        LayerNorm("e", "n1"),
        *(op for name in "qkv" for op in heads(name)),
        FlashAttention("q", "k", "v", "a", softmax_scale=0.125, causal=True),
        Reshape("a", "a_flat", (B, S, H)),
        MatMul("a_flat", "wo", "o_part"),
        *([AllReduce("o_part", "o", mesh_dim="tp")] if first_sum else []),
        Add("o" if first_sum else "o_part", "e", "r"),
        LayerNorm("r", "n2"),
        MatMul("n2", "up", "h"),
        GELU("h", "g"),
        MatMul("g", "down", "d_part"),
        AllReduce("d_part", "d", mesh_dim="tp"),
        Add("d", "r", "y"),
    ]


def check(name, ops):
    program, executor = Program(name, ops), MultiDeviceExecutor(mesh)
    for tensor, (shape, placements) in TENSORS.items():
        spec = ShardingSpec(placements, mesh)
        local = compute_local_shape(shape, spec)
        executor.register_tensor(TensorState(tensor, shape, local, spec))
    final = executor.run_program(program)
    verifier = DistributedVerifier()
    results = verifier.verify_all(program, final)
    print(f"{name}: {verifier.summary()}\n")
    return all(r.passed for r in results)


assert check("GPT-2 layer", layer())
assert not check("no all-reduce after attention", layer(first_sum=False))
