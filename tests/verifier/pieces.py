"""Short forms for tests that build programs."""

from __future__ import annotations

from collections.abc import Callable

from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh, TensorType

NONE, TP = Mesh(), Mesh.of(tp=2)
Build = Callable[..., str]


def typed(*shape: int, dtype: str = "f32") -> TensorType:
    return TensorType(shape, dtype)


def program(build: Build, *types: TensorType, mesh: Mesh = NONE) -> Program:
    """Inputs `x0`, `x1`, ... and the output `y` that `build(b, *inputs)` names."""
    b = Builder("p", mesh)
    names = [b.input(f"x{i}", t) for i, t in enumerate(types)]
    b.output(build(b, *names), path="y")
    return b.build()


def whole(one: Program) -> Contract:
    """Everything replicated."""
    inputs = {i.name: Layout.replicate(i.type.shape) for i in one.inputs}
    outputs = {
        f"{o.role}:{o.path}": Layout.replicate(one.types[o.value].shape) for o in one.outputs
    }
    return Contract(inputs, outputs)


def pair(one: Build, many: Build, *types: TensorType) -> tuple[Program, Program, Contract]:
    """Both programs on replicated inputs."""
    sequential = program(one, *types)
    return sequential, program(many, *types, mesh=TP), whole(sequential)
