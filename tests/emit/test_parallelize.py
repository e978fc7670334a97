"""The plan that a patch hands to PyTorch names each module once."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from shardproof.synthesis.emit.facts import Argument, ModelFacts, ModuleFact
from shardproof.synthesis.emit.parallelize import placed_modules
from shardproof.synthesis.planner.plan import ModulePlan, Plan
from shardproof.verifier.kernel.program.types import Mesh


def test_a_weight_that_code_reads_of_a_module_it_does_not_call_is_no_dtensor() -> None:
    ids, x = (Argument(0, "ids", (2, 8), False),), (Argument(0, "x", (2, 8), True),)
    called: dict[str, Any] = {"params": {"weight": (8, 8)}, "positional": 1, "output": "tensor"}
    words = ModuleFact("words", "Embedding", "Embedding", arguments=ids, **called)
    head = ModuleFact("head", "Linear", "Linear", arguments=x, **called)
    plan = Plan(Mesh.of(tp=2), tp="tp", modules=(ModulePlan("up", "Linear", "column"),))
    for other, placed in ((head, ["words", "head"]), (replace(head, output=""), [])):
        facts = ModelFacts("m.py:M", "M", {}, modules=(words, other))
        facts = replace(facts, tied=(("words.weight", "head.weight"),))
        assert placed_modules(facts, plan) == ["up", *placed]


def test_a_module_of_one_layer_is_no_part_of_all_layers() -> None:
    x = (Argument(0, "x", (2, 8), True),)
    params = {"weight": (8, 8)}
    paths = ["h.0.mlp", "h.0.scan", "h.1.mlp", "h.1.query", "h.2.mlp", "h.2.query", "head"]
    modules = tuple(
        ModuleFact(path, "Linear", "Linear", params, {}, x, 1, "tensor", (2, 8)) for path in paths
    )
    facts = ModelFacts("m.py:M", "M", {}, modules=modules)
    split = (ModulePlan("h.*.mlp", "Linear", "column"), ModulePlan("h.1.query", "Linear", "column"))
    placed = placed_modules(facts, Plan(Mesh.of(tp=2), tp="tp", modules=split))
    for path in paths:
        assert sum(fnmatchcase(path, pattern) for pattern in placed) == 1
