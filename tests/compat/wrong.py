"""Wrong programs that a checker of placements lets through.

Those that are wrong only against what was meant have a reference program.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.compat.cases import Case
from tests.compat.right import AR, COLUMN, DP, FOUR, GRID, MM, PP, ROW, SQUARE, WHOLE, qkv, row
from verifier import (
    GELU,
    Add,
    AllGather,
    AllReduce,
    AllReduceAsync,
    Broadcast,
    Convert,
    CrossEntropyLoss,
    DeviceMesh,
    Dropout,
    Embedding,
    ExpertCompute,
    FlashAttention,
    FP8Dequantize,
    FP8Quantize,
    Gather,
    LayerNorm,
    LossScale,
    MatMul,
    Multiply,
    Recv,
    Reduce,
    ReduceScatter,
    Reinterpret,
    Reshape,
    RingAttentionStep,
    RingRotate,
    Send,
    SendAsync,
    Softmax,
    Transpose,
    Wait,
    ZeROGatherParam,
    ZeROPartitionOptState,
    ZeROScatterGrad,
)

WRONG: dict[str, Callable[[], Case]] = {
    "C2 no all-reduce": lambda: row(),
    "C3 all-reduce twice": lambda: row(AllReduce("p", "q"), AllReduce("q", "y")),
    "C4 the wrong mesh dim": lambda: Case(
        [MatMul("x", "w", "p"), AllReduce("p", "y", mesh_dim="dp")],
        {"x": ((8, 16), "R 1"), "w": ((16, 32), "R 0")}, GRID,
    ),
    "C5 gather along the wrong dim": lambda: Case([AllGather("x", "y", 1)], {"x": ((8, 16), "0")}),
    "C6 scattered taken as whole": lambda: row(ReduceScatter("p", "y", 0), expected=WHOLE),
    "C7 softmax over a split dim": lambda: Case([Softmax("x", "y", 1)], {"x": ((8, 16), "1")}),
    "C8 whole @ rows": lambda: Case([MM], {"x": ((8, 16), "R"), "w": ((16, 32), "0")}),
    "V2 misspelt operand": lambda: row(AllReduce("p_partial", "y")),
    "U44 convert pending to whole": lambda: row(Convert("p", "y", "P", "R")),
    "U45 reinterpret split as whole": lambda: Case(
        [Reinterpret("x", "y", "V", "R", expert_mode=True)], {"x": ((8, 16), "0")}
    ),
    "Z2 shards on different dims": lambda: Case(
        [ZeROScatterGrad("g", "a", 0), ZeROPartitionOptState("m", "b", 1), Add("a", "b", "y")],
        {"g": ((8, 8), "P"), "m": ((8, 8), "R")},
    ),
    "D5 receive before send": lambda: Case(
        [MatMul("x", "w", "h"), Recv("h", "r", 0, 1), Send("h", "m", 0, 1), GELU("r", "y")],
        {"x": ((8, 16), "R"), "w": ((16, 16), "R")}, PP, held={"x": (0,), "w": (0,)},
    ),
    "U1 max of a pending sum": lambda: row(AllReduce("p", "y", op_type="max")),
    "U2 mean of a pending sum": lambda: row(AllReduce("p", "y", op_type="mean")),
    "U3 scaled after": lambda: row(
        AllReduce("p", "q"), LossScale("q", "y", 3.0), reference=[MatMul("x", "w", "y")]
    ),
    "U4 gelu of a pending sum": lambda: row(GELU("p", "q"), AllReduce("q", "y")),
    "U5 norm of a pending sum": lambda: row(LayerNorm("p", "q"), AllReduce("q", "y")),
    "U6 softmax of a pending sum": lambda: row(Softmax("p", "q"), AllReduce("q", "y")),
    "U7 bias before the all-reduce": lambda: row(
        Add("p", "b", "q"), AllReduce("q", "y"), more={"b": ((32,), "R")}
    ),
    "U8 pending times pending": lambda: row(
        MatMul("u", "v", "q"), MatMul("p", "q", "s"), AllReduce("s", "y"),
        more={"u": ((32, 4), "1"), "v": ((4, 8), "0")},
    ),
    "U9 reduce-scatter of a whole value": lambda: Case(
        [ReduceScatter("x", "a", 0), AllGather("a", "y", 0)], {"x": ((8, 16), "R")}
    ),
    "U10 broadcast for all-reduce": lambda: row(Broadcast("p", "y")),
    "U11 broadcast for all-gather": lambda: Case(
        [Broadcast("x", "y")], {"x": ((8, 16), "0")}, expected=WHOLE
    ),
    "U12 reduce to the root, used by all": lambda: row(Reduce("p", "q"), GELU("q", "y"),
        expected=WHOLE),
    "U12 reduce to the root, joined with a value of all": lambda: row(
        Reduce("p", "q"), AllReduce("q", "y")
    ),
    "U13 gather to the root, used by all": lambda: Case(
        [Gather("x", "g", 0), AllReduce("g", "y", op_type="max")], {"x": ((8, 16), "0")}
    ),
    "U14 swapped operands": lambda: Case(
        [MatMul("w", "x", "y")], {"x": ((8, 8), "R"), "w": ((8, 8), "R")},
        reference=[MatMul("x", "w", "y")],
    ),
    "U15 residual multiplied": lambda: row(
        AR, Multiply("y", "r", "z"), more={"r": ((8, 32), "R")}, reference=[MM, Add("p", "r", "z")]
    ),
    "U16 residual dropped": lambda: row(
        AR, more={"r": ((8, 32), "R")}, reference=[MM, Add("p", "r", "y")]
    ),
    "U17 split @ whole": lambda: Case(
        [MM, AllGather("p", "y", 1)], {"x": ((8, 16), "1"), "w": ((16, 32), "R")}
    ),
    "U19 rows of a batch shard taken as whole": lambda: Case(
        [Embedding("ids", "W", "y")], {"ids": ((8,), "0"), "W": ((16, 4), "R")}, expected=WHOLE
    ),
    "U20 gather along the wrong dim of three": lambda: Case(
        [Embedding("ids", "W", "e"), AllGather("e", "y", 1)],
        {"ids": ((2, 8), "R"), "W": ((16, 4), "1")}, expected=WHOLE,
    ),
    "U21 reshape across the split, gather": lambda: Case(
        [Reshape("x", "r", (16, 8)), AllGather("r", "y", 0)], {"x": ((8, 16), "1")}, expected=WHOLE
    ),
    "U22 reshape to other elements": lambda: Case([Reshape("x", "y", (8, 8))], {"x": ((8, 16),
        "R")}),
    "U23 attention over split keys, summed": lambda: Case(
        [FlashAttention("q", "k", "v", "p"), AllReduce("p", "y")],
        {"q": ((8, 4), "R"), "k": ((8, 4), "0"), "v": ((8, 4), "0")},
    ),
    "U24 context parallel without a ring": lambda: Case(
        [FlashAttention("q", "k", "v", "a"), AllGather("a", "y", 0)], qkv("0", (8, 4))
    ),
    "U25 another mask and scale": lambda: Case(
        [FlashAttention("q", "k", "v", "y", softmax_scale=0.5)], qkv("2", (2, 8, 4, 4)),
        reference=[FlashAttention("q", "k", "v", "y", softmax_scale=0.25, causal=True)],
    ),
    "U26 normalised blocks of a ring, added": lambda: Case(
        [RingAttentionStep("q", "k", "v", "a"), RingRotate("k", "k1", 2), RingRotate("v", "v1", 2),
         RingAttentionStep("q", "k1", "v1", "b"), Add("a", "b", "s"), AllReduce("s", "y")],
        qkv("0", (8, 4)), reference=[FlashAttention("q", "k", "v", "y")],
    ),
    "U27 keys turn, values do not": lambda: Case(
        [RingRotate("k", "k1", 2), RingAttentionStep("q", "k1", "v", "y")], qkv("0", (8, 4)),
        reference=[FlashAttention("q", "k", "v", "y")],
    ),
    "U28 half a head per rank": lambda: Case(
        [MatMul("x", "w", "k"), Reshape("k", "y", (8, 2, 4))],
        {"x": ((8, 16), "R"), "w": ((16, 8), "1")}, FOUR,
    ),
    "U30 a seed of each rank's own on whole data": lambda: Case(
        [Dropout("x", "y", 0.5, rng="per_rank")], {"x": ((8, 16), "R")}
    ),
    "U30 one seed by local place on split data": lambda: Case(
        [Dropout("x", "y", 0.5, rng="local")], {"x": ((8, 16), "1")}
    ),
    "U31 dropout that was not there": lambda: Case(
        [Dropout("x", "y", 0.5)], {"x": ((8, 16), "R")}, reference=[LossScale("x", "y", 1.0)]
    ),
    "U32 sum of losses of vocabulary shards": lambda: Case(
        [CrossEntropyLoss("x", "t", "l", reduction="sum"), AllReduce("l", "y")],
        {"x": ((8, 16), "1"), "t": ((8,), "R")},
    ),
    "I10 twin: sum of means": lambda: Case(
        [CrossEntropyLoss("x", "t", "l"), AllReduce("l", "y")],
        {"x": ((8, 16), "0"), "t": ((8,), "0")},
    ),
    "U33 every rank runs expert 0, no gates": lambda: Case(
        [ExpertCompute("x", "y", 0, 2)], {"x": ((8, 16), "0"), "g": ((8, 1), "0"), "h": ((8, 1),
         "0")},
        reference=[ExpertCompute("x", "a", 0, 2), ExpertCompute("x", "b", 1, 2),
                   Multiply("a", "g", "c"), Multiply("b", "h", "d"), Add("c", "d", "y")],
    ),
    "U34 reduced twice and added": lambda: row(
        AllReduce("p", "a"), AllReduce("p", "b"), Add("a", "b", "y"), reference=[MatMul("x", "w",
        "y")]
    ),
    "U35 all-reduce over all ranks of a value that is split": lambda: Case(
        [AllReduce("p", "y")], {"p": ((8, 16), "P 0")}, GRID, expected={"y": "R R"}
    ),
    "U37 stage 1 uses the raw input": lambda: Case(
        [MatMul("x", "w", "h"), Send("h", "m", 0, 1), Recv("m", "r", 0, 1), MatMul("x", "v", "y")],
        {"x": ((8, 16), "R"), "w": ((16, 16), "R"), "v": ((16, 4), "R")},
        PP, held={"w": (0,), "v": (1,), "x": (0, 1)}, outputs=["y"],
        reference=[MatMul("x", "w", "h"), MatMul("h", "v", "y")],
    ),
    "U38 sent to another rank than the one that reads": lambda: Case(
        [MatMul("x", "w", "h"), Send("h", "m", 0, 2), Recv("m", "r", 0, 2), MatMul("r", "v", "y")],
        {"x": ((8, 16), "R"), "w": ((16, 16), "R"), "v": ((16, 4), "R")},
        DeviceMesh((3,), ("pp",)), held={"x": (0,), "w": (0,), "v": (1,)},
    ),
    "U39 heads gathered along the wrong dim": lambda: Case(
        [AllGather("x", "y", 3)], {"x": ((2, 8, 4, 4), "2")}
    ),
    "U40 stage 1 computes something else": lambda: Case(
        [MatMul("x", "w", "h"), Send("h", "m", 0, 1), Recv("m", "r", 0, 1), GELU("r", "g"),
         MatMul("g", "v", "y")],
        {"x": ((8, 16), "R"), "w": ((16, 16), "R"), "v": ((16, 4), "R")},
        PP, held={"x": (0,), "w": (0,), "v": (1,)},
        reference=[MatMul("x", "w", "h"), MatMul("h", "v", "y")],
    ),
    "U43 scattered plus a whole residual": lambda: row(
        ReduceScatter("p", "s", 0), Add("s", "r", "y"), more={"r": ((8, 32), "R")}
    ),
    "U46 another scale back": lambda: Case(
        [FP8Quantize("x", "a", "s1"), FP8Dequantize("a", "y", "s2")], {"x": ((8, 16), "R")}
    ),
    "U47 half @ single": lambda: Case([MM, AR], ROW, dtypes={"x": "fp16", "w": "fp32"}),
    "Z1 reduce-scatter of a reduced gradient": lambda: row(
        AllReduce("p", "g"), ZeROScatterGrad("g", "s", 0), ZeROGatherParam("s", "y", 0)
    ),
    "V1 in place, still pending": lambda: Case([MatMul("x", "w", "x")], SQUARE),
    "V3 empty program": lambda: Case([], ROW, reference=[MatMul("x", "w", "y")]),
    "V4 misspelt operand": lambda: Case([MatMul("x", "ww", "y")], ROW),
    "G1 data parallel without gradient all-reduce": lambda: Case(
        [MatMul("x", "w", "y")], DP,
        bwd=[Transpose("x", "xt"), MatMul("xt", "grad_y", "grad_w")],
    ),
    "G2 column parallel without input gradient all-reduce": lambda: Case(
        [MatMul("x", "w", "y")], COLUMN,
        bwd=[Transpose("w", "wt"), MatMul("grad_y", "wt", "grad_x")],
    ),
    "G4 all-reduce of a whole cotangent": lambda: row(
        AR, bwd=[AllReduce("grad_y", "g"), Transpose("w", "wt"), MatMul("g", "wt", "grad_x")]
    ),
    "G5 max of the gradients, on another tensor": lambda: Case(
        [MatMul("x", "w", "y")], DP,
        bwd=[Transpose("x", "xt"), MatMul("xt", "grad_y", "grad_w"),
             AllReduce("grad_y", "z", op_type="max")],
    ),
    "G6 one all-reduce for three": lambda: Case(
        [MatMul("x", "w", "a"), MatMul("x", "v", "b"), MatMul("x", "u", "c")],
        {**DP, "v": ((16, 32), "R"), "u": ((16, 32), "R")},
        bwd=[Transpose("x", "xt"), MatMul("xt", "grad_a", "g"), AllReduce("g", "grad_w"),
             MatMul("xt", "grad_b", "grad_v"), MatMul("xt", "grad_c", "grad_u")],
    ),
    "G7 reduced before it is complete, and again": lambda: Case(
        [MatMul("x", "w", "y")], DP,
        bwd=[Transpose("x", "xt"), MatMul("xt", "grad_y", "g"), AllReduce("g", "h"),
             AllReduce("h", "grad_w")],
    ),
    "G8 empty backward": lambda: row(AR, bwd=[]),
    "T1 read before its wait": lambda: Case(
        [MM, AllReduceAsync("p", "y", "h1"), GELU("y", "z"), Wait("h1", "y", "w1")], ROW
    ),
    "T2 the same beside a buffer used again": lambda: Case(
        [MM, AllReduceAsync("p", "y", "h1"), GELU("y", "z"), GELU("r", "t"), Multiply("r", "r",
         "t"),
         Wait("h1", "y", "w1")],
        {**ROW, "r": ((4, 4), "R")},
    ),
    "T3 overwritten in flight": lambda: Case(
        [MM, AllReduceAsync("p", "y", "h1"), MatMul("x", "w", "p"), Wait("h1", "y", "z")], ROW,
        outputs=["z"],
    ),
    "T4 handles exchanged": lambda: Case(
        [MM, MatMul("x", "w", "q"), AllReduceAsync("p", "a", "h1"), AllReduceAsync("q", "b", "h2"),
         Wait("h2", "a", "c"), GELU("c", "d"), Wait("h1", "b", "e"), Add("d", "e", "y")], ROW,
    ),
    "D4 two sends, one receive": lambda: Case(
        [MatMul("x", "w", "h"), Send("h", "m", 0, 1), Send("x", "n", 0, 1), Recv("m", "r", 0, 1),
         MatMul("r", "v", "y")],
        {"x": ((8, 16), "R"), "w": ((16, 16), "R"), "v": ((16, 4), "R")},
        PP, held={"x": (0,), "w": (0,), "v": (1,)},
    ),
    "D6 asynchronous send, never received": lambda: Case(
        [MatMul("x", "w", "y"), SendAsync("y", "m", "h", 0, 1), Wait("h", "y", "z")],
        {"x": ((8, 16), "R"), "w": ((16, 16), "R")}, PP, held={"x": (0,), "w": (0,)},
        outputs=["y"],
    ),
}  # fmt: skip
