"""Gradient accumulation: a forward and backward program run on each micro-batch, sums kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction

from synthesis.training.blocks import row
from synthesis.training.include import Part
from verifier.kernel.contract import output_key
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.program import Program
from verifier.kernel.program.types import Attr, TensorType
from verifier.kernel.program.where import Where
from verifier.kernel.rank_sets import regions

BATCH = ("ids", "labels", "weight")
"""Inputs with a leading dim of micro-batches."""


@dataclass(frozen=True)
class Joint:
    """A program with its gradients, and how many of its nodes are forward."""

    program: Program
    forward: int


def added(b: Builder, sums: dict[str, str], shares: Mapping[str, str]) -> None:
    """Add shares to running sums, by output key."""
    for key, share in shares.items():
        sums[key] = b.add("add", sums[key], share) if key in sums else share


def unrolled(b: Builder, joint: Joint, count: int) -> dict[str, str]:
    """One copy of the program per micro-batch; the sums by output key."""
    sums: dict[str, str] = {}
    for m in range(count):
        part = Part(joint.program, joint.forward, f"mb{m}.")
        part.bind({i.name: i.name for i in joint.program.inputs if i.name not in BATCH})
        part.bind({name: row(b, name, m) for name in BATCH})
        part.forward(b)
        part.backward(b)
        added(b, sums, part.outputs())
    return sums


def repeated(
    b: Builder, joint: Joint, count: int, batch: Collection[str] = BATCH
) -> dict[str, str]:
    """A scan over the micro-batches that carries the sums, which start at zero."""
    inner = Builder("micro_batch", joint.program.mesh)
    places = regions(joint.program).values
    kept = {output_key(o): (joint.program[o.value], places[o.value]) for o in joint.program.outputs}
    inner.reserve(joint.program.types)
    sums = {k: inner.input(f"sum.{k}", t, "carry", where=where) for k, (t, where) in kept.items()}
    for item in joint.program.inputs:
        if item.name in batch:
            inner.input(item.name, item.type, "xs", where=item.where)
    for item in joint.program.inputs:
        if item.name not in batch:
            inner.input(item.name, item.type, "const", where=item.where)
    part = Part(joint.program, joint.forward, "")
    part.bind({i.name: i.name for i in joint.program.inputs})
    part.forward(inner)
    part.backward(inner)
    for key, share in part.outputs().items():
        inner.output(inner.add("add", sums[key], share), "carry", key)
    names = [i.name for i in joint.program.inputs]
    xs = [n for n in names if n in batch]
    consts = [n for n in names if n not in batch]
    zeros = [_zero(b, type, where) for type, where in kept.values()]
    results = b.add_node(
        "scan",
        [*zeros, *xs, *consts],
        {"length": count, "carry": len(zeros), "xs": len(xs), "reverse": False},
        body=inner.build(),
    )
    b.held |= {name: where for name, (_, where) in zip(results, kept.values(), strict=True)}
    return dict(zip(kept, results, strict=True))


def _zero(b: Builder, type: TensorType, where: Where) -> str:
    attrs: dict[str, Attr] = {"shape": type.shape, "value": Fraction(0), "dtype": type.dtype}
    return b.add_node("full", (), attrs, where=where or None)[0]
