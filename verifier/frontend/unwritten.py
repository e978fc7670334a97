"""Refuses a graph that reads memory which nothing was written to; else it is of zeros.

`torch.empty` is written into piece by piece: by views, or by collectives. Which entries are still
unwritten is followed through every op that only moves entries.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from verifier.frontend.errors import CaptureError
from verifier.frontend.provenance import Provenance

_EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_SHAPES = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "draw"}
"""Ops that look at the shape of their operand alone."""
_MOVES = {
    *("view", "_unsafe_view", "reshape", "permute", "t", "transpose", "expand", "unsqueeze"),
    *("squeeze", "slice", "select", "split", "split_with_sizes", "unbind", "cat", "stack"),
    *("slice_scatter", "select_scatter", "alias", "detach", "clone", "as_strided", "narrow"),
    *("as_strided_scatter", "constant_pad_nd", "flip", "repeat", "chunk", "lift_fresh_copy"),
    *("diagonal", "diagonal_scatter", "unfold", "contiguous", "copy"),
}
MOST = 1 << 28
"""Entries of a tensor that are followed."""


def refuse_unwritten(graph: fx.Graph, places: Provenance) -> None:
    """Raises CaptureError at the first op that computes with an entry that was never written."""
    masks: dict[fx.Node, Any] = {}

    def told(node: fx.Node) -> CaptureError:
        at = places.source(node)
        return CaptureError(
            "memory is read that nothing was written to (torch.empty)",
            file=at.file,
            line=at.line,
            text=at.text,
            hint="write every entry before, or start from torch.zeros",
        )

    def mask(node: fx.Node) -> Any:
        if node in masks:
            return masks[node]
        return pytree.tree_map_only(
            torch.Tensor,
            lambda v: torch.zeros((), dtype=torch.bool).expand(tuple(v.shape)),
            node.meta.get("val"),
        )

    for node in graph.nodes:
        name = getattr(node.target, "_opname", "")
        if name in _EMPTY:
            if node.meta["val"].numel() > MOST:
                raise told(node)
            masks[node] = torch.ones(tuple(node.meta["val"].shape), dtype=torch.bool)
            continue
        unwritten = [n for n in node.all_input_nodes if n in masks]
        if not unwritten or name in _SHAPES:
            continue
        if node.op == "output" or not (name in _MOVES or node.target is operator.getitem):
            raise told(node if node.op != "output" else unwritten[0])
        made = _moved(node, name, mask)
        if any(bool(t.any()) for t in pytree.tree_leaves(made) if isinstance(t, torch.Tensor)):
            masks[node] = made
    for node in [n for n in masks if getattr(n.target, "_opname", "") in _EMPTY]:
        _as_zeros(graph, node)


def _as_zeros(graph: fx.Graph, node: fx.Node) -> None:
    """No entry is read before it is written, so any number may stand there."""
    val = node.meta["val"]
    with graph.inserting_before(node):
        zeros: Any = torch.ops.aten.full.default
        made = graph.call_function(zeros, (list(val.shape), 0), {"dtype": val.dtype})
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _moved(node: fx.Node, name: str, mask: Any) -> Any:
    """Which entries of a result are unwritten."""
    args: Any = map_arg(node.args, mask)
    if name == "copy":
        return args[1].expand(tuple(node.meta["val"].shape))
    if name == "constant_pad_nd":
        args = (args[0], args[1], False)
    kwargs = {k: v for k, v in node.kwargs.items() if k in ("dim", "start", "end", "step", "index")}
    target: Any = node.target
    with torch.no_grad():
        if name in ("clone", "contiguous"):
            return args[0]
        if name in ("view", "_unsafe_view"):
            return args[0].reshape(args[1])
        return target(*args, **kwargs)
