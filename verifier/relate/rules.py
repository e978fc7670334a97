"""Placement rules with their results remembered."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from verifier.ir.program import Node
from verifier.ir.types import Mesh
from verifier.layout import Layout
from verifier.ops import Operands, Placed, Refused, lookup


class Rules:
    """Placement rules with their results remembered: equal layers cost one application each."""

    def __init__(self, mesh: Mesh, wide: bool = False) -> None:
        self.mesh = mesh
        self.wide = wide
        """Whether the walk may use the ways of `verifier/relate/widened.py` too."""
        self._memo: dict[Any, list[Placed] | Refused] = {}
        self.inductions: dict[Hashable, Any] = {}
        """Repeated blocks that were related, by all that it depends on."""
        self.peeling = False
        """A walk may end where a block is found that has to be cut: it starts again after that."""
        self.applied = 0
        self.reused = 0

    def place(self, node: Node, layouts: tuple[Layout, ...], zeros: frozenset[int]) -> list[Placed]:
        attrs = tuple(sorted(lookup(node.op).with_defaults(node.attrs).items()))
        key = (node.op, attrs, layouts, zeros)
        found = self._memo.get(key)
        if found is None:
            self.applied += 1
            op = lookup(node.op)
            try:
                found = op.place(op, Operands(layouts, attrs, self.mesh, zeros))
            except Refused as refusal:
                found = refusal
            self._memo[key] = found
        else:
            self.reused += 1
        if isinstance(found, Refused):
            raise found
        return found
