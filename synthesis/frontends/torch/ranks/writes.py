"""Makes writes into tensors new tensors, in a graph, where a write is of all of a tensor's memory.

`torch.func.functionalize` does so for every write, by tracing all ops again. Here nothing is run: a
write changes one node, and the views of that memory which are read later are taken again of what
was written.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from shardproof.synthesis.frontends.torch.uninitialized_reads import EMPTY

_aten: Any = torch.ops.aten
_WRITES = {
    _aten.copy_.default: _aten.copy.default,
    _aten.index_put_.default: _aten.index_put.default,
    _aten.cat.out: _aten.cat.default,
}
"""Ops that change `out`, or else their first operand, with those that give the new value."""
_SAME_ENTRIES = {_aten.view.default, _aten.detach.default, _aten.alias.default}
"""Views of all entries, in their order."""


@dataclass
class _Memory:
    base: fx.Node
    """What made it."""
    value: fx.Node
    """The base, as it is after the writes so far."""
    writes: int = 0


@dataclass
class _Seen:
    memory: _Memory
    parent: fx.Node | None
    """What it is a view of; None for a base."""
    made: fx.Node
    writes: int
    """The writes to its memory when it was made."""


def without_writes(graph: fx.Graph) -> fx.Graph | None:
    """The same graph with no write in it, or None where it has one that is not covered: of a part
    of a tensor, of what the graph is given, by an op other than a copy."""
    if not any(_mutates(node) for node in graph.nodes):
        return graph
    pass_ = _Pass()
    for node in graph.nodes:
        if not pass_.take(node):
            return None
    _leave_out_unread(pass_.graph)
    return pass_.graph


def _mutates(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and schema.is_mutable


class _Pass:
    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.seen: dict[fx.Node, _Seen] = {}
        self.same: dict[fx.Node, fx.Node] = {}
        """Results of writes: the tensor written to."""

    def take(self, node: fx.Node) -> bool:
        """Put a node into the graph; False where it cannot be."""
        if _mutates(node):
            return self._write(node)
        plain = node.op != "call_function" or node.target is operator.getitem
        if not plain and not isinstance(node.target, torch._ops.OpOverload):
            return False
        parent = None
        if node.op == "call_function" and is_view(node):
            if len(node.all_input_nodes) != 1:
                return False
            parent = self.same.get(node.all_input_nodes[0], node.all_input_nodes[0])
        made = self.graph.node_copy(node, self.current)
        if parent is not None:
            memory = self.seen[parent].memory
            self.seen[node] = _Seen(memory, parent, made, memory.writes)
        else:
            self.seen[node] = _Seen(_Memory(node, made), None, made, 0)
        return True

    def current(self, node: fx.Node) -> fx.Node:
        """What a tensor is after the writes so far."""
        node = self.same.get(node, node)
        seen = self.seen[node]
        if seen.writes != seen.memory.writes:
            viewed = seen.parent is not None
            seen.made = self.graph.node_copy(node, self.current) if viewed else seen.memory.value
            seen.writes = seen.memory.writes
        return seen.made

    def _write(self, node: fx.Node) -> bool:
        target: Any = node.target
        changed = node.kwargs.get("out", node.args[0])
        if target not in _WRITES or not isinstance(changed, fx.Node):
            return False
        written = self.same.get(changed, changed)
        memory = self.seen[written].memory
        if memory.base.op != "call_function" or not self._whole(written):
            return False
        if target is _aten.cat.out and not _of_its_kind(node, written):
            return False
        value = self.graph.node_copy(node, self.current)
        value.target = _WRITES[target]
        value.kwargs = {k: v for k, v in value.kwargs.items() if k != "out"}
        value.meta["val"] = written.meta["val"]
        memory.writes += 1
        memory.value = value
        if written is not memory.base:
            shape = list(memory.base.meta["val"].shape)
            memory.value = self.graph.call_function(_aten.view.default, (value, shape))
            memory.value.meta = {**node.meta, "val": memory.base.meta["val"]}
        seen = self.seen[written]
        seen.made, seen.writes = value, memory.writes
        self.same[node] = written
        return True

    def _whole(self, node: fx.Node) -> bool:
        """Whether a tensor is all of its memory, in its order."""
        seen = self.seen[node]
        while seen.parent is not None:
            if not _same_entries(node, seen.parent):
                return False
            node = seen.parent
            seen = self.seen[node]
        return isinstance(node.meta.get("val"), torch.Tensor)


def is_view(node: fx.Node) -> bool:
    """Whether a result may share memory with an operand. Parts of a result do with the result."""
    if node.target is operator.getitem:
        return True
    schema: Any = getattr(node.target, "_schema", None)
    return any(r.alias_info is not None for r in schema.returns)


def _of_its_kind(node: fx.Node, out: fx.Node) -> bool:
    """Whether a result is put into a tensor of its shape, all operands being of one dtype."""
    shape, like = node.meta["val"].shape, out.meta["val"]
    same = all(n.meta["val"].dtype == like.dtype for n in node.all_input_nodes)
    return same and shape == like.shape


def _same_entries(view: fx.Node, source: fx.Node) -> bool:
    """Whether a view is of all entries, in their order: a slice of none less is."""
    if view.target is _aten.slice.Tensor:
        return view.meta["val"].shape == source.meta["val"].shape
    return view.target in _SAME_ENTRIES


def _leave_out_unread(graph: fx.Graph) -> None:
    """Views, and memory that nothing was written to, that no op reads."""
    for node in reversed(list(graph.nodes)):
        if node.op != "call_function" or node.users:
            continue
        if is_view(node) or getattr(node.target, "_opname", "") in EMPTY:
            graph.erase_node(node)
