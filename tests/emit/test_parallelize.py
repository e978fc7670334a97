"""The plan that a patch hands to PyTorch names each module once."""

from __future__ import annotations

from fnmatch import fnmatchcase

from synthesis.emit.facts import Argument, ModelFacts, ModuleFact
from synthesis.emit.parallelize import placed_modules
from synthesis.plan import ModulePlan, Plan
from verifier.kernel.program.types import Mesh


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
