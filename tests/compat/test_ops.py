"""Every op class in a right program, and the claims that ops check of their operands."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tests.compat.cases import TP, Case, tensor
from tests.compat.right import PP, RIGHT, ROW
from tests.compat.test_interface import OPS
from verifier import (
    Add,
    AllGather,
    AllReduce,
    AllReduceAsync,
    AmaxUpdate,
    Cast,
    Convert,
    CoreOp,
    DeviceMesh,
    Gather,
    LocalSPMDType,
    LossScale,
    MatMul,
    Multiply,
    OverlapRegion,
    Partial,
    Program,
    ProgramError,
    RecvAsync,
    Reinterpret,
    RelationError,
    ReLU,
    Reshape,
    RingAttentionStep,
    RingRotate,
    RMSNorm,
    Scatter,
    SendAsync,
    Shard,
    ShardingSpec,
    SiLU,
    Softmax,
    SPMDConsistencyError,
    SPMDGuard,
    TopKGate,
    Transpose,
    Wait,
    WaitAll,
    compute_local_shape,
    compute_tensor_slices,
)

X = {"x": ((8, 16), "0")}
WHOLE = {"x": ((8, 16), "R")}
MORE: dict[str, Callable[[], Case]] = {
    "activations": lambda: Case([ReLU("x", "a"), SiLU("a", "b")], X),
    "norm and softmax of whole rows": lambda: Case([RMSNorm("x", "a"), Softmax("a", "b")], X),
    "scatter from the root": lambda: Case([Scatter("x", "y", 0)], WHOLE, expected={"y": "0"}),
    "gather to the root": lambda: Case([Gather("x", "y", 0)], X),
    "largest magnitude": lambda: Case(
        [AmaxUpdate("x", "a", "x"), AllReduce("a", "y", op_type="max")], X, expected={"y": "R"}
    ),
    "scaled and back": lambda: Case(
        [LossScale("x", "a", 0.1), LossScale("a", "y", 0.1, "unscale")], X
    ),
    "cast": lambda: Case([Cast("x", "y", "fp32", "bf16")], X, dtypes={"x": "fp32"}),
    "types": lambda: Case(
        [Convert("x", "p", "R", "P"), Reinterpret("p", "q", "P", "P"), AllReduce("q", "y")], WHOLE
    ),
    "routing of split tokens": lambda: Case(
        [TopKGate("x", "g", "w", "i", 4, top_k=2), Multiply("w", "i", "y")],
        {**X, "g": ((16, 4), "R")},
    ),
    "waiting for two": lambda: Case(
        [
            MatMul("x", "w", "p"),
            MatMul("x", "w", "q"),
            AllReduceAsync("p", "a", "h1"),
            AllReduceAsync("q", "b", "h2"),
            WaitAll(["h1", "h2"], ["a", "b"], ["c", "d"]),
            Add("c", "d", "y"),
        ],
        ROW,
    ),
    "overlap": lambda: Case(
        [
            MatMul("x", "w", "p"),
            OverlapRegion([MatMul("x", "w", "q")], [AllReduce("p", "a")]),
            AllReduce("q", "b"),
            Add("a", "b", "y"),
        ],
        ROW,
    ),
    "asynchronous messages": lambda: Case(
        [
            MatMul("x", "w", "h"),
            SendAsync("h", "m", "s", 0, 1),
            RecvAsync("h", "r", "t", 0, 1),
            Wait("s", "h", "h2"),
            Wait("t", "r", "r2"),
            MatMul("r2", "v", "y"),
        ],
        {"x": ((8, 16), "R"), "w": ((16, 16), "R"), "v": ((16, 4), "R")},
        PP,
        held={"x": (0,), "w": (0,), "v": (1,)},
        outputs=["y"],
    ),
    "around a ring": lambda: Case([RingRotate("x", "y", 2)], WHOLE),
    "once around a ring": lambda: Case(
        [RingRotate("x", "a", 2), RingRotate("a", "b", 2), AllGather("b", "y", 0)],
        X,
        expected={"y": "R"},
    ),
    "heads apart and together": lambda: Case(
        [
            Reshape("x", "h", (8, 4, 4)),
            Transpose("h", "t", 0, 1),
            Transpose("t", "u", 0, 1),
            Reshape("u", "y", (8, 16)),
        ],
        {"x": ((8, 16), "1")},
        expected={"y": "1"},
    ),
    "one step of a ring of whole keys": lambda: Case(
        [RingAttentionStep("q", "k", "v", "y")],
        {"q": ((8, 4), "0"), "k": ((8, 4), "R"), "v": ((8, 4), "R")},
    ),
    "an op of the core": lambda: Case([CoreOp("tanh", ("x",), "y")], X),
}


@pytest.mark.parametrize("name", MORE)
def test_a_right_program_is_accepted(name: str) -> None:
    accepted, why = MORE[name]().accepted()
    assert accepted, why


def test_every_op_is_in_a_right_program() -> None:
    used = {
        type(op).__name__
        for case in (*RIGHT.values(), *MORE.values())
        for op in (*case().ops, *Program("", list(case().ops)).flat())
    }
    assert sorted(set(OPS) - used) == []


def test_a_value_without_a_relation_has_no_placement() -> None:
    from verifier import GELU, MultiDeviceExecutor

    executor = MultiDeviceExecutor(TP)
    for name, (shape, words) in ROW.items():
        executor.register_tensor(tensor(name, shape, words))
    program = Program("p", [MatMul("x", "w", "p"), GELU("p", "y")])
    final = executor.run_program(program)
    with pytest.raises(RelationError, match="not linear"):
        _ = final["y"].partial
    executor.strict = True
    with pytest.raises(RelationError, match="test_ops"):
        executor.run_program(program)


def test_blocks_of_two_mesh_dims_cover_a_dim_once() -> None:
    mesh = DeviceMesh((2, 2), ("a", "b"))
    spec = ShardingSpec((Shard(0), Shard(0)), mesh)
    rows = [s.ranges[0] for s in compute_tensor_slices((8, 4), spec).values()]
    assert sorted(rows) == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert mesh.devices_in_group(0, 0) == [0, 2]
    assert mesh.devices_in_group(1, 1) == [2, 3]


def test_uneven_shards_are_refused_with_the_extent() -> None:
    with pytest.raises(ValueError, match="not divisible by tp=2"):
        compute_local_shape((7, 4), ShardingSpec((Shard(0),), TP))


def test_guards_answer_as_the_rules_of_the_core() -> None:
    R, V, P = (LocalSPMDType(t) for t in "RVP")
    SPMDGuard.check_multiply(R, P)
    SPMDGuard.check_allreduce_input(P)
    SPMDGuard.check_allgather_input(V)
    SPMDGuard.check_reduce_scatter_input(P)
    with pytest.raises(SPMDConsistencyError, match="PARTIAL"):
        SPMDGuard.check_multiply(P, P)
    for kind in (R, LocalSPMDType.INVARIANT):
        with pytest.raises(SPMDConsistencyError, match="no sum is pending"):
            SPMDGuard.check_allreduce_input(kind)


def test_a_claim_that_the_core_does_not_find_fails() -> None:
    from verifier import DistributedVerifier, MultiDeviceExecutor

    executor = MultiDeviceExecutor(TP)
    for name, (shape, words) in ROW.items():
        executor.register_tensor(tensor(name, shape, words))
    program = Program("p", [MatMul("x", "w", "p"), AllReduce("p", "y")])
    final = executor.run_program(program)
    final["y"].sharding = ShardingSpec((Partial(),), TP)
    failed = [r.condition for r in DistributedVerifier().verify_all(program, final) if not r.passed]
    assert failed == ["placement consistency"]


def test_a_misspelt_tensor_is_named_with_the_nearest() -> None:
    from verifier import MultiDeviceExecutor

    executor = MultiDeviceExecutor(TP)
    executor.register_tensor(tensor("weight", (16, 32), "R"))
    with pytest.raises(ProgramError, match="did you mean weight"):
        executor.run_program(Program("p", [ReLU("weigth", "y")]))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: RMSNorm("x", "weight", "y"), "RMSNorm: norm_dim='y'; expected int"),  # type: ignore[arg-type]
        (lambda: AllGather("x", "y", "0"), "AllGather: gather_dim='0'; expected int"),  # type: ignore[arg-type]
        (lambda: AllReduce("x", "y", "sum", 0), "AllReduce: mesh_dim=0; expected str | None"),  # type: ignore[arg-type]
    ],
)
def test_field_of_another_kind_is_told(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ProgramError, match=re.escape(said)):
        make()


def test_numbers_of_numpy_are_numbers() -> None:
    assert AllGather("x", "y", np.int64(1)).gather_dim == 1  # type: ignore[arg-type]
