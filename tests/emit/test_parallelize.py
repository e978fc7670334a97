"""The plan that a patch hands to PyTorch names each module once."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from shardproof.synthesis.emit.facts import Argument, ModelFacts, ModuleFact
from shardproof.synthesis.emit.parallelize import parallelize_code, placed_modules
from shardproof.synthesis.emit.patch import EmitError
from shardproof.synthesis.planner.plan import ModulePlan, Plan
from shardproof.verifier.kernel.program.types import Mesh


def test_modules_that_stay_whole_have_no_line_of_their_own() -> None:
    x = (Argument(0, "x", (2, 8), True),)
    params = {"weight": (8, 8)}
    paths = ["h.0.mlp", "h.0.norm", "h.1.mlp", "h.1.query", "h.1.norm", "head"]
    modules = tuple(
        ModuleFact(path, "Linear", "Linear", params, {}, x, 1, "tensor", (2, 8)) for path in paths
    )
    facts = ModelFacts("m.py:M", "M", {}, modules=modules)
    mlp = ModulePlan("h.*.mlp", "Linear", "column", "R", "S(-1)")
    met = ModulePlan("h.*.norm", "Linear", "replicate", shared=True)
    query = ModulePlan("h.1.query", "Linear", "column", "R", "S(-1)")
    plan = Plan(Mesh.of(tp=2), tp="tp", modules=(mlp, met, query))
    assert placed_modules(facts, plan) == ["h.*.mlp", "h.1.query"]
    function = parallelize_code(plan, facts, (), None).function
    assert re.findall(r'"(h.*)": (.*),', function) == [
        ("h.*.mlp", "ColwiseParallel()"),
        ("h.*.norm", "SharedOutput()"),
        ("h.1.query", "ColwiseParallel()"),
    ]
    assert "    replicate_rest(model, tp)\n" in function


def test_what_is_tied_to_a_module_that_stays_whole_is_tied_once() -> None:
    ids, x = (Argument(0, "ids", (2, 8), False),), (Argument(0, "x", (2, 8), True),)
    called: dict[str, Any] = {"params": {"weight": (8, 8)}, "positional": 1, "output": "tensor"}
    words = ModuleFact("words", "Embedding", "Embedding", arguments=ids, **called)
    head = ModuleFact("head", "Linear", "Linear", arguments=x, **called)
    up = ModulePlan("up", "Linear", "column", "R", "S(-1)")
    facts = ModelFacts("m.py:M", "M", {}, modules=(words, head, replace(head, path="up")))
    facts = replace(facts, tied=(("words.weight", "head.weight"),))
    whole = Plan(Mesh.of(tp=2), tp="tp", modules=(up,))
    assert ".weight = " not in parallelize_code(whole, facts, (), None).function
    split = replace(whole, modules=(ModulePlan("head", "Linear", "column"),))
    with pytest.raises(EmitError, match=r"words\.weight R, head\.weight S"):
        parallelize_code(split, facts, (), None)
