"""Local attributes of views and lookups mean the whole op, by the rule of the op itself."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from shardproof.synthesis.lower.local_attributes import (
    Reading,
    localize,
    regroup_whole,
    source_layout,
)
from shardproof.verifier.kernel.layout import Atom, Layout, normal
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.program import Node
from shardproof.verifier.kernel.program.types import Affine

SPLIT = from_placements((4, 8), (("tp", 2, "S(1)"),))


def node(op: str, **attrs: Any) -> Node:
    return Node(op, ("x",), ("y",), attrs)


def local(made: Node, layout: Layout, shape: tuple[int, ...]) -> dict[str, Any]:
    return next(localize(made, (layout,), Reading(shape)))


def test_reshape_into_heads_keeps_the_split_on_heads() -> None:
    layout = regroup_whole(SPLIT, (4, 4, 2))
    assert layout is not None
    assert layout.placement("tp") == "Shard(1)"
    assert local(node("reshape", shape=(4, 4, 2)), SPLIT, (4, 4, 2))["shape"] == (4, 2, 2)


def test_reshape_through_a_split_is_refused() -> None:
    assert regroup_whole(SPLIT, (4, 1, 8)) is not None
    assert regroup_whole(from_placements((6,), (("tp", 3, "S(0)"),)), (2, 3)) is None


@pytest.mark.parametrize("shape", [(4, 8), (4, 2, 4), (2, 2, 8), (32,), (4, 8, 1)])
def test_regrouping_there_and_back_is_the_layout_itself(shape: tuple[int, ...]) -> None:
    there = regroup_whole(SPLIT, shape)
    assert there is not None
    assert regroup_whole(there, SPLIT.global_shape) == SPLIT


def test_pieces_of_a_fused_weight_are_cut_at_local_positions() -> None:
    fused = Layout((normal((Atom(3), Atom(2, "tp"), Atom(4))),))
    made = node("slice", dim=0, start=8, stop=16, step=1)
    found = local(made, fused, (8,))
    assert (found["start"], found["stop"]) == (4, 8)


def test_a_cut_through_a_split_has_no_local_counterpart() -> None:
    made = node("slice", dim=1, start=1, stop=7, step=1)
    assert list(localize(made, (SPLIT,), Reading((4, 6)))) == []


def test_a_lookup_of_split_rows_starts_at_the_ranks_own() -> None:
    table = from_placements((8, 4), (("tp", 2, "S(0)"),))
    made = Node("take", ("table", "ids"), ("y",), {"dim": 0, "offset": 0})
    ids = Layout.replicate((3,))
    (found,) = localize(made, (table, ids), Reading((3, 4)))
    assert isinstance(found["offset"], Affine)
    assert found["offset"].at({"tp": 1}) == 4


@pytest.mark.parametrize(
    ("made", "shape"),
    [
        (node("permute", dims=(1, 0)), (8, 4)),
        (node("reshape", shape=(4, 8)), (4, 2, 4)),
        (node("mul_scalar", value=Fraction(2)), (4, 8)),
        (node("cast", dtype="bf16"), (4, 8)),
    ],
    ids=lambda x: x.op if isinstance(x, Node) else "",
)
def test_a_view_is_split_by_splitting_what_it_views(made: Node, shape: tuple[int, ...]) -> None:
    found = source_layout(made, SPLIT, shape)
    assert found is not None
    assert found.global_shape == shape
    assert found.sharded == {"tp"}
