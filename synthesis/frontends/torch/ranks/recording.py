"""Records the ops that run under it as a graph.

`make_fx` does so as well; here no tensor is given a proxy, and no shape of a result is made twice:
half the time of a trace.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

import operator
import weakref
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import extract_val
from torch.utils._python_dispatch import TorchDispatchMode, autograd_would_have_decomposed
from torch.utils._pytree import tree_leaves

from shardproof.synthesis.frontends.torch.decompose import decompositions
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.spans import Span, storage

_aten: Any = torch.ops.aten
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_KEY = torch._C._TorchDispatchModeKey.PROXY
"""PyTorch puts the mode of this key off while it computes what is no part of a trace; elsewhere it
asks for its `tracer.graph`."""
_META = ("stack_trace", "nn_module_stack", "autograd_backward", "in_hook")


class Recorder(TorchDispatchMode):
    """The graph of all ops on tensors, in the order in which they ran.

    Tensors that are given are placeholders; those that come from elsewhere are attributes of
    `held`, or pieces of one of `rooms`: of those given, the rows of numbers that are all of a
    memory.
    """

    def __init__(self, given: Sequence[torch.Tensor], rooms: Collection[torch.Tensor] = ()) -> None:
        super().__init__()
        self._mode_key, self.tracer = _KEY, self
        self.graph = fx.Graph()
        self.held = nn.Module()
        self.nodes: dict[int, tuple[Any, fx.Node, Any]] = {}
        """By the number of a tensor: the tensor, which may be gone, the node that made it, and the
        memory that it had then."""
        self.given: list[tuple[fx.Node, torch.Tensor]] = []
        self.spans = [Span.of(t) for t in given]
        self.memories: dict[Any, fx.Node] = {}
        """By memory and extents: the node of the tensor that had them first."""
        self.kinds: dict[Any, Any] = {}
        self.composite: dict[Any, bool] = {}
        for index, t in enumerate(given):
            node = self.graph.placeholder(f"given_{index}")
            self.given.append((node, t))
            self._made(node, t)
        self.rooms = {storage(t)._cdata: t for t in rooms}
        """By memory: the row of its numbers."""

    def returns(self, values: Sequence[torch.Tensor]) -> None:
        """End the graph."""
        self.graph.output(self._operand(values))

    def moved(self, written: Set[int]) -> dict[int, torch.Tensor]:
        """The tensors given, by number, that were given other memory which may hold other values:
        what is no copy, or of which the old or the new memory is `written`."""
        return {
            index: t
            for index, (node, t) in enumerate(self.given)
            if (was := self.nodes[id(t)][2]) != (now := _memory(t))
            and (copied(self._operand(t)) is not node or written & {was[0].number, now[0].number})
        }

    def shared(self, written: Set[int]) -> list[int]:
        """Of the tensors given that are read, by number, those with memory that is `written` and
        that another has which is read: a write changes both."""
        read = [(i, self.spans[i]) for i, (node, _) in enumerate(self.given) if node.users]
        places = [(i, span) for i, span in read if span.storage._cdata in written]
        return [i for i, at in places if any(at.meets(o) for k, o in places if k != i)]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _asks(func):
            return func(*args, **kwargs)
        if self._opens(func, args, kwargs):
            with self:
                return func.decompose(*args, **kwargs)
        if func in decompositions():
            with self:
                return decompositions()[func](*args, **kwargs)
        if func is _aten.native_batch_norm.default:
            func, args = _as_declared(*args)
        if func is _aten.lift_fresh.default:
            func = _aten.lift_fresh_copy.default
        named = {key: self._operand(value) for key, value in kwargs.items()}
        node = self.graph.call_function(func, tuple(map(self._operand, args)), named)
        result = func(*args, **kwargs)
        self._made(node, result)
        return result

    @classmethod
    def is_infra_mode(cls) -> bool:
        return True

    def _opens(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Whether an op is made of others, which autograd would have run."""
        if func not in self.composite:
            self.composite[func] = func.has_kernel_for_dispatch_key(_COMPOSITE)
        composite = self.composite[func]
        return composite and autograd_would_have_decomposed(func, tree_leaves((args, kwargs)))

    def _operand(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._operand(v) for v in value]
        if not isinstance(value, torch.Tensor):
            return value
        known = self.nodes.get(id(value))
        if known is not None and known[0]() is value:
            memory = _memory(value)
            if memory == known[2]:
                return known[1]
            if memory not in self.memories:
                raise CaptureError(
                    "a tensor was given other memory than the op that made it gave it",
                    hint="write `y = ...` or `y.copy_(...)` in place of `y.data = ...`",
                )
            return self.memories[memory]
        if (alias := self.memories.get(_memory(value))) is not None:
            return alias  # `y.data` is no op
        if (room := self.rooms.get(storage(value)._cdata)) is not None:
            return self._piece(room, value)
        name = f"held_{len(self.graph.nodes)}"
        setattr(self.held, name, value)
        node = self.graph.create_node("get_attr", name)
        self._made(node, value)
        return node

    def _piece(self, room: torch.Tensor, value: torch.Tensor) -> fx.Node:
        """What a tensor is of all of its memory."""
        if not value.is_contiguous() or value.dtype != room.dtype:
            raise CaptureError(
                "a step reads memory that it writes into in another order, or as another dtype",
                hint="take the view of it anew in the step",
            )
        first = value.storage_offset()
        cut = (self._operand(room), 0, first, first + value.numel())
        row = self.graph.call_function(_aten.slice.Tensor, cut)
        self._made(row, room[first : first + value.numel()])
        piece = self.graph.call_function(_aten.view.default, (row, list(value.shape)))
        self._made(piece, value)
        return piece

    def _made(self, node: fx.Node, result: Any) -> None:
        meta = fx_traceback.current_meta
        node.meta = {key: meta[key] for key in _META if key in meta}
        node.meta["val"] = self._kind(result)
        if isinstance(result, torch.Tensor):
            memory = _memory(result)
            self.nodes[id(result)] = weakref.ref(result), node, memory
            self.memories.setdefault(memory, node)
        elif isinstance(result, (list, tuple)):
            for index, part in enumerate(result):
                part_node = self.graph.call_function(operator.getitem, (node, index))
                self._made(part_node, part)

    def _kind(self, value: Any) -> Any:
        """A tensor of the same extents in memory as a result has now, one for all of a kind."""
        if isinstance(value, (list, tuple)):
            return [self._kind(v) for v in value]
        if not isinstance(value, torch.Tensor):
            return value
        memory = value.untyped_storage().nbytes()
        key = (value.dtype, value.shape, value.stride(), value.storage_offset(), memory)
        if key not in self.kinds:
            self.kinds[key] = extract_val(value)
        return self.kinds[key]


def _asks(func: Any) -> bool:
    """Whether an op gives no tensor, but tells something of its operands."""
    if func.namespace in ("prim", "profiler") or torch.Tag.data_dependent_output in func.tags:
        return True
    schema = func._schema
    told = [str(r.type) for r in schema.returns]
    return func.namespace == "aten" and told == ["bool"] and not schema.is_mutable


def _as_declared(x: Any, weight: Any, bias: Any, mean: Any, variance: Any, *given: Any) -> Any:
    """The batch norm whose declaration says that it changes running statistics."""
    ops = _aten._native_batch_norm_legit
    if mean is None:
        return ops.no_stats, (x, weight, bias, *given)
    return ops.default, (x, weight, bias, mean, variance, *given)


def _memory(value: torch.Tensor) -> Any:
    """What `y.data = ...` changes, which is no op. The memory itself is kept, so that no other
    comes to lie at its place."""
    storage = value.untyped_storage()
    extents = value.shape, value.stride(), value.storage_offset()
    return _Storage(storage, storage._cdata), *extents, value.dtype, value.is_conj(), value.is_neg()


def copied(node: Any) -> Any:
    """What a node is a copy of, entry by entry."""
    while (source := _source(node)) is not None:
        kinds = [(n.meta["val"].dtype, n.meta["val"].shape) for n in (node, source)]
        if kinds[0] != kinds[1]:
            break
        node = source
    return node


def _source(node: Any) -> Any:
    """The operand whose entries an op gives; None of an op that computes. A batch norm in eval mode
    gives its statistics back as they are."""
    if node.op != "call_function":
        return None
    if (
        node.target is operator.getitem
        and node.args[0].target is _NORM
        and not node.args[0].args[5]
    ):
        return node.args[0].args[node.args[1]] if node.args[1] in (3, 4) else None
    return node.args[_COPIES[node.target]] if node.target in _COPIES else None


_NORM = _aten._native_batch_norm_legit_functional.default
_COPIES = {
    **dict.fromkeys((_aten.clone.default, _aten.detach.default, _aten.alias.default), 0),
    _aten.copy.default: 1,
}
"""Ops that give the entries of an operand, each with which."""


@dataclass(frozen=True)
class _Storage:
    storage: Any = field(compare=False)
    number: int
