"""Right programs that a checker of placements refuses, or accepts for no reason."""

from __future__ import annotations

from collections.abc import Callable

from shardproof.compat.sharding import Shard
from tests.compat.cases import TP, Case
from verifier import (
    GELU,
    Add,
    AllGather,
    AllReduce,
    AllReduceAsync,
    AllToAll,
    Broadcast,
    CrossEntropyLoss,
    DeviceMesh,
    Dropout,
    Embedding,
    ExpertCompute,
    FlashAttention,
    FP8Dequantize,
    FP8Quantize,
    LayerNorm,
    MatMul,
    MoECombine,
    MoEDispatch,
    Recv,
    Reduce,
    ReduceScatter,
    RingAttention,
    Send,
    ShardingSpec,
    Transpose,
    Wait,
    ZeROGatherParam,
    ZeROPartitionOptState,
    ZeROScatterGrad,
    padded_shape,
)

GRID = DeviceMesh((2, 2), ("dp", "tp"))
FOUR = DeviceMesh((4,), ("tp",))
PP = DeviceMesh((2,), ("pp",))
ROW = {"x": ((8, 16), "1"), "w": ((16, 32), "0")}
COLUMN = {"x": ((8, 16), "R"), "w": ((16, 32), "1")}
DP = {"x": ((8, 16), "0"), "w": ((16, 32), "R")}
SQUARE = {"x": ((8, 16), "1"), "w": ((16, 16), "0")}
MM = MatMul("x", "w", "p")
AR = AllReduce("p", "y")
WHOLE = {"y": "R"}


def row(*ops: object, **more: object) -> Case:
    inputs = {**ROW, **more.pop("more", {})}  # type: ignore[dict-item]
    return Case([MM, *ops], inputs, **more)  # type: ignore[arg-type]


def qkv(words: str, shape: tuple[int, ...]) -> dict[str, tuple[tuple[int, ...], str]]:
    return dict.fromkeys("qkv", (shape, words))


RIGHT: dict[str, Callable[[], Case]] = {
    "C1 row parallel": lambda: row(AR),
    "I2 column parallel, sharded output": lambda: Case([MatMul("x", "w", "y")], COLUMN),
    "I3 data parallel": lambda: Case([MatMul("x", "w", "y"), GELU("y", "z")], DP),
    "I14 tp and dp": lambda: Case(
        [MatMul("x", "w", "h"), GELU("h", "g"), MatMul("g", "v", "p"), AllReduce("p", "y",
         mesh_dim="tp")],
        {"x": ((8, 16), "0 R"), "w": ((16, 32), "R 1"), "v": ((32, 16), "R 0")},
        GRID,
    ),
    "I16 sequence parallel, sharded output": lambda: Case(
        [LayerNorm("x", "n"), AllGather("n", "g", 0), MatMul("g", "w", "h"), GELU("h", "a"),
         MatMul("a", "v", "p"), ReduceScatter("p", "y", 0)],
        {"x": ((8, 16), "0"), "w": ((16, 32), "1"), "v": ((32, 16), "0")},
    ),
    "I4 norm of a sequence shard": lambda: Case(
        [LayerNorm("x", "y", norm_dim=-1)], {"x": ((2, 8, 16), "1")}
    ),
    "I5 transpose then gather": lambda: Case(
        [Transpose("x", "t"), AllGather("t", "y", 1)], {"x": ((8, 16), "0")}, expected=WHOLE
    ),
    "U36 all-to-all, transpose, gather": lambda: Case(
        [AllToAll("x", "a", split_dim=0, concat_dim=1), Transpose("a", "t"), AllGather("t", "y",
         0)],
        {"x": ((8, 16), "0")}, expected=WHOLE,
    ),
    "I6 padded vocabulary": lambda: Case(
        [Embedding("ids", "W", "p"), AllReduce("p", "y")],
        {"ids": ((4,), "R"), "W": (padded_shape((50257, 2), ShardingSpec((Shard(0),), TP)), "0")},
    ),
    "I7 batched x matrix": lambda: Case(
        [MM, AR], {"x": ((2, 8, 16), "2"), "w": ((16, 32), "0")}, expected=WHOLE
    ),
    "I8 bias broadcast": lambda: Case(
        [MatMul("x", "w", "h"), Add("h", "b", "y")], {**COLUMN, "b": ((32,), "0")}
    ),
    "I9 two partials, one all-reduce": lambda: row(
        MatMul("u", "v", "q"), Add("p", "q", "s"), AllReduce("s", "y"),
        more={"u": ((8, 4), "1"), "v": ((4, 32), "0")},
    ),
    "I10 sum of losses over data parallel ranks": lambda: Case(
        [CrossEntropyLoss("x", "t", "l", reduction="sum"), AllReduce("l", "y")],
        {"x": ((8, 16), "0"), "t": ((8,), "0")}, expected=WHOLE,
    ),
    "I10 mean of losses over data parallel ranks": lambda: Case(
        [CrossEntropyLoss("x", "t", "l"), AllReduce("l", "y", op_type="mean")],
        {"x": ((8, 16), "0"), "t": ((8,), "0")}, expected=WHOLE,
    ),
    "U32 repaired: loss over a split vocabulary": lambda: Case(
        [CrossEntropyLoss("x", "t", "y", mesh_dim="tp")],
        {"x": ((8, 16), "1"), "t": ((8,), "R")}, expected=WHOLE,
    ),
    "I11 all-to-all round trip": lambda: Case(
        [AllToAll("x", "a", 0, 1), AllToAll("a", "b", 1, 0), AllGather("b", "y", 0)],
        {"x": ((8, 16), "0")}, expected=WHOLE,
    ),
    "I12 re-split, gather": lambda: Case(
        [AllToAll("x", "a", 0, 1), AllGather("a", "y", 1)], {"x": ((8, 16), "0")}, expected=WHOLE
    ),
    "I13 attention by heads": lambda: Case(
        [FlashAttention("q", "k", "v", "y", softmax_scale=0.5, causal=True)],
        qkv("2", (2, 8, 4, 4)),
    ),
    "U28 repaired: two heads of keys over two ranks": lambda: Case(
        [FlashAttention("q", "k", "v", "y", softmax_scale=0.5)],
        {"q": ((2, 8, 4, 4), "2"), "k": ((2, 8, 2, 4), "2"), "v": ((2, 8, 2, 4), "2")},
    ),
    "I15 ring attention [S, D]": lambda: Case(
        [RingAttention("q", "k", "v", "y", ring_size=2, causal=True)], qkv("0", (8, 4))
    ),
    "I15 ring attention [B, S, H, D]": lambda: Case(
        [RingAttention("q", "k", "v", "y", ring_size=2, causal=True)], qkv("1", (2, 8, 2, 4))
    ),
    "I1 two stages": lambda: Case(
        [MatMul("x", "w", "h"), Send("h", "m", 0, 1), Recv("m", "r", 0, 1), MatMul("r", "v", "y")],
        {"x": ((8, 16), "R"), "w": ((16, 16), "R"), "v": ((16, 4), "R")},
        PP, held={"x": (0,), "w": (0,), "v": (1,)},
    ),
    "U12 repaired: reduce, then broadcast": lambda: row(Reduce("p", "r"), Broadcast("r", "y")),
    "U30 repaired: one mask": lambda: Case([Dropout("x", "y", 0.5)], {"x": ((8, 16), "1")}),
    "U30 repaired: one seed on replicated data": lambda: Case(
        [Dropout("x", "y", 0.5, rng="local")], {"x": ((8, 16), "R")}
    ),
    "U33 repaired: every rank its experts": lambda: Case(
        [MoEDispatch("x", "d", 4, split_dim=1, concat_dim=0), ExpertCompute("d", "e", None, 4, "W"),
         MoECombine("e", "y", 4, split_dim=0, concat_dim=1)],
        {"x": ((4, 8, 16), "1"), "W": ((4, 16, 16), "0")},
    ),
    "Z1 repaired: reduce-scatter of a pending gradient": lambda: row(
        ZeROScatterGrad("p", "g", 0), ZeROGatherParam("g", "y", 0)
    ),
    "Z2 repaired: optimizer and gradient split alike": lambda: Case(
        [ZeROScatterGrad("g", "a", 0), ZeROPartitionOptState("m", "b", 0), Add("a", "b", "u"),
         ZeROGatherParam("u", "y", 0)],
        {"g": ((8, 16), "P"), "m": ((8, 16), "R")}, expected=WHOLE,
    ),
    "G3 row parallel: all-reduce forward, nothing backward": lambda: row(
        AR, bwd=[Transpose("w", "wt"), MatMul("grad_y", "wt", "grad_x"), Transpose("x", "xt"),
                 MatMul("xt", "grad_y", "grad_w")],
    ),
    "G1 repaired: data parallel backward": lambda: Case(
        [MatMul("x", "w", "y")], DP,
        bwd=[Transpose("x", "xt"), MatMul("xt", "grad_y", "g"), AllReduce("g", "grad_w")],
    ),
    "G2 repaired: column parallel backward": lambda: Case(
        [MatMul("x", "w", "y")], COLUMN,
        bwd=[Transpose("w", "wt"), MatMul("grad_y", "wt", "g"), AllReduce("g", "grad_x")],
    ),
    "T6 gather and scatter on their own communicators": lambda: Case(
        [AllReduceAsync("p", "a", "h1", mesh_dim="dp"), AllReduceAsync("q", "b", "h2",
         mesh_dim="tp"),
         Wait("h1", "a", "a1"), Wait("h2", "b", "b1"), Add("a1", "b1", "y")],
        {"p": ((8, 16), "P R"), "q": ((8, 16), "R P")}, GRID,
    ),
    "T7 a buffer used again after its wait": lambda: Case(
        [MM, AllReduceAsync("p", "a", "h1"), Wait("h1", "a", "b"), GELU("b", "c"),
         MatMul("u", "v", "p"), AllReduceAsync("p", "d", "h2"), Wait("h2", "d", "e"), Add("c", "e",
         "y")],
        {**ROW, "u": ((8, 4), "1"), "v": ((4, 32), "0")},
    ),
    "V1 repaired: reduced in place": lambda: Case(
        [MatMul("x", "w", "x"), AllReduce("x", "x"), GELU("x", "x")], SQUARE
    ),
    "U46 repaired: one scale": lambda: Case(
        [FP8Quantize("x", "a", "s1"), FP8Dequantize("a", "y", "s1")], {"x": ((8, 16), "0")},
        dtypes={"x": "fp32"},
    ),
}  # fmt: skip
