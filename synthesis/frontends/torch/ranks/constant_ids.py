"""Which constants of a rank are kept as ops: masks of lookups whose indices are known.

Where ids do not depend on an input, as zeros that are made in forward, so do not the mask that says
which of them lie among a rank's rows, nor their places there. Folded they would be numbers of that
rank, of which nothing says that they are one rule along the mesh. Rows are those of one tensor that
the model holds: what is computed of several has no rows of a rank, and one device folds there too.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

from collections.abc import Iterable, Set as AbstractSet
from typing import Any

import torch
from torch import fx

from shardproof.synthesis.frontends.torch.trace import Traced

_LOOKUPS = {"embedding", "index_select", "index", "gather"}
_COMPARISONS = {"lt", "le", "gt", "ge"}


def of_windows(traced: Traced, folded: AbstractSet[fx.Node]) -> set[fx.Node]:
    """The folded nodes between ids and the masks and places of lookups, by comparing the ids with
    numbers."""
    found: set[fx.Node] = set()
    for lookup in traced.graph.nodes:
        if lookup in folded or _name(lookup) not in _LOOKUPS or not _is_held(lookup.args[0]):
            continue
        places = [n for n in lookup.all_input_nodes if n in folded]
        for mask in {n for user in lookup.users for n in user.all_input_nodes if _is_mask(n)}:
            before = _before([mask], folded)
            ids = {
                n.all_input_nodes[0] for n in before if _name(n) in _COMPARISONS and _of_integers(n)
            }
            if places and len(ids) == 1:
                found |= _after(ids, _before([mask, *places], folded))
    return found


def _is_held(node: Any) -> bool:
    """Whether a tensor is given, or made of one that is alone."""
    while isinstance(node, fx.Node) and len(node.all_input_nodes) == 1:
        node = node.all_input_nodes[0]
    return isinstance(node, fx.Node) and node.op == "placeholder"


def _name(node: fx.Node) -> str:
    return getattr(node.target, "__name__", "").partition(".")[0] if node.op[:4] == "call" else ""


def _is_mask(node: fx.Node) -> bool:
    val = node.meta.get("val")
    return isinstance(val, torch.Tensor) and val.dtype == torch.bool


def _of_integers(node: fx.Node) -> bool:
    """Whether it compares integers with a number."""
    known, limit = node.args
    val = known.meta.get("val") if isinstance(known, fx.Node) else None
    return isinstance(limit, int) and isinstance(val, torch.Tensor) and not val.is_floating_point()


def _before(nodes: Iterable[fx.Node], folded: AbstractSet[fx.Node]) -> list[fx.Node]:
    """Folded nodes that others, if they are folded, are made of, and these, in order."""
    found: dict[fx.Node, None] = {}
    stack = [n for n in nodes if n in folded]
    while stack:
        node = stack.pop()
        if node not in found:
            found[node] = None
            stack += [n for n in node.all_input_nodes if n in folded]
    return sorted(found)


def _after(known: AbstractSet[fx.Node], nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """Those of some nodes in order that depend on a known one."""
    found: set[fx.Node] = set()
    for node in nodes:
        if any(n in found or n in known for n in node.all_input_nodes):
            found.add(node)
    return found
