"""A captured pass on pipeline stages: proved, equal on numbers, and refuted where a stage errs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest

from benchmarks.steps.truth import agrees
from shardproof.synthesis.autodiff.autodiff import grad
from shardproof.synthesis.hardware import load
from shardproof.synthesis.planner.planner import Asked, synthesize
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.synthesis.training.captured import captured_step
from shardproof.synthesis.training.layers import layers
from shardproof.synthesis.training.staged import staged
from shardproof.synthesis.training.step import Step, TrainingError
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Attr, Mesh, TensorType
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof

WIDE = 8


def model(*depths: int, tied: bool = True) -> Program:
    """Embedding, blocks of layers with a skip over all of the first, and a head."""
    b = Builder("model")
    table = b.param("embed", TensorType((16, WIDE)), "embed.weight")
    head = table if tied else b.param("head", TensorType((16, WIDE)), "head.weight")
    stacks: list[tuple[str, str]] = []
    for k, depth in enumerate(depths):
        up = b.param(f"up{k}", TensorType((depth, WIDE, 16)), f"part{k}.*.up.weight")
        down = b.param(f"down{k}", TensorType((depth, 16, WIDE)), f"part{k}.*.down.weight")
        stacks.append((up, down))
    ids = b.input("ids", TensorType((4,), "i64"), "input", "ids")
    scale = b.input("scale", TensorType((4, WIDE)), "const", "scale")
    start = h = b.add("mul", b.add("take", table, ids, dim=0), b.add("exp", scale))
    for depth, (up, down) in zip(depths, stacks, strict=True):
        attrs: dict[str, Attr] = {"length": depth, "carry": 1, "xs": 2, "reverse": False}
        (h,) = b.add_node("scan", [h, up, down, scale], attrs, body=_layer())
    h = b.add("add", h, start)
    y = b.add("mm", h, b.add("permute", head, dims=(1, 0)))
    b.output(b.add("mean", b.add("mul", y, y), dims=(0, 1)), "loss", "loss")
    return grad(b.build())


def _layer() -> Program:
    b = Builder("layer")
    h = b.input("h", TensorType((4, WIDE)), "carry")
    up = b.input("up", TensorType((WIDE, 16)), "xs")
    down = b.input("down", TensorType((16, WIDE)), "xs")
    scale = b.input("scale", TensorType((4, WIDE)), "const")
    made = b.add("mm", b.add("silu", b.add("mm", b.add("mul", h, scale), up)), down)
    b.output(b.add("add", h, made), "carry", "h")
    return b.build()


@cache
def step(stages: int, mesh: str, micro_batches: int, *depths: int, tied: bool = True) -> Step:
    dims = tuple((d.split("=")[0], int(d.split("=")[1])) for d in mesh.split(",") if d)
    made = synthesize(Asked(model(*depths, tied=tied), Mesh(dims), load("h100")))
    given = staged(made.sequential, made.lowered.program, made.lowered.contract, stages)
    return captured_step(*given, micro_batches)


@pytest.mark.parametrize(
    ("stages", "mesh", "micro_batches", "depths", "tied"),
    [
        (2, "", 1, (4,), False),
        (2, "tp=2", 3, (4,), True),
        (3, "dp=2", 2, (5,), True),
        (3, "dp=2,tp=2", 2, (2, 3), True),
        (4, "tp=2", 2, (1, 4, 2), False),
    ],
)
def test_a_step_on_stages_is_proved(
    stages: int, mesh: str, micro_batches: int, depths: tuple[int, ...], tied: bool
) -> None:
    made = step(stages, mesh, micro_batches, *depths, tied=tied)
    assert made.distributed.mesh["pp"] == stages
    assert agrees(made, trials=1)
    verdict = verify(Problem(made.sequential, made.distributed, made.contract))
    assert isinstance(verdict, Proof), verdict
    said = check(verdict.certificate, Problem(made.sequential, made.distributed, made.contract))
    assert isinstance(said, Accepted), said


def test_every_stage_holds_its_own_layers_and_the_tied_table_lies_on_the_first_and_the_last() -> (
    None
):
    made = step(3, "dp=2", 2, 5)
    held = {i.path: dict(i.where).get("pp") for i in made.distributed.inputs if i.role == "param"}
    layers_held = {p: w for p, w in held.items() if p.startswith("stages.")}
    assert len(layers_held) == 6
    assert all(w == (int(p.split(".")[1]),) for p, w in layers_held.items())
    assert held["embed.weight"] == (0, 2)


@pytest.mark.parametrize("op", ["send", "recv", "broadcast", "merge", "only"])
def test_a_stage_that_errs_is_refuted(op: str) -> None:
    """It halves a message, the loss it tells, its share of the norm, a gradient that it gives."""
    made = step(3, "tp=2", 3, 4)
    wrong = _altered(made.distributed, op)
    assert wrong is not made.distributed
    verdict = verify(Problem(made.sequential, wrong, made.contract))
    assert isinstance(verdict, Counterexample), verdict


def _altered(program: Program, op: str) -> Program:
    """What the first such op gives is halved before it is read."""
    nodes = list(program.nodes)
    for index, node in enumerate(nodes):
        if node.body is not None:
            body = _altered(node.body, op)
            if body is not node.body:
                nodes[index] = replace(node, body=body)
                return replace(program, nodes=tuple(nodes))
        if node.op == op:
            value, half = node.inputs[0], f"{node.inputs[0]}.half"
            attrs: dict[str, Attr] = {"value": Fraction(1, 2)}
            nodes[index : index + 1] = [
                replace(node, op="mul_scalar", inputs=(value,), outputs=(half,), attrs=attrs),
                replace(node, inputs=(half, *node.inputs[1:])),
            ]
            types = {**program.types, half: program.types[value]}
            return replace(program, nodes=tuple(nodes), types=types)
    return program


def test_layers_are_dealt_in_equal_runs() -> None:
    cut = layers(model(2, 3), 2)
    runs = {name: [(r.stage, r.start, r.stop) for r in found] for name, found in cut.params.items()}
    assert runs["up0"] == [(0, 0, 2)]
    assert runs["up1"] == [(0, 0, 1), (1, 1, 3)]
    assert len(cut.blocks) == 4


def test_more_stages_than_layers_is_one_error() -> None:
    with pytest.raises(TrainingError, match="5 repeated layers cannot be cut into 6 stages"):
        step(6, "", 1, 5)
