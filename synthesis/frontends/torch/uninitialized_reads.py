"""Memory that nothing was written to: it is taken to be of zeros, and reads of it are found.

`torch.empty` is written into piece by piece: by views, or by collectives. Which entries are still
unwritten is followed through every op that only moves entries. Where that is the same along a dim,
one entry stands for all of them (stride 0), so that a tensor of any size may be followed.
"""

# pyright: basic

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import fx
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.provenance import Provenance
from shardproof.synthesis.frontends.torch.trace import Traced
from shardproof.verifier.kernel.program.types import Source

_c10d: Any = dist.distributed_c10d
EMPTY = {
    *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"),
}
"""Ops that give memory as it is."""
OF_A_SHAPE = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}
"""Ops that look at the shape of their operand alone."""
_SHAPES = OF_A_SHAPE | {"draw", "message_received"}
_MOVES = {
    *("view", "_unsafe_view", "reshape", "permute", "t", "transpose", "expand", "unsqueeze"),
    *("squeeze", "slice", "select", "split", "split_with_sizes", "unbind", "cat", "stack"),
    *("slice_scatter", "select_scatter", "alias", "detach", "clone", "as_strided", "narrow"),
    *("as_strided_scatter", "constant_pad_nd", "flip", "repeat", "chunk", "lift_fresh_copy"),
    *("diagonal", "diagonal_scatter", "unfold", "contiguous", "copy"),
}
_VIEWS = {
    *("permute", "t", "transpose", "expand", "unsqueeze", "squeeze", "slice", "select", "split"),
    *("split_with_sizes", "unbind", "alias", "detach", "narrow", "chunk", "diagonal", "unfold"),
}
"""Moves that copy nothing."""
MOST = 1 << 28
"""Entries that are told apart."""


def refuse_unwritten(traced: Traced, places: Provenance) -> None:
    """Raises CaptureError at the first op that computes with an entry that was never written."""
    found = unwritten_read(traced, places)
    if found is not None:
        raise found[0]


def unwritten_read(traced: Traced, places: Provenance) -> tuple[CaptureError, Source] | None:
    """The first op that computes with an entry that was never written, and where its memory was
    made, as the graph is before all such memory is of zeros.

    Raises:
        CaptureError: which entries were written is not followed.
    """
    found = _first_read(traced, places)
    for node in list(traced.graph.nodes):
        if getattr(node.target, "_opname", "") in EMPTY:
            _as_zeros(traced.graph, node)
    return found


def _first_read(traced: Traced, places: Provenance) -> tuple[CaptureError, Source] | None:
    masks: dict[fx.Node, Any] = {}

    def refused(node: fx.Node, what: str, hint: str) -> CaptureError:
        at = places.source(node)
        return CaptureError(
            f"{what} (torch.empty)", file=at.file, line=at.line, text=at.text, hint=hint
        )

    def made(node: fx.Node) -> Source:
        before = [n for n in node.all_input_nodes if n in masks]
        return made(before[0]) if before else places.source(node)

    def mask(node: fx.Node) -> Any:
        if node in masks:
            return masks[node]
        return pytree.tree_map_only(torch.Tensor, lambda v: _all(False, v), node.meta.get("val"))

    used = needed(traced, _reads)
    for node in traced.graph.nodes:
        name = getattr(node.target, "_opname", "")
        if node not in used:
            continue
        if name in EMPTY:
            masks[node] = _all(True, node.meta["val"])
            continue
        unwritten = [n for n in _reads(node) if n in masks]
        if not unwritten:
            continue
        if node.op == "output" or not (name in _MOVES or node.target is operator.getitem):
            said = refused(
                node if node.op != "output" else unwritten[0],
                "memory is read that nothing was written to",
                "write every entry before, or start from torch.zeros",
            )
            return said, made(unwritten[0])
        try:
            moved = _moved(node, name, mask)
        except _ManyError:
            raise refused(
                node,
                "it is not followed which entries of this memory were written to",
                "start from torch.zeros, or join the pieces with torch.cat",
            ) from None
        if any(_any(t) for t in pytree.tree_leaves(moved) if isinstance(t, torch.Tensor)):
            masks[node] = moved
    for _, _, node in traced.outputs:
        if node in masks:
            said = refused(
                node,
                "memory is given back that nothing was written to",
                "write every entry before, or start from torch.zeros",
            )
            return said, made(node)
    return None


def needed(
    traced: Traced, reads: Callable[[fx.Node], list[fx.Node]] = lambda n: n.all_input_nodes
) -> set[fx.Node]:
    """All but ops of tensors that change nothing and whose results nobody needs: DTensor asks such
    for shapes, and the weights of a layer that is built in `forward` may be replaced. What a buffer
    holds in the end is an output that no node of the graph reads."""
    found = {node for _, _, node in traced.outputs}
    for node in reversed(traced.graph.nodes):
        if not _pure(node):
            found.add(node)
        if node in found:
            found.update(reads(node))
    return found


def _reads(node: fx.Node) -> list[fx.Node]:
    """The operands of which an op looks at more than the shape. A broadcast sends what its root
    has."""
    name = getattr(node.target, "_opname", "")
    if name == "copy":
        return [n for n in node.args[1:2] if isinstance(n, fx.Node)]
    if node.target is torch.ops._c10d_functional.broadcast.default:
        _, root, group = node.args
        resolved: Any = _c10d._resolve_process_group(group)
        if resolved.rank() != root:
            return []
    return [] if name in _SHAPES else node.all_input_nodes


_OF_TENSORS = ("aten", "prims")


def _pure(node: fx.Node) -> bool:
    target: Any = node.target
    val = node.meta.get("val")
    known = isinstance(target, torch._ops.OpOverload) and target.namespace in _OF_TENSORS
    return known and isinstance(val, torch.Tensor) and not target._schema.is_mutable


def _as_zeros(graph: fx.Graph, node: fx.Node) -> None:
    """Any number may stand there."""
    val = node.meta["val"]
    with graph.inserting_before(node):
        zeros: Any = torch.ops.aten.full.default
        made = graph.call_function(zeros, (list(val.shape), 0), {"dtype": val.dtype})
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)


class _ManyError(Exception):
    """More entries than are told apart, or strides over memory that is not known."""


def _all(value: bool, like: torch.Tensor) -> torch.Tensor:
    return torch.full((), value, dtype=torch.bool).expand(tuple(like.shape))


def _short(mask: torch.Tensor) -> torch.Tensor:
    """Extent 1 along the dims of stride 0."""
    for dim, (extent, step) in enumerate(zip(mask.shape, mask.stride(), strict=True)):
        if extent > 1 and step == 0:
            mask = mask.narrow(dim, 0, 1)
    return mask


def _any(mask: torch.Tensor) -> bool:
    return bool(_short(mask).any())


def _moved(node: fx.Node, name: str, mask: Any) -> Any:
    """Which entries of a result are unwritten. Raises _ManyError."""
    args: Any = map_arg(node.args, mask)
    kwargs = {k: v for k, v in node.kwargs.items() if k in ("dim", "start", "end", "step", "index")}
    target: Any = node.target
    shape = tuple(getattr(node.meta.get("val"), "shape", ()))
    with torch.no_grad():
        if name == "copy":
            return args[1].expand(shape)
        if name in ("clone", "contiguous"):
            return args[0]
        if name in ("view", "_unsafe_view", "reshape"):
            return _reshaped(args[0], shape)
        if name in _VIEWS or node.target is operator.getitem:
            return target(*args, **kwargs)
        if name in ("cat", "slice_scatter"):
            at: Any = kwargs.get("dim", [*args, 0, 0][1 if name == "cat" else 2])
            dim = at % len(shape)
            equal = _equal(args, dim, len(shape))
            _few([1 if d in equal else n for d, n in enumerate(shape)])
            return target(*_cut(args, equal), **kwargs).expand(shape)
        _few(shape)
        if name == "constant_pad_nd":
            args = (args[0], args[1], False)
        if name.startswith("as_strided"):
            source: Any = node.args[0]
            args = (_in_memory(args[0], source.meta["val"]), *args[1:])
        return target(*args, **kwargs)


def _few(shape: Any) -> None:
    if math.prod(shape) > MOST:
        raise _ManyError


def _reshaped(mask: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    try:
        return mask.view(shape)
    except RuntimeError:  # dims are joined of which not all have stride 0
        _few(shape)
        return mask.reshape(shape)


def _in_memory(mask: torch.Tensor, val: torch.Tensor) -> torch.Tensor:
    """A mask that lies in memory as its tensor does. Raises _ManyError where that is not known."""
    alone = val.untyped_storage().nbytes() == val.numel() * val.itemsize
    if not alone or not val.is_contiguous():
        raise _ManyError
    return mask.contiguous()


def _equal(args: Any, dim: int, ndim: int) -> list[int]:
    """The dims, but for `dim`, along which each mask is the same throughout."""
    masks = [t for t in pytree.tree_leaves(args) if isinstance(t, torch.Tensor)]
    if any(m.ndim != ndim for m in masks):
        return []
    return [d for d in range(ndim) if d != dim and all(m.stride(d) == 0 for m in masks)]


def _cut(args: Any, dims: list[int]) -> Any:
    """Masks with extent 1 along these dims."""

    def cut(mask: torch.Tensor) -> torch.Tensor:
        for d in dims:
            mask = mask.narrow(d, 0, min(mask.shape[d], 1))
        return mask

    return pytree.tree_map_only(torch.Tensor, cut, args)
