"""Every question can fail: claims about shapes and placements, messages, orders in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from shardproof.compat.executor import FinalStates
from tests.compat.cases import TP, Case, tensor
from verifier import (
    GELU,
    AllReduce,
    AllReduceAsync,
    DeviceMesh,
    DeviceTopology,
    DistributedVerifier,
    DtypeGuard,
    IROp,
    Link,
    MatMul,
    MultiDeviceExecutor,
    OverlapRegion,
    Partial,
    Program,
    RaceType,
    Recv,
    Replicate,
    RingRotate,
    Send,
    Shard,
    TensorState,
    Wait,
    verify_temporal,
)

LINEAR = Program("linear", [MatMul("x", "w", "p"), AllReduce("p", "y")])
GRID = DeviceMesh((2, 2), ("pp", "tp"))


def final() -> FinalStates:
    executor = MultiDeviceExecutor(TP)
    executor.register_tensor(tensor("x", (8, 16), "1"))
    executor.register_tensor(tensor("w", (16, 32), "0"))
    return executor.run_program(LINEAR)


def failed(states: dict[str, TensorState], **more: object) -> list[str]:
    results = DistributedVerifier().verify_all(LINEAR, states, **more)  # type: ignore[arg-type]
    return [r.condition for r in results if not r.passed]


def test_a_wrong_shape_on_a_rank_fails() -> None:
    states = final()
    states["y"].local_shape = (4, 32)
    assert failed(states) == ["shape consistency"]
    verifier = DistributedVerifier()
    assert not verifier.verify_shape_consistency(LINEAR, states).passed
    assert verifier.verify_placement_consistency(LINEAR, states).passed
    states["y"].sharding = states["p"].sharding
    assert not verifier.verify_placement_consistency(LINEAR, states).passed


def test_another_initial_shape_fails() -> None:
    assert failed(final(), initial_shapes={"x": (8, 16)}) == []
    assert failed(final(), initial_shapes={"x": (8, 8)}) == ["shape consistency"]


def test_plain_states_do_as_well() -> None:
    assert failed(dict(final())) == []
    assert failed({n: s for n, s in final().items() if n != "w"}) == ["program"]


def test_an_output_that_is_asked_for_and_never_made_fails() -> None:
    assert failed(final(), output_names=["y", "z"]) == ["postcondition z"]


def test_what_a_state_is_asked_to_be() -> None:
    states, verifier = final(), DistributedVerifier()
    assert verifier.verify_postcondition(states["y"]).passed
    assert verifier.verify_postcondition(states["p"], expected_partial=True).passed
    assert not verifier.verify_postcondition(states["p"]).passed
    assert not verifier.verify_postcondition(states["y"], expected_placement=Shard(0)).passed
    assert verifier.summary().startswith("Verification Summary: 2 passed, 2 failed")
    assert verifier.verify_communication_legality(LINEAR, states).passed
    doubled = Program("d", [*LINEAR, AllReduce("y", "z", op_type="max"), GELU("p", "q")])
    assert verifier.verify_communication_legality(doubled, states).passed
    maximum = Program("m", [MatMul("x", "w", "p"), AllReduce("p", "y", op_type="max")])
    assert not verifier.verify_communication_legality(maximum, states).passed


def staged(*ops: IROp) -> Case:
    """Stage 0 is ranks 0 and 1, stage 1 is ranks 2 and 3; inside a stage, tp."""
    first = [MatMul("x", "w", "h"), MatMul("h", "u", "p"), AllReduce("p", "s", mesh_dim="tp")]
    last = [MatMul("r", "v", "j"), MatMul("j", "z", "q"), AllReduce("q", "y", mesh_dim="tp")]
    return Case(
        [*first, *ops, *last],
        {
            "x": ((8, 16), "R R"),
            "w": ((16, 16), "R 1"),
            "u": ((16, 16), "R 0"),
            "v": ((16, 16), "R 1"),
            "z": ((16, 4), "R 0"),
        },
        GRID,
        held={"x": (0, 1), "w": (0, 1), "u": (0, 1), "v": (2, 3), "z": (2, 3)},
        reference=[
            MatMul("x", "w", "h"),
            MatMul("h", "u", "i"),
            MatMul("i", "v", "j"),
            MatMul("j", "z", "y"),
        ],
        outputs=["y"],
    )


TO_2, TO_3 = Send("s", "m", 0, 2), Send("s", "n", 1, 3)
AT_2, AT_3 = Recv("m", "r", 0, 2), Recv("n", "r", 1, 3)


def test_stages_of_several_ranks() -> None:
    accepted, why = staged(TO_2, TO_3, AT_2, AT_3).accepted()
    assert accepted, why


@pytest.mark.parametrize("messages", [(TO_2, AT_2), (TO_2, TO_3, AT_2), (TO_2, TO_2, AT_2, AT_3)])
def test_a_stage_with_a_message_too_few_is_refused(messages: Sequence[IROp]) -> None:
    assert not staged(*messages).accepted()[0]


def test_two_ranks_that_both_send_first_hang() -> None:
    swap = [Send("a", "m", 0, 1), Send("b", "n", 1, 0), Recv("n", "c", 1, 0), Recv("m", "d", 0, 1)]
    good = [Send("a", "m", 0, 1), Recv("m", "d", 0, 1), Send("b", "n", 1, 0), Recv("n", "c", 1, 0)]
    inputs = {"a": ((4, 4), "R"), "b": ((4, 4), "R")}
    held = {"a": (0,), "b": (1,)}
    assert not Case(swap, inputs, held=held).accepted()[0]
    accepted, why = Case(good, inputs, held=held).accepted()
    assert accepted, why


def test_a_ring_that_is_read_before_its_wait_is_refused() -> None:
    turn, inputs = RingRotate("x", "a", 2, handle="h"), {"x": ((4, 4), "R")}
    accepted, why = Case([turn, Wait("h", "a", "b"), GELU("b", "y")], inputs).accepted()
    assert accepted, why
    assert not Case([turn, GELU("a", "y"), Wait("h", "a", "b")], inputs).accepted()[0]


START = AllReduceAsync("p", "y", "h1")
ORDERS: dict[str, tuple[list[IROp], RaceType | None, str]] = {
    "right": ([START, Wait("h1", "y", "z"), GELU("z", "a")], None, ""),
    "in place": ([AllReduceAsync("p", "p", "h"), Wait("h", "p"), GELU("p", "p")], None, ""),
    "no wait": ([START], RaceType.ORPHANED_HANDLE, "y"),
    "early": ([START, GELU("y", "a"), Wait("h1", "y")], RaceType.MISSING_WAIT, "y"),
    "other handle": ([START, Wait("h2", "y", "z")], RaceType.DEPENDENCY_VIOLATION, "y"),
    "overwritten": ([START, GELU("q", "p"), Wait("h1", "y")], RaceType.DATA_RACE, "p"),
    "two into one": (
        [START, AllReduceAsync("q", "y", "h2"), Wait("h1", "y"), Wait("h2", "y")],
        RaceType.BUFFER_ALIASING,
        "y",
    ),
    "read in the region that makes it": (
        [OverlapRegion([GELU("y", "a")], [AllReduce("p", "y")])],
        RaceType.DATA_RACE,
        "y",
    ),
}


@pytest.mark.parametrize("name", ORDERS)
def test_orders(name: str) -> None:
    ops, kind, buffer = ORDERS[name]
    result = verify_temporal(Program(name, ops))
    assert result.is_safe == (kind is None), result.summary()
    if kind is not None:
        assert (kind, buffer) in [(r.race_type, r.tensor) for r in result.reports]


def test_topologies() -> None:
    apart = DeviceTopology.fully_connected(2)
    apart.nodes += DeviceTopology.fully_connected(3).nodes[2:]
    assert apart.neighbors(0) == [1]
    assert not apart.all_connected([0, 1, 2])
    assert not DeviceMesh((3,), ("tp",), topology=apart).validate_topology()
    apart.links.append(Link(1, 2, "IB", 50.0))
    assert apart.are_connected(0, 2)
    assert DeviceMesh((3,), ("tp",), topology=apart).validate_topology()


GUARDS: list[Callable[[TensorState], str | None]] = [
    DtypeGuard.check_allreduce_dtype,
    lambda t: DtypeGuard.check_matmul_dtype_match(t, t.with_dtype("fp16")),
    lambda t: DtypeGuard.check_collective_preserves_dtype(t, t.with_dtype("bf16")),
    lambda t: DtypeGuard.check_fp8_format_usage(t, "backward"),
    lambda t: DtypeGuard.check_fp8_scale_freshness(1, 2) if t.is_fp8 else None,
]


@pytest.mark.parametrize("guard", GUARDS)
def test_guards_of_dtypes(guard: Callable[[TensorState], str | None]) -> None:
    assert guard(tensor("x", (4,), "R").with_dtype("fp8e4m3"))


def test_the_gradient_of_a_state() -> None:
    spec = final()["y"].grad_tensor().spec
    assert spec.placements == (Partial(),)
    assert final()["p"].grad_tensor().spec.placements == (Replicate(),)
