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


def shared(
    *, also_whole: bool = False, column: bool = False, depth: int = 1
) -> tuple[frozenset[str], frozenset[str]]:
    """Of a module on an input: what it gives meets a split value, and maybe a whole one, or the
    split weight of a column linear."""
    b = Builder("shared")
    x, split = b.input("x", decoder.f64(4, 4)), b.input("split", decoder.f64(4, 4))
    w = b.param("key.weight", decoder.f64(4, 4))
    pieces = b.param("up.weight", decoder.f64(4, 4)) if column else ""
    with b.at(decoder.place("key")):
        made = b.add("mm", x, w)
    with b.at(decoder.place("")):
        value = made
        for _ in range(depth):
            value = b.add("exp", value)
        out = b.add("mul", value, split)
        out = b.add("add", b.add("sum", out, dims=(1,), keepdim=True), made) if also_whole else out
        if column:
            with b.at(decoder.place("up")):
                out = b.add("add", out, b.add("mm", value, pieces))
        b.output(out, "output", "out")
    program = b.build()
    layouts = {"split": SPLIT, pieces: SPLIT}
    pairs: list[Pair] = []
    for node in program.nodes:
        operands = tuple(layouts.get(v, WHOLE) for v in node.inputs)
        split = node.op == "mul" or pieces in node.inputs or (column and node.op == "add")
        result = SPLIT if split else WHOLE
        layouts[node.outputs[0]] = result
        pairs.append(Pair("", node, node, operands, result))
    lowered = Lowered(program, Contract({}, {}), tuple(pairs))
    styles = {"key": "replicate", "up": "column"}
    return Shared(program, lowered, styles, {"key", "up"}, "tp").modules()


def test_what_meets_split_values_alone_is_shared() -> None:
    assert shared() == ({"key"}, frozenset())


def test_what_whole_values_are_made_of_too_is_not() -> None:
    assert shared(also_whole=True) == (frozenset(), frozenset())


def test_a_column_that_reads_it_too_leaves_its_share() -> None:
    assert shared(column=True) == ({"key"}, {"up"})


def test_a_deep_chain_of_ops_is_no_obstacle() -> None:
    assert shared(depth=3000) == ({"key"}, frozenset())
