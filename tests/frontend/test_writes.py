"""Writes into tensors become new tensors; memory that nothing was written to is not read."""

# pyright: basic
# (PyTorch has no types for what is used here.)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardproof.synthesis.frontends.torch.aten.table import Emit
from shardproof.synthesis.frontends.torch.aten.views import every, slice_scatter
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.refute.evaluate import evaluate

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch


def traced(run: Callable[..., Any], *shapes: tuple[int, ...]) -> Any:
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    with FakeTensorMode():
        return make_fx(run)(*[torch.empty(s) for s in shapes])


def rewritten(run: Callable[..., Any], *shapes: tuple[int, ...]) -> Any:
    """What is run, without writes, as a module; None where that is not covered."""
    from shardproof.synthesis.frontends.torch.ranks.writes import without_writes

    found = traced(run, *shapes)
    graph = without_writes(found.graph)
    return None if graph is None else torch.fx.GraphModule(found, graph)


def whole_copy(x: Any) -> Any:
    z = torch.empty(8)
    rows = z.view(2, 4)
    rows.copy_(x)
    return z * 2 + rows.view(8)


def views_from_before(x: Any) -> Any:
    z = torch.zeros(2, 4)
    first, second = z.split(1)
    before = first + 1
    z.copy_(x)
    kept = first * 3
    z.view(8).copy_(x.view(8) * 5)
    return before, kept, first + second, z[1]


def joined_out(x: Any) -> Any:
    z = torch.empty(4, 4)
    torch.cat([x, x + 1], out=z.view(4, 4))
    return z + 1


def put(x: Any) -> Any:
    y = x + 1
    y[x > 0] = 7.0
    return y, x


@pytest.mark.parametrize("run", [whole_copy, views_from_before, joined_out, put])
def test_writes_of_whole_tensors_are_new_tensors(run: Callable[..., Any]) -> None:
    module = rewritten(run, (2, 4))
    assert not any(
        getattr(n.target, "_schema", None) and n.target._schema.is_mutable
        for n in module.graph.nodes
    )
    x = torch.arange(8.0).reshape(2, 4) - 3
    torch.testing.assert_close(module(x), run(x.clone()))


def part(x: Any) -> Any:
    z = torch.zeros(4, 4)
    z[:2].copy_(x)
    return z


def given(x: Any) -> Any:
    return x.copy_(x + 1)


def turned(x: Any) -> Any:
    z = torch.zeros(4, 2)
    z.t().copy_(x)
    return z


def repeated(x: Any) -> Any:
    z = torch.zeros(1, 4)
    z.expand(2, 4).copy_(x)
    return z


def by_another_op(x: Any) -> Any:
    z = torch.zeros(2, 4)
    z.add_(x)
    return z


@pytest.mark.parametrize("run", [part, given, turned, repeated, by_another_op])
def test_other_writes_are_left_to_functionalize(run: Callable[..., Any]) -> None:
    assert rewritten(run, (2, 4)) is None


MANY = 1 << 15
"""Rows and columns of a tensor that is too large for each entry to be looked at."""


def refused(run: Callable[..., Any], *shapes: tuple[int, ...], kept: bool = False) -> str:
    """What the memory of a run is refused for; `kept`: what it returns is what a buffer holds."""
    from torch.func import functionalize

    from shardproof.synthesis.frontends.torch.provenance import Provenance
    from shardproof.synthesis.frontends.torch.trace import Traced
    from shardproof.synthesis.frontends.torch.uninitialized_reads import refuse_unwritten

    found = Traced(traced(functionalize(run, remove="mutations"), *shapes).graph, None)
    if kept:
        last = found.graph.output_node()
        found.outputs = [("state", "b", n) for n in last.all_input_nodes]
        found.graph.erase_node(last)
    try:
        refuse_unwritten(found, Provenance("/"))
    except CaptureError as problem:
        return problem.message
    return ""


def columns(stop: int) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        z = torch.empty(MANY, MANY)
        z[:, :1000] = x[:, :1000]
        z[:, 1000:stop] = x[:, 1000:stop]
        return z * 2

    return run


def rows(stop: int) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        z = torch.empty(MANY, MANY)
        z.view(MANY, MANY)[:stop].copy_(x[:stop])
        return z.t() * 2

    return run


@pytest.mark.parametrize("run", [columns, rows])
def test_large_memory_is_followed(run: Callable[[int], Callable[..., Any]]) -> None:
    assert refused(run(MANY), (MANY, MANY)) == ""
    assert "nothing was written to" in refused(run(MANY - 1), (MANY, MANY))


def flat(x: Any) -> Any:
    z = torch.empty(MANY, MANY)
    z[:, : MANY // 2] = x[:, : MANY // 2]
    z.view(MANY * MANY)[5:].copy_(x.view(MANY * MANY)[5:])
    return z * 2


def test_entries_that_cannot_be_told_apart_are_refused() -> None:
    assert "is not followed" in refused(flat, (MANY, MANY))


def strided(count: int) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        z = torch.empty(4, 4)
        z[:count] = x[:count]
        return torch.as_strided(z, (2, 4), (4, 1), 4) * 2

    return run


def test_strides_are_those_of_memory() -> None:
    assert refused(strided(3), (4, 4)) == ""
    assert "nothing was written to" in refused(strided(2), (4, 4))


@pytest.mark.parametrize("needed", [True, False])
def test_a_result_that_nobody_needs_reads_nothing(needed: bool) -> None:
    """Writes of it, in memory that is needed, are needed."""

    def run(x: Any) -> Any:
        room = torch.empty(4, 4) * 2
        room = room.exp() + x
        return room if needed else x + 1

    def written(x: Any) -> Any:
        room = torch.empty(4, 4) * 2
        z = torch.zeros(4, 4)
        z.copy_(room)
        return z if needed else x + 1

    for each in (run, written):
        assert bool(refused(each, (4, 4))) == needed


@pytest.mark.parametrize("written", [4, 3])
def test_what_a_buffer_holds_in_the_end_is_needed(written: int) -> None:
    def moved(x: Any) -> Any:
        z = torch.empty(4, 4)
        z[:written] = x[:written]
        return z.t()

    for run in (moved, lambda x: moved(x) + x):
        assert bool(refused(run, (4, 4), kept=True)) == (written < 4)


@pytest.mark.parametrize(("read", "written", "same"), [(0, 0, True), (1, 1, True), (0, 1, False)])
def test_lines_that_are_put_back_where_they_were_change_nothing(read, written, same):
    b = Builder("lines")
    e = Emit(b)
    x = b.input("x", TensorType((4, 3), "f32"))
    part = e.slice(x, 0, read, read + 2)
    made = slice_scatter(e, x, part, 0, written, written + 2)
    b.output(made)
    values = np.arange(12.0).reshape(4, 3)
    want = values.copy()
    want[written : written + 2] = values[read : read + 2]
    assert (made == x) == same
    assert np.array_equal(evaluate(b.build(), {"x": values}, Floats())[made], want)


@pytest.mark.parametrize(("read", "written", "same"), [(1, 1, True), (0, 1, False), (2, 2, True)])
def test_every_nth_line_that_is_put_back_where_it_was_changes_nothing(read, written, same):
    b = Builder("lines")
    e = Emit(b)
    x = b.input("x", TensorType((6, 2), "f32"))
    part = every(e, x, 0, read, 3)
    made = slice_scatter(e, x, part, 0, written, None, 3)
    b.output(made)
    values = np.arange(12.0).reshape(6, 2)
    want = values.copy()
    want[written::3] = values[read::3]
    assert (made == x) == same
    assert np.array_equal(evaluate(b.build(), {"x": values}, Floats())[made], want)


@pytest.mark.parametrize(
    ("start", "stop", "step"), [(0, 6, 2), (1, 7, 2), (1, 7, 3), (0, 5, 2), (6, 7, 4), (5, 3, 2)]
)
def test_every_nth_line_is_exchanged(start, stop, step):
    values, lines = np.arange(14.0).reshape(7, 2), range(start, stop, step)
    b = Builder("lines")
    e = Emit(b)
    x = b.input("x", TensorType((7, 2), "f32"))
    part = e.slice(x, 0, 0, len(lines))
    made = slice_scatter(e, x, part, 0, start, stop, step)
    b.output(made)
    want = values.copy()
    want[start:stop:step] = values[: len(lines)]
    assert np.array_equal(evaluate(b.build(), {"x": values}, Floats())[made], want)
