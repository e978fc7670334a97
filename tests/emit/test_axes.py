"""Extents that are given by name, as einops takes them."""

from __future__ import annotations

import pytest

from shardproof.synthesis.emit import EmitError
from shardproof.synthesis.emit.attributes import (
    AttributeChange,
    LengthChange,
    attribute_changes,
    length_changes,
)
from shardproof.synthesis.emit.extents import edit_extents
from shardproof.synthesis.emit.facts import ModelFacts, ModuleFact
from shardproof.synthesis.emit.source import SourceText
from shardproof.synthesis.planner.plan import LocalExtent

HEADS = LocalExtent("m.py", 1, "reshape", "h.*.attn", (2, 9, 4, 16), (2, 9, 2, 16))


def edited(line: str, extent: LocalExtent = HEADS) -> str:
    source = SourceText("m.py", line)
    return source.apply(edit_extents(source, [extent]))


@pytest.mark.parametrize(
    ("line", "local"),
    [
        (
            'q = rearrange(x, "b n (h d) -> b h n d", h=self.heads, d=self.size)',
            'q = rearrange(x, "b n (h d) -> b h n d", d=self.size)',
        ),
        (
            'q = einops.rearrange(x, "b n (h d) -> (b h) n d", d=16, h=4)',
            'q = einops.rearrange(x, "b n (h d) -> (b h) n d", d=16)',
        ),
        (
            'm = reduce(x, "b n (h d) -> b n d", "mean", h=4, d=16)',
            'm = reduce(x, "b n (h d) -> b n d", "mean", d=16)',
        ),
        (
            'q, k = (rearrange(t, "b n (h d) -> b h n d", h=4, d=16) for t in x)',
            'q, k = (rearrange(t, "b n (h d) -> b h n d", d=16) for t in x)',
        ),
        (
            'q = rearrange(x, "... (h d) -> ... h d", h=4, d=16)',
            'q = rearrange(x, "... (h d) -> ... h d", d=16)',
        ),
    ],
)
def test_a_length_that_the_others_tell_is_left_out(line: str, local: str) -> None:
    assert edited(line) == local


@pytest.mark.parametrize(
    "line",
    [
        'y = rearrange(x, "b h n d -> b n (h d)")',
        'y = rearrange(x, "b ... h d -> b ... (h d)")',
        "y = rearrange(x, pattern, h=4)",
        'y = repeat(x, "b n h d -> b n h d")',
    ],
)
def test_what_einops_reads_off_its_operand_stays(line: str) -> None:
    assert edited(line) == line


def test_a_length_that_is_the_only_one_is_an_attribute_s_to_make_local() -> None:
    line = 'q = map(lambda t: rearrange(t, "b n (h d) -> b h n d", h=self.heads), x)'
    with pytest.raises(EmitError, match=r"m\.py:1: no length but that of h is given in \(h d\)"):
        edited(line)
    text = f"class A:\n    def forward(self, x):\n        {line}\n"
    fact = ModuleFact("h.0.attn", "A", "A", ints={"heads": 4, "size": 16})
    extent = LocalExtent("m.py", 3, "reshape", "h.*.attn", HEADS.whole, HEADS.local)
    facts = ModelFacts("m.py:A", "A", {}, modules=(fact,))
    found = attribute_changes(facts, [extent], 2, lambda _: text)
    assert found == [AttributeChange("h.*.attn", "heads", "tp.size()")]


@pytest.mark.parametrize(
    ("pattern", "lengths", "changes"),
    [
        ("b n (h d) -> b h n d", {"h": 4}, [LengthChange("h.*.attn", ("h",), "tp.size()")]),
        ("... (h d) -> ... h d", {"h": 4}, [LengthChange("h.*.attn", ("h",), "tp.size()")]),
        ("b n (h d) -> b h n d", {"d": 16}, []),
        ("b h n d -> b n (h d)", {}, []),
        ("", {}, []),
    ],
)
def test_a_layer_is_told_that_an_axis_is_shorter(
    pattern: str, lengths: dict[str, int], changes: list[LengthChange]
) -> None:
    fact = ModuleFact("h.0.attn", "Rearrange", "Rearrange", pattern=pattern, lengths=lengths)
    facts = ModelFacts("m.py:A", "A", {}, modules=(fact,))
    assert length_changes(facts, [HEADS], 2) == changes


def test_axes_of_a_layer_are_divided() -> None:
    pytest.importorskip("torch")
    from shardproof.runtime import divide_axes

    class Layer:
        def __init__(self, pattern: str, **lengths: int) -> None:
            self.state = {"pattern": pattern, "axes_lengths": lengths}

        def __getstate__(self) -> dict[str, object]:
            return self.state

        def __setstate__(self, state: dict[str, object]) -> None:
            self.state = state

    layer = Layer("b n (h d) -> b h n d", h=4, d=16)
    divide_axes(layer, h=2)
    assert layer.state == {"pattern": "b n (h d) -> b h n d", "axes_lengths": {"h": 2, "d": 16}}
