"""Extents of library code: which attributes become local, and which results are written into."""

from __future__ import annotations

from synthesis.emit.attributes import AttributeChange, attribute_changes
from synthesis.emit.facts import ForwardFact, ModelFacts, ModuleFact
from synthesis.emit.inplace import written_into
from synthesis.emit.parallelize import _attributes
from synthesis.plan import LocalExtent, ModulePlan

LIBRARY = """import torch

class Attention:
    def _split(self, x, heads, size):
        shape = x.size()[:-1] + (heads, size)
        return x.view(shape)

    def _merge(self, x):
        return x.reshape(4, 8, self.width)

    def forward(self, x):
        query = self._split(self.q(x), self.heads, self.size)
        key = query.reshape(4, 8, self.kv_heads, self.size)
        bias = torch.zeros((1, 8, self.more, 16))
        return self._merge(key + bias).view(4, 8, self.rows, 16)
"""
INTS = {"heads": 4, "kv_heads": 4, "more": 4, "size": 16, "width": 64, "rows": 3}


def changes(*extents: tuple[int, str, tuple[int, ...], tuple[int, ...]]) -> set[AttributeChange]:
    fact = ModuleFact("h.0.attn", "Attention", "Attention", ints=INTS)
    given = [LocalExtent("lib.py", n, op, "h.*.attn", a, b) for n, op, a, b in extents]
    facts = ModelFacts("hf:M", "M", {}, modules=(fact,))
    return set(attribute_changes(facts, given, 2, lambda _: LIBRARY))


def test_extents_in_methods_and_in_reshapes_that_change_nothing_are_found() -> None:
    """Capture names the line of forward alone, and sees no reshape to the same shape."""
    found = changes((12, "reshape", (4, 8, 4, 16), (4, 8, 2, 16)))
    assert {c.name for c in found} == {"heads", "kv_heads", "more"}
    assert {c.divisor for c in found} == {"tp.size()"}


def test_attributes_that_say_another_number_stay() -> None:
    assert {c.name for c in changes((15, "reshape", (4, 8, 64), (4, 8, 32)))} == {"width"}


FORWARD = """def forward(self, x):
    y = self.mlp(x)
    z = self.attn(x)
    y += z
    return y + self.norm(x)
"""


def test_results_that_are_added_to_in_place_are_found() -> None:
    modules = tuple(ModuleFact(p, "Block", "Block") for p in ("h.0", "h.1"))
    facts = ModelFacts("hf:M", "M", {}, "", modules, {"Block": ForwardFact("lib.py", 1, FORWARD)})
    plan = [
        ModulePlan("h.*.mlp.up", "Linear", "column", "R", "S(-1)"),
        ModulePlan("h.*.mlp.down", "Linear", "row", "S(-1)", "R"),
        ModulePlan("h.*.attn.out", "Linear", "row", "S(-1)", "R"),
    ]
    assert written_into(facts, plan) == {"h.*.mlp.down"}


def test_parts_of_blocks_that_are_numbered_are_indexed() -> None:
    change = AttributeChange("encoder.block.*.layer.0.attention", "heads", divisor="tp.size()")
    assert _attributes([change]) == [
        "    for block in model.encoder.block:",
        "        block.layer[0].attention.heads //= tp.size()",
    ]
