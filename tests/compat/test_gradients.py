"""Backward programs: generated, and compared with the adjoint of the one-device program."""

from __future__ import annotations

import pytest

from tests.compat.cases import TP, tensor
from verifier import (
    GELU,
    AllReduce,
    AutogradEngine,
    DistributedVerifier,
    IROp,
    MatMul,
    MultiDeviceExecutor,
    Program,
    ProgramError,
    TopKGate,
    Transpose,
)

FORWARD: list[IROp] = [MatMul("x", "w", "h"), GELU("h", "g"), MatMul("g", "v", "y")]
DATA = {"x": ((8, 4), "0"), "w": ((4, 6), "R"), "v": ((6, 2), "R")}


def engine(shapes: dict[str, tuple[tuple[int, ...], str]]) -> AutogradEngine:
    made = AutogradEngine()
    states = {n: tensor(n, shape, words) for n, (shape, words) in shapes.items()}
    for op in FORWARD:
        made.record(op, {n: states[n] for n in op.input_names if n in states})
    return made


def test_the_generated_backward_is_right() -> None:
    made = engine({n: (shape, "R") for n, (shape, _) in DATA.items()})
    backward = made.generate_backward("y")
    result = made.verify_gradient_correctness(Program("f", FORWARD), backward)
    assert result.passed, result.errors
    assert made.get_gradient("w") == "grad_w"
    assert {"grad_x", "grad_w", "grad_v"} <= {n for op in backward for n in op.output_names}


def test_on_data_parallel_ranks_it_lacks_the_sums() -> None:
    made = engine(DATA)
    forward, backward = Program("f", FORWARD), made.generate_backward("y")
    result = made.verify_gradient_correctness(forward, backward)
    assert not result.passed
    assert "PARTIAL" in result.errors[0]
    renamed = [op for op in backward if op.output_names[0] not in ("grad_w", "grad_v")]
    assert len(renamed) == len(backward) - 2
    for name in ("w", "v"):
        (op,) = (op for op in backward if op.output_names == [f"grad_{name}"])
        setattr(op, "output", f"{name}.share")  # noqa: B010
        backward.add(AllReduce(f"{name}.share", f"grad_{name}"))
    result = made.verify_gradient_correctness(forward, backward)
    assert result.passed, result.errors
    assert len(backward.collectives) == 2


def test_a_needed_gradient_that_is_missing_is_refused() -> None:
    executor = MultiDeviceExecutor(TP)
    for name, shape in (("x", (8, 16)), ("w", (16, 32))):
        state = tensor(name, shape, "R")
        state.requires_grad = True
        executor.register_tensor(state)
    forward = Program("f", [MatMul("x", "w", "y")])
    final = executor.run_program(forward)
    bwd = Program("b", [Transpose("x", "xt"), MatMul("xt", "grad_y", "grad_w")])
    result = DistributedVerifier().verify_gradient_duality(forward, bwd, final)
    assert not result.passed
    assert "grad_x is never computed" in result.details


def test_no_state_no_backward() -> None:
    made = AutogradEngine()
    made.record(TopKGate("x", "w", "y", "i", 2))
    with pytest.raises(ProgramError, match="no recorded tensor has a state"):
        made.generate_backward("y")
