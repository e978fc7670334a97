"""Steps from one layout to another, run on every rank, give the pieces of the other layout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shardproof.synthesis.lower.local_attributes import Reading, localize
from shardproof.synthesis.lower.redistribute import path, volumes
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.layout import Atom, Layout, normal
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Node
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.refute.evaluate import simulate
from shardproof.verifier.refute.scatter import gather, scatter

MESH = Mesh.of(dp=2, tp=2)
SHAPE = (8, 4)
PLACEMENTS = ("R", "S(0)", "S(1)", "P")
FUSED = Layout((normal((Atom(2), Atom(2, "tp"), Atom(2))), (Atom(4),)))


def layout(dp: str, tp: str) -> Layout:
    return from_placements(SHAPE, (("dp", 2, dp), ("tp", 2, tp)))


layouts = st.builds(layout, st.sampled_from(PLACEMENTS), st.sampled_from(PLACEMENTS)) | st.just(
    FUSED
)


def moved(source: Layout, target: Layout) -> list[np.ndarray] | None:
    """The pieces after the steps, with whatever is pending folded by `gather` later."""
    steps = path(source, target, MESH)
    if steps is None:
        return None
    b = Builder("move", MESH)
    value = b.input("x", TensorType(source.local_shape, "f64"))
    for step in steps:
        (value,) = b.add_node(step.op, [value], dict(step.attrs))
    b.output(value)
    whole = np.arange(32.0).reshape(SHAPE)
    parts = scatter(whole, source, MESH, Floats(), np.random.default_rng(0))
    return [s[value] for s in simulate(b.build(), [{"x": p} for p in parts])]


@settings(deadline=None, max_examples=200)
@given(layouts, layouts)
def test_steps_give_the_pieces_of_the_target(source: Layout, target: Layout) -> None:
    parts = moved(source, target)
    if parts is None:
        return
    whole = np.arange(32.0).reshape(SHAPE)
    assert np.allclose(gather(parts, target, MESH, Floats()), whole)
    if not target.pending:
        expected = scatter(whole, target, MESH, Floats(), np.random.default_rng(0))
        for got, want in zip(parts, expected, strict=True):
            assert np.allclose(got, want)


@pytest.mark.parametrize("tp", ["R", "S(0)", "S(1)", "P"])
@pytest.mark.parametrize("to", ["R", "S(0)", "S(1)"])
def test_one_mesh_dim_always_has_a_way_to_a_placement(tp: str, to: str) -> None:
    assert path(layout("R", tp), layout("R", to), MESH) is not None


def test_no_way_to_a_pending_sum() -> None:
    assert path(layout("R", "R"), layout("R", "P"), MESH) is None


def test_a_split_moves_to_another_dim_in_one_collective() -> None:
    steps = path(layout("R", "S(0)"), layout("R", "S(1)"), MESH)
    assert steps is not None
    assert [s.op for s in steps] == ["all_to_all"]


def test_a_pending_sum_is_scattered_in_one_collective() -> None:
    source = layout("R", "P")
    steps = path(source, layout("R", "S(1)"), MESH)
    assert steps is not None
    assert list(volumes(source, steps)) == [("reduce_scatter", "tp", 32)]


def test_a_fused_split_is_gathered_through_a_reshape() -> None:
    steps = path(FUSED, layout("R", "R"), MESH)
    assert steps is not None
    assert [s.op for s in steps] == ["reshape", "all_gather", "reshape"]


def test_gradients_of_local_means_are_averaged() -> None:
    steps = path(layout("P", "R"), layout("S(0)", "R"), MESH, mean="dp")
    assert steps is not None
    assert dict(steps[0].attrs)["reduce"] == "avg"


def test_a_value_without_entries_is_not_moved() -> None:
    """Rotary halves of a head may be empty: nothing divides by their extent."""
    split = Layout((normal((Atom(2, "tp"), Atom(0))), (Atom(4),)))
    strided = Layout((normal((Atom(0), Atom(2, "tp"))), (Atom(4),)))
    assert path(split, strided, MESH) is None
    assert path(strided, split, MESH) is None
    node = Node("pad", ("x",), ("y",), {"dim": 0, "lo": 2, "hi": 4})
    want = Reading((6, 4), None, None)
    assert list(localize(node, (split,), want)) == []
