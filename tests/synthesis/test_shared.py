"""Whole activations whose gradient ranks add up where a module ends."""

from __future__ import annotations

from shardproof.synthesis.lower import Lowered, Pair
from shardproof.synthesis.planner.shared import Shared
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout, split_leading
from shardproof.verifier.kernel.program.builder import Builder
from tests.synthesis import decoder

WHOLE = Layout.replicate((4, 4))
SPLIT = WHOLE.with_dim(1, split_leading(WHOLE.dims[1], 2, "tp") or ())


def shared(*, also_whole: bool, depth: int = 1) -> frozenset[str]:
    """Of a module on an input: what it gives meets a split value, and maybe a whole one."""
    b = Builder("shared")
    x, split = b.input("x", decoder.f64(4, 4)), b.input("split", decoder.f64(4, 4))
    w = b.param("key.weight", decoder.f64(4, 4))
    with b.at(decoder.place("key")):
        made = b.add("mm", x, w)
    with b.at(decoder.place("")):
        value = made
        for _ in range(depth):
            value = b.add("exp", value)
        out = b.add("mul", value, split)
        out = b.add("add", b.add("sum", out, dims=(1,), keepdim=True), made) if also_whole else out
        b.output(out, "output", "out")
    program = b.build()
    layouts = {"split": SPLIT}
    pairs: list[Pair] = []
    for node in program.nodes:
        operands = tuple(layouts.get(v, WHOLE) for v in node.inputs)
        result = SPLIT if node.op == "mul" else WHOLE
        layouts[node.outputs[0]] = result
        pairs.append(Pair("", node, node, operands, result))
    lowered = Lowered(program, Contract({}, {}), tuple(pairs))
    return Shared(program, lowered, {"key": "replicate"}, {"key"}, "tp").modules()


def test_what_meets_split_values_alone_is_shared() -> None:
    assert shared(also_whole=False) == {"key"}


def test_what_whole_values_are_made_of_too_is_not() -> None:
    assert shared(also_whole=True) == frozenset()


def test_a_deep_chain_of_ops_is_no_obstacle() -> None:
    assert shared(also_whole=False, depth=3000) == {"key"}
