"""Views and products as capture writes them."""

from __future__ import annotations

import numpy as np
import pytest

from shardproof.synthesis.frontends.torch.aten.products import addmm
from shardproof.synthesis.frontends.torch.aten.table import Emit
from shardproof.synthesis.frontends.torch.aten.views import scatter_lines, slice_
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import Source, TensorType
from shardproof.verifier.refute.evaluate import evaluate

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("start", [0, 1, 2])
@pytest.mark.parametrize(("size", "step"), [(6, 2), (6, 3), (7, 2), (6, 1), (5, 4)])
def test_lines_are_those_of_numpy(start: int, size: int, step: int) -> None:
    b = Builder("lines")
    x = b.input("x", TensorType((3, size, 2), "f64"))
    e = Emit(b)
    taken = slice_(e, x, 1, start, None, step)
    back = scatter_lines(e, taken, 1, start, step, size)
    b.output(taken, path="taken")
    b.output(back, path="back")
    whole = np.random.default_rng(0).random((3, size, 2))
    found = evaluate(b.build(), {x: whole}, Floats())
    expected = np.zeros_like(whole)
    expected[:, start::step] = whole[:, start::step]
    assert np.array_equal(found[taken], whole[:, start::step])
    assert np.array_equal(found[back], expected)


def test_groups_of_lines_are_split_where_a_stride_is_not() -> None:
    b = Builder("lines")
    x = b.input("x", TensorType((8, 6), "f64"))
    slice_(Emit(b), x, 1, 1, None, 2)
    assert [n.op for n in b.build().nodes] == ["reshape", "slice", "reshape"]


def test_a_product_that_is_added_to_zeros_is_the_product_alone() -> None:
    for value, ops in ((0, ["full", "mm", "mul_scalar"]), (1, ["full", "mm", "mul_scalar", "add"])):
        b = Builder("products")
        x = b.input("x", TensorType((4, 4), "f64"))
        e = Emit(b)
        e.op = "addmm"
        addmm(e, e.full(value, (4, 4), "f64"), x, x, alpha=0.5)
        assert [n.op for n in b.build().nodes] == ops


@pytest.mark.parametrize(
    ("direction", "count"), [("forward", 3), ("backward", 2)], ids=["forward", "backward"]
)
def test_reshapes_of_a_forward_are_joined_within_a_line_only(direction: str, count: int) -> None:
    b = Builder("lines")
    x = b.input("x", TensorType((4, 6), "f64"))
    e = Emit(b)
    e.scope, e.written = ("", direction), direction == "forward"
    for line, shape in ((3, (4, 6, 1)), (3, (4, 3, 2)), (5, (2, 2, 3, 2))):
        with b.at(Source("m.py", line, "attn")):
            x = e.reshape(x, shape)
    with b.at(Source("m.py", 5, "")):
        e.reshape(x, (24,))
    assert len([n for n in b.build().nodes if n.outputs[0] in _reached(b)]) == count


def _reached(b: Builder) -> set[str]:
    """The values that the last one is made from."""
    nodes = b.build().producers()
    found, todo = set[str](), [b.build().nodes[-1].outputs[0]]
    while todo:
        name = todo.pop()
        if name in nodes:
            found.add(name)
            todo += nodes[name].inputs
    return found
