"""Classes of ops, as their declarations have it: `node.op in VIEWS`.

Nothing here names an op. One that is declared is in each class that its declaration puts it in.
"""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field

from shardproof.verifier.kernel.program.registry import REGISTRY, Op
from shardproof.verifier.ops.facets import facets


@dataclass(frozen=True, eq=False)
class OpClass(Container[str]):
    """The ops of which something holds. Names that no op has, as those of terms, are in none."""

    holds: Callable[[Op], bool]
    _known: dict[str, bool] = field(default_factory=dict[str, bool])

    def __contains__(self, name: object) -> bool:
        assert isinstance(name, str)
        known = self._known.get(name)
        if known is None:
            op = REGISTRY.get(name)
            if op is None:
                return False
            known = self._known[name] = self.holds(op)
        return known

    def __iter__(self) -> Iterator[str]:
        return (name for name in sorted(REGISTRY) if name in self)


def operands(op: Op) -> int:
    """How many operands an op has; 0 where that is for a program to say."""
    left = op.signature.partition("->")[0].strip()
    return 0 if left.startswith("*") or not left else left.count(",") + 1


def _linear(op: Op) -> bool:
    """In all operands together."""
    return frozenset(range(operands(op))) in op.linear if operands(op) else False


def _resizes(op: Op) -> bool:
    return op.kind == "view" and "dim" in op.attrs and not facets(op.name).rearranges


def _transparent(op: Op) -> bool:
    one = op.kind in ("map", "view") and operands(op) == 1 and _linear(op)
    return one and not facets(op.name).spreads


def _aligned(op: Op) -> bool:
    along = op.kind == "index" and op.name in ALONG and facets(op.name).adds
    return op.kind == "map" or along or (op.kind == "view" and not operands(op))


def _pieces(op: Op) -> bool:
    return "mesh_dim" in op.attrs and not {"dim", "split_dim"}.isdisjoint(op.attrs)


# views
REARRANGING = OpClass(lambda op: facets(op.name).rearranges)
"""The result is the entries of the operand, each once, in another order or shape."""
VIEWS = OpClass(lambda op: op.kind == "view" and not _resizes(op))
"""Likewise, and those that repeat entries."""
CUTS = OpClass(_resizes)
"""Views that change the extent of one dim: they cut it, join operands along it or fill it up."""
SPREADING = OpClass(lambda op: facets(op.name).spreads)
"""Results are equal along a dim or made of nothing, and may be had in any layout."""

# numbers
PRODUCTS = OpClass(lambda op: op.kind == "einsum")
SCALING = OpClass(lambda op: op.kind == "map" and _linear(op))
"""Entry by entry, and linear in all operands together."""
TRANSPARENT = OpClass(_transparent)
"""Of one operand: each entry of the result is an entry of it, times a number."""
ALIGNED = OpClass(_aligned)
"""Several operands whose dims are those of the result: they are laid out as one another."""
ORDERS = OpClass(lambda op: facets(op.name).truth and bool(facets(op.name).rises))
"""Comparisons that tell the larger from the smaller operand."""

# tables
LOOKUPS = OpClass(lambda op: op.kind == "index" and not facets(op.name).adds)
"""Entries of a table at given indices."""
SCATTERS = OpClass(lambda op: op.kind == "index" and facets(op.name).adds)
"""Entries added up into a table at given indices: the adjoints of lookups."""
ALONG = OpClass(
    lambda op: op.kind == "index" and "..." in op.signature.partition("->")[0].split(",")[-1]
)
"""Lookups and scatters line by line: each entry has its own index."""

# ranks
SILENT = OpClass(lambda op: op.kind == "collective" and not op.traits.meets)
"""Collectives in which nothing is sent."""
REDUCING = OpClass(lambda op: bool(op.traits.meets) and "reduce" in op.attrs)
"""Ranks meet, and their values are reduced."""
PIECES = OpClass(_pieces)
"""The coordinate of a rank says which piece it brings or gets."""
MESSAGES = OpClass(lambda op: "src" in op.attrs)
"""From one rank to another."""
