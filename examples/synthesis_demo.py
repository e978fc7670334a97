"""Compute ops and placements go in, a proved program with its communication comes out."""

from verifier import (
    GELU,
    Add,
    DeviceMesh,
    Embedding,
    LayerNorm,
    MatMul,
    PlacementAnalyzer,
    Program,
    Replicate,
    Shard,
    ShardingSpec,
    TensorState,
    compute_local_shape,
    synthesize_parallel_program,
)

mesh = DeviceMesh((2,), ("tp",))
R, rows, columns = (ShardingSpec((p,), mesh) for p in (Replicate(), Shard(0), Shard(1)))


def show(name, ops, shapes, specs):
    result = synthesize_parallel_program(ops, shapes, specs)
    print(f"{name}: {result.summary()}")
    assert result.success
    print(result.program, "\n")


show(
    "mlp with a residual",
    [MatMul("x", "up", "h"), GELU("h", "a"), MatMul("a", "down", "m"), Add("m", "x", "y")],
    {"x": (8, 16), "up": (16, 32), "down": (32, 16)},
    {"x": R, "up": columns, "down": rows},
)
show(
    "two partial products, one sum",
    [MatMul("x", "w", "a"), MatMul("u", "v", "b"), Add("a", "b", "y")],
    {"x": (8, 16), "w": (16, 32), "u": (8, 4), "v": (4, 32)},
    {"x": columns, "w": rows, "u": columns, "v": rows},
)
show(
    "vocabulary parallel embedding",
    [Embedding("ids", "table", "e"), GELU("e", "y")],
    {"ids": (8,), "table": (16, 4)},
    {"ids": R, "table": rows},
)
show("norm of a split row", [LayerNorm("x", "y")], {"x": (8, 16)}, {"x": columns})

print("what a wrong program lacks:")
states = {
    name: TensorState(name, shape, compute_local_shape(shape, spec), spec)
    for name, shape, spec in (("x", (8, 16), columns), ("w", (16, 32), rows))
}
found = PlacementAnalyzer().analyze(Program("linear", [MatMul("x", "w", "y")]), states)
print(found)
assert not found.is_correct
assert found.missing_collectives == [(0, "y", "AllReduce")]
