"""What is computed twice is computed once, in repeated blocks too, and means the same."""

from __future__ import annotations

import numpy as np

from shardproof.synthesis.lower.share import share
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.refute.evaluate import evaluate
from shardproof.verifier.text.assemble import well_formed
from tests.synthesis import decoder

VECTOR = TensorType((4,), "f64")


def block(twice: bool) -> Program:
    """carry, xs, xs -> carry, and the slice's square under one name or two."""
    b = Builder("block")
    x = b.input("x", VECTOR, "carry")
    u, v = b.input("u", VECTOR, "xs"), b.input("v", VECTOR, "xs")
    first = b.add("mul", u, x)
    second = b.add("mul", v, x) if twice else first
    b.output(b.add("add", first, second), "carry")
    b.output(first, "ys")
    b.output(second, "ys")
    b.output(b.add("neg", u), "ys")
    return b.build()


def program() -> Program:
    b = Builder("program")
    x = b.input("x", VECTOR)
    stack = b.param("w", TensorType((3, 4), "f64"))
    attrs = {"length": 3, "carry": 1, "xs": 2, "reverse": False}
    y, one, two, _ = b.add_node("scan", [x, stack, stack], dict(attrs), body=block(twice=True))
    b.add("exp", y)
    b.output(b.add("add", b.add("neg", one), b.add("neg", two)), "output", "out")
    b.output(y, "output", "y")
    return b.build()


def test_equal_operands_and_results_of_a_block_are_merged() -> None:
    lean = well_formed(share(program()))
    (scan,) = [n for n in lean.nodes if n.op == "scan"]
    assert scan.body is not None
    assert scan.attrs["xs"] == 1
    assert [n.op for n in scan.body.nodes] == ["mul", "add"]
    assert len(scan.outputs) == 2
    assert [n.op for n in lean.nodes] == ["scan", "neg", "add"]


def test_attributes_tell_nodes_apart() -> None:
    b = Builder("program")
    x = b.input("x", TensorType((2, 2), "f64"))
    rows = b.add("sum", x, dims=(0,), keepdim=False)
    columns = b.add("sum", x, dims=(1,), keepdim=False)
    again = b.add("sum", x, dims=(0,), keepdim=False)
    b.output(b.add("sub", b.add("sub", rows, columns), again), "output", "out")
    assert [n.op for n in share(b.build()).nodes] == ["sum", "sum", "sub", "sub"]


def test_the_meaning_is_kept() -> None:
    for whole in (program(), decoder.decoder(layers=2)):
        lean = well_formed(share(whole))
        given = decoder.values(whole)
        before, after = evaluate(whole, given), evaluate(lean, given)
        for old, new in zip(whole.outputs, lean.outputs, strict=True):
            assert (old.role, old.path) == (new.role, new.path)
            assert np.allclose(before[old.value], after[new.value])


def test_nothing_is_left_to_merge() -> None:
    lean = share(decoder.decoder(layers=2))
    assert share(lean) == lean
