"""Patches that start the guard hold the layouts of the proof."""

from __future__ import annotations

import pytest

from shardproof.synthesis.emit import guarding
from shardproof.synthesis.emit.patch import EmitError
from shardproof.verifier.kernel.layout import Atom, Layout
from shardproof.verifier.kernel.placements import from_placements


@pytest.mark.parametrize(
    ("layout", "stacked", "text"),
    [
        (Layout.replicate((8, 4)), 0, "[8] [4]"),
        (from_placements((8, 4), [("tp", 2, "S(0)")]), 0, "[tp 4] [4]"),
        (from_placements((3, 8, 4), [("tp", 2, "S(2)"), ("dp", 2, "S(1)")]), 1, "[dp 4] [tp 2]"),
        (
            Layout.replicate((24, 4)).with_dim(0, (Atom(3), Atom(2, "tp"), Atom(4))),
            0,
            "[3 tp 4] [4]",
        ),
    ],
)
def test_layouts_as_text(layout: Layout, stacked: int, text: str) -> None:
    assert guarding.layout_text(layout, stacked) == text


def test_layers_that_are_split_are_refused() -> None:
    split = from_placements((4, 8), [("pp", 2, "S(0)")])
    with pytest.raises(EmitError, match="split by layers"):
        guarding.layout_text(split, 1)


def test_the_constant_is_python() -> None:
    found = {"a.*.w": "[tp 4] [4]"}
    space: dict[str, object] = {}
    exec(guarding.constant(found), space)
    assert space[guarding.CONSTANT] == found
