"""Placement rules with their results remembered."""

from collections.abc import Hashable
from typing import Any

from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.ops import Refused, lookup
from shardproof.verifier.kernel.program.program import Node
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.ops import facets
from shardproof.verifier.provers.placement import Operands, Placed, place


class Rules:
    """Placement rules with their results remembered: equal layers cost one application each."""

    def __init__(self, mesh: Mesh, wide: bool = False, sharing: bool = False) -> None:
        self.mesh = mesh
        self.sharing = sharing or wide
        """Whether what all ranks hold alike may be read as shares of a sum."""
        self.wide = wide
        """Whether the walk may use the ways of `verifier/provers/relate/strategies.py` too."""
        self._memo: dict[Any, list[Placed] | Refused] = {}
        self.inductions: dict[Hashable, Any] = {}
        """Repeated blocks that were related, by all that it depends on."""
        self.shared = False
        """Whether the walk met what `sharing` reads, or would have read, as shares of a sum."""
        self.peeling = False
        """A walk may end where a block is found that has to be cut: it starts again after that."""
        self.applied = 0
        self.reused = 0

    def place(
        self,
        node: Node,
        layouts: tuple[Layout, ...],
        zeros: frozenset[int],
        known: frozenset[tuple[int, ...]] = frozenset(),
    ) -> list[Placed]:
        """What the op's rule says of operands laid out so; `known` as `Operands` has it.

        Raises:
            Refused: the rule says nothing.
        """
        op = lookup(node.op)
        attrs = tuple(sorted(op.with_defaults(node.attrs).items()))
        known = known if facets(op.name).spreads else frozenset()
        key = (node.op, attrs, layouts, zeros, known)
        found = self._memo.get(key)
        if found is None:
            self.applied += 1
            try:
                found = place(op, Operands(layouts, attrs, self.mesh, zeros, known))
            except Refused as refusal:
                found = refusal
            self._memo[key] = found
        else:
            self.reused += 1
        if isinstance(found, Refused):
            raise found
        return found
