"""Which modules each stage of a pipeline keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardproof.synthesis.emit.facts import ModelFacts, ModuleFact
from shardproof.synthesis.emit.patch import EmitError
from shardproof.synthesis.emit.stages import Cut, cut

WEIGHT = {"weight": (4, 4)}


def block(number: int) -> ModuleFact:
    path = f"blocks.{number}"
    return ModuleFact(
        path, "Block", "Block", output="tensor", children=1, called=2 + number, follows=number > 0
    )


MODULES = (
    ModuleFact("", "Net", "Net", called=9),
    ModuleFact("table", "Embedding", "Embedding", WEIGHT, output="tensor", called=1),
    ModuleFact("blocks", "ModuleList", "ModuleList"),
    *map(block, range(5)),
    ModuleFact("head", "Linear", "Linear", WEIGHT, output="tensor", called=8),
    ModuleFact("norm", "LayerNorm", "LayerNorm", WEIGHT, output="tensor", called=7),
    ModuleFact("places", "Embedding", "Embedding", WEIGHT, output="tensor", called=0),
)
FACTS = ModelFacts("net.py:Net", "Net", {}, modules=MODULES)
TIED = replace(FACTS, tied=(("table.weight", "head.weight"),))


def changed(path: str, **fields: object) -> ModelFacts:
    modules = (replace(m, **fields) if m.path == path else m for m in MODULES)  # type: ignore[arg-type]
    return replace(FACTS, modules=tuple(modules))


BIASED = replace(changed("head", params={**WEIGHT, "bias": (4,)}), tied=TIED.tied)


def test_earlier_stages_have_a_block_more() -> None:
    assert cut(FACTS, 3).stages == (
        ("places", "table", "blocks.0", "blocks.1"),
        ("blocks.2", "blocks.3"),
        ("blocks.4", "norm", "head"),
    )


@pytest.mark.parametrize(
    "blocks", [((0, 1, 2), (3, 4)), ((0, 1), (2, 3), (4,))], ids=["two stages", "three"]
)
def test_modules_of_one_parameter_are_on_both_ends(blocks: tuple[tuple[int, ...], ...]) -> None:
    first, *inner, last = (tuple(f"blocks.{number}" for number in stage) for stage in blocks)
    ends = ("places", "table", *first, "head"), (*last, "norm", "head", "table")
    assert cut(TIED, len(blocks)) == Cut((ends[0], *inner, ends[1]), ("table.weight",))


@pytest.mark.parametrize(
    ("facts", "count", "says"),
    [
        (FACTS, 6, "blocks has 5 blocks, fewer than 6 stages"),
        (replace(FACTS, tied=(("blocks.0.w", "blocks.4.w"),)), 2, "of stages 0 and 1"),
        (BIASED, 2, "on two stages, beside head.bias"),
        (changed("", params=WEIGHT), 2, "weight is a parameter of no stage's module"),
        (changed("table", called=-1), 2, "table is not called"),
        (changed("norm", called=4), 2, "norm is called among the blocks of blocks"),
        (changed("blocks.3", follows=False), 2, "blocks.3 is not given, first, what the block"),
        (changed("blocks.3", output="tuple"), 2, "blocks.3 gives a tuple"),
        (changed("blocks.3", kind="Other"), 2, "one list of blocks of one class; the model has"),
    ],
    ids=[
        *("count", "blocks tied", "bias", "own", "uncalled", "among"),
        *("chain", "tuple", "classes"),
    ],
)
def test_what_no_stage_can_keep_is_said(facts: ModelFacts, count: int, says: str) -> None:
    with pytest.raises(EmitError, match=says):
        cut(facts, count)
