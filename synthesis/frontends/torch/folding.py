"""Evaluates the part of a graph that depends on no parameter and no input, on real tensors.

Masks and rotary tables are such parts. Dims along which a value is constant are kept at stride 0,
so that a mask for a batch costs no more than one for a row.
"""

# pyright: basic

import hashlib
import operator
from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from typing import Any, cast

import torch
from torch import fx
from torch.fx.node import map_arg

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.materialize import LARGE
from shardproof.synthesis.frontends.torch.trace import Traced

_RANDOM = {"rand", "randn", "randint", "rand_like", "randn_like", "bernoulli", "exponential"}
_RANDOM |= {"uniform", "normal", "native_dropout", "multinomial", "randperm", "normal_functional"}
_RANDOM |= {"draw", "message_sent", "message_received"}
_BETWEEN_RANKS = {"_c10d_functional", "_c10d_functional_autograd", "c10d", "_dtensor"}
"""Namespaces of ops that other ranks take part in: here nothing is sent, so none has a value."""
_COPIES = {"_to_copy", "clone"}
"""Elementwise, which PyTorch has no mark for."""
_LARGE = 1 << 10


def constant_nodes(traced: Traced) -> set[fx.Node]:
    """Nodes whose value depends on buffers, constants and shapes alone."""
    found = {node for node, name in traced.buffers.items() if name not in traced.taken}
    shape_only = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}
    for node in traced.graph.nodes:
        if node.op == "get_attr":
            found.add(node)
        if node.op != "call_function":
            continue
        name = getattr(node.target, "__name__", "").split(".")[0]
        if name in _RANDOM or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            continue
        if getattr(node.target, "namespace", "") in _BETWEEN_RANKS:
            continue
        if (name in shape_only and isinstance(node.meta.get("val"), torch.Tensor)) or all(
            n in found for n in node.all_input_nodes
        ):
            found.add(node)
    return found


def frontier(
    traced: Traced, constants: set[fx.Node], needed: AbstractSet[fx.Node]
) -> list[fx.Node]:
    """Constant nodes that other nodes which are `needed`, or the output, read."""
    skip = {"_assert_tensor_metadata.default", "_assert_scalar.default"}
    return [
        node
        for node in traced.graph.nodes
        if node in constants
        and isinstance(node.meta.get("val"), torch.Tensor)
        and any(
            u in needed and u not in constants and getattr(u.target, "__name__", "") not in skip
            for u in node.users
        )
    ]


def evaluate_constants(
    traced: Traced,
    constants: set[fx.Node],
    buffers: Mapping[str, torch.Tensor],
    take: Callable[[fx.Node, torch.Tensor], None],
    wanted: AbstractSet[fx.Node],
) -> None:
    """Call `take(node, value)` for each node that is wanted; values are freed after last use."""
    needed: set[fx.Node] = set()
    stack = list(wanted)
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack += [n for n in node.all_input_nodes if n in constants]
    order = [n for n in traced.graph.nodes if n in needed]
    uses = {n: sum(u in needed for u in n.users) for n in order}
    values: dict[fx.Node, Any] = {}
    with torch.no_grad():
        for node in order:
            values[node] = _value(node, traced, buffers, values)
            if node in wanted:
                take(node, values[node])
            for operand in node.all_input_nodes:
                if operand in uses:
                    uses[operand] -= 1
                    if uses[operand] == 0:
                        values.pop(operand, None)


def derivations(
    traced: Traced, constants: set[fx.Node], buffers: Mapping[str, torch.Tensor]
) -> dict[fx.Node, str]:
    """Of each constant, a digest of the ops of PyTorch that it is made by and of all that they are
    given: where two graphs have the same, so have they the value. A constant that an op of anybody
    else has part in has none, since such an op may ask for the rank."""
    found: dict[fx.Node, str] = {}
    for node in traced.graph.nodes:
        if node not in constants:
            continue
        if node in traced.buffers or node.op == "get_attr":
            text = _contents(_value(node, traced, buffers, {}))
        else:
            text = _made(node, found)
        if text:
            kind = _kind(node.meta.get("val"))
            found[node] = hashlib.sha256(f"{text} {kind}".encode()).hexdigest()
    return found


def _contents(value: Any) -> str:
    plain = isinstance(value, torch.Tensor) and type(value) is torch.Tensor
    if not plain or value.layout != torch.strided or value.device.type != "cpu":
        return ""
    data: Any = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return f"{_kind(value)} {hashlib.sha256(data).hexdigest()}"


def _made(node: fx.Node, found: Mapping[fx.Node, str]) -> str:
    """An op and what it is given; empty where that is not known."""
    target: Any = node.target
    if target is not operator.getitem:
        unset = getattr(target, "_opname", "").startswith(("empty", "new_empty"))
        if getattr(target, "namespace", "") != "aten" or unset:
            return ""
        if torch.Tag.nondeterministic_seeded in target.tags:
            return ""
    if not all(n in found for n in node.all_input_nodes):
        return ""
    given: Any = map_arg((node.args, node.kwargs), lambda n: _Digest(found[n]))
    return f"{target} {given}" if _plain(given) else ""


class _Digest(str):
    """Of an operand, in place of it."""


def _plain(given: Any) -> bool:
    if isinstance(given, (list, tuple)):
        return all(map(_plain, given))
    if isinstance(given, Mapping):
        return all(map(_plain, given.values()))
    kinds = (bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
    return given is None or isinstance(given, kinds)


def _kind(val: Any) -> str:
    """Extents in memory and dtype."""
    if isinstance(val, (list, tuple)):
        return str([_kind(v) for v in val])
    if not isinstance(val, torch.Tensor):
        return ""
    return f"{val.dtype} {tuple(val.shape)} {val.stride()} {val.storage_offset()}"


def _value(
    node: fx.Node, traced: Traced, buffers: Mapping[str, torch.Tensor], values: dict[fx.Node, Any]
) -> Any:
    if node in traced.buffers:
        name = traced.buffers[node]
        if name not in buffers:
            raise CaptureError(
                f"the values of buffer {name} are not known: it is on the meta device, as are all "
                f"tensors of {LARGE} elements or more"
            )
        return compress(buffers[name].detach())
    if node.op == "get_attr":
        held: Any = traced.module
        for part in str(node.target).split("."):
            held = getattr(held, part)
        known = getattr(held, "constant", None)  # of a fake tensor
        return held if known is None else known
    val = node.meta.get("val")
    name = getattr(node.target, "__name__", "")
    base = name.split(".")[0]
    if isinstance(val, torch.Tensor) and base in (
        "zeros_like",
        "new_zeros",
        "ones_like",
        "new_ones",
    ):
        fill = 0 if base.endswith(("zeros_like", "zeros")) else 1
        return torch.full((), fill, dtype=val.dtype).expand(tuple(val.shape))
    if isinstance(val, torch.Tensor) and base in ("full", "full_like", "new_full"):
        fill = node.args[2] if base == "new_full" else node.args[1]
        return torch.full((), cast(float, fill), dtype=val.dtype).expand(tuple(val.shape))
    if isinstance(val, torch.Tensor) and base in ("zeros", "ones"):
        return torch.full((), int(base == "ones"), dtype=val.dtype).expand(tuple(val.shape))
    args: Any = map_arg(node.args, lambda n: values[n])
    kwargs: Any = map_arg(node.kwargs, lambda n: values[n])
    if node.target is operator.getitem:
        return args[0][args[1]]
    if name in ("view.default", "_unsafe_view.default"):
        return args[0].reshape(args[1])
    if base == "expand":
        return args[0].expand(args[1])
    if base == "as_strided":
        given = cast(fx.Node, node.args[0])
        return _by_strides(args[0], given.meta["val"], *args[1:], **kwargs)
    target: Any = node.target
    pointwise = torch.Tag.pointwise in getattr(target, "tags", ()) or base in _COPIES
    if pointwise and isinstance(val, torch.Tensor):
        args, kwargs = narrow(args, kwargs, tuple(val.shape))
        out = target(*args, **kwargs)
        return compress(out).expand(tuple(val.shape))
    out = target(*args, **kwargs)
    return compress(out) if isinstance(out, torch.Tensor) else out


def _by_strides(
    value: torch.Tensor,
    val: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    offset: int | None = None,
) -> torch.Tensor:
    """What `as_strided` reads of a value that lies in memory as `val` does; `compress` may have
    changed that. Offsets count from the start of memory, of which the value may be a part.

    Raises:
        CaptureError: elements outside of the value are read.
    """
    first = val.storage_offset() if offset is None else offset
    held = torch.empty_strided(val.shape, val.stride(), dtype=val.dtype).copy_(value)
    last = first + sum((n - 1) * k for n, k in zip(size, stride, strict=True))
    start = first - val.storage_offset()
    if start < 0 or last - val.storage_offset() >= held.untyped_storage().nbytes() // held.itemsize:
        raise CaptureError("as_strided reads beyond the tensor that it is called on")
    return held.as_strided(size, stride, start)


def narrow(args: Any, kwargs: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Operands of an elementwise op cut to extent 1 along dims where all of them are constant."""
    from torch.utils._pytree import tree_map

    tensors: list[torch.Tensor] = []
    tree_map(lambda v: tensors.append(v) if isinstance(v, torch.Tensor) else None, (args, kwargs))
    cut: list[int] = []
    for back in range(1, len(shape) + 1):
        varies = (t.ndim >= back and t.shape[-back] > 1 and t.stride(-back) != 0 for t in tensors)
        if shape[-back] and not any(varies):
            cut.append(back)

    def one(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            for back in cut:
                if value.ndim >= back:
                    value = value.narrow(-back, 0, 1)
        return value

    return tree_map(one, args), tree_map(one, kwargs)


def cast_lines(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The value in another dtype, with stride 0 where it has that."""
    (small,), _ = narrow((value,), {}, tuple(value.shape))
    return small.to(dtype).expand(value.shape)


def compress(value: torch.Tensor) -> torch.Tensor:
    """The same values with stride 0 along every dim that a full comparison finds constant."""
    if value.numel() < _LARGE:
        return value
    shape = value.shape
    smaller = value
    for dim in range(value.ndim):
        if smaller.shape[dim] > 1:
            first, last = smaller.narrow(dim, 0, 1), smaller.narrow(dim, smaller.shape[dim] - 1, 1)
            if smaller.stride(dim) == 0 or (
                torch.equal(first, last) and torch.equal(first.expand_as(smaller), smaller)
            ):
                smaller = first
    return smaller.clone().expand(shape) if smaller.numel() < value.numel() else value
