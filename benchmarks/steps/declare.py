"""What every distributed step begins and ends with: its inputs, its token count, new values."""

from __future__ import annotations

from benchmarks.steps import sync
from benchmarks.steps.blocks import named
from benchmarks.steps.model import Degrees, Model, table_type
from benchmarks.steps.rank import batch_types, local_type
from benchmarks.steps.weights import Weight, state_layout
from shardproof.synthesis.training import optimizer
from shardproof.synthesis.training.optimizer import total
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import TensorType


def inputs(b: Builder, model: Model, degrees: Degrees, table: list[Weight]) -> None:
    """The inputs of the step with their local types."""
    last = degrees.pp - 1
    for name, type in batch_types(model, degrees).items():
        where = {} if degrees.pp == 1 else {"pp": 0 if name == "ids" else last}
        with b.on(**where):
            b.input(name, TensorType((degrees.micro_batches, *type.shape), type.dtype))
    for name in degrees.tables:
        b.input(name, table_type(name, model.seq // degrees.cp, model), "const")
    optimizer.scalars(b)
    for w in table:
        with b.on(**({} if degrees.pp == 1 else {"pp": w.stages})):
            b.param(w.name, local_type(w, degrees), w.path)
    for w in table:
        with b.on(**({} if degrees.pp == 1 else {"pp": w.stages})):
            for moment in ("first", "second"):
                kind = TensorType(state_layout(w, degrees).local_shape)
                b.input(f"{w.name}.{moment}", kind, "input", f"{w.path}.{moment}")


def inverse_count(b: Builder, degrees: Degrees) -> None:
    """One over the number of tokens that count, over all ranks and micro-batches."""
    count = total(b, "weight")
    if degrees.data:
        count = b.add("all_reduce", count, mesh_dim=sync.over(degrees.data), reduce="sum")
    named(b, b.add("reciprocal", count), "inverse_count")
