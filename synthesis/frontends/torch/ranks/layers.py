"""Traces few layers of a module where many are of one kind: the others are taken out of their list
after the whole module was built and made parallel."""

# pyright: basic

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.hooks import RemovableHandle

from shardproof.synthesis.frontends.torch.depth import NUMBERING, SCALARS, members
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.rolling.depth import Depth, choose

UNLIKE = "layers are of one kind on one device, and not on a rank"
Kind = tuple[Any, ...]


def chosen(model: nn.Module) -> Depth | None:
    """The fewest layers that tell what all do; None where these are more than half."""
    lists = _lists(model)
    most = max(map(len, lists.values()), default=0)
    kinds = {path: _kinds(found) for path, found in lists.items() if len(found) == most}
    depth = choose(kinds)
    return depth if depth is not None and 2 * depth.layers <= depth.total else None


def shorten(model: nn.Module, depth: Depth) -> None:
    """Take the other layers out of the module, in place.

    Raises:
        CaptureError: it has no such lists, or in these not the same kinds at the same places.
    """
    lists = _lists(model)
    for prefix in depth.prefixes:
        found = [lists[path] for path in lists if path == prefix or path.endswith(f".{prefix}")]
        if len(found) != 1 or len(found[0]) != depth.total:
            raise CaptureError(UNLIKE)
        (layers,) = found
        held, kinds = members(layers), _kinds(layers)
        stop = depth.head + depth.period * depth.count
        repeated = range(depth.head + depth.period, stop)
        if any(kinds[i] != kinds[i - depth.period] for i in repeated):
            raise CaptureError(UNLIKE)
        kept = [held[i] for i in depth.kept]
        layers._modules = type(layers._modules)((str(i), layer) for i, layer in enumerate(kept))


def _lists(model: nn.Module) -> dict[str, Any]:
    return {path: module for path, module in model.named_modules() if len(members(module)) > 1}


def _kinds(layers: Any) -> tuple[Kind, ...]:
    return tuple(map(_kind, members(layers)))


def _kind(module: nn.Module) -> Kind:
    """Everything that is compared between two layers: classes, attributes, hooks, and shapes, types
    and placements of tensors."""
    held = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    attributes = {
        name: _attribute(value)
        for name, value in vars(module).items()
        if name not in ("_parameters", "_buffers", "_modules", *NUMBERING)
    }
    return (
        type(module),
        tuple(sorted(attributes.items(), key=lambda item: item[0])),
        tuple((name, _tensor(t)) for name, t in held),
        tuple((name, _kind(child)) for name, child in module.named_children()),
    )


def _tensor(t: Any) -> Kind:
    placed = (t.placements, t.device_mesh.mesh_dim_names) if isinstance(t, DTensor) else ()
    return (type(t), tuple(t.shape), t.dtype, t.requires_grad, placed, _hooks(t))


def _hooks(t: Any) -> Any:
    found = [getattr(t, name, None) for name in ("_backward_hooks", "_post_accumulate_grad_hooks")]
    return tuple(_attribute(hooks) for hooks in found)


def _attribute(value: Any, inside: tuple[Any, ...] = ()) -> Any:
    """What an attribute is. Objects of PyTorch count by their class and what is plain in them,
    others by all that they hold."""
    if isinstance(value, SCALARS):
        return repr(value)
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, (nn.Module, RemovableHandle)) or any(value is held for held in inside):
        return type(value)
    inside = (*inside, value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return (type(value), tuple(_attribute(v, inside) for v in value))
    if isinstance(value, Mapping):
        numbers = all(isinstance(key, int) for key in value)  # hooks have numbers of their own
        return tuple(("" if numbers else repr(k), _attribute(v, inside)) for k, v in value.items())
    if isinstance(value, functools.partial):
        return tuple(_attribute(v, inside) for v in (value.func, value.args, value.keywords))
    function = getattr(value, "__func__", value)
    code = getattr(function, "__code__", None)
    if code is not None:
        cells = [c.cell_contents for c in getattr(function, "__closure__", None) or ()]
        bound = [] if function is value else [value.__self__]
        return (code, tuple(_attribute(v, inside) for v in (*cells, *bound)))
    known = vars(value).items() if hasattr(value, "__dict__") else ()
    if type(value).__module__.partition(".")[0] != "torch":
        same = () if known else (id(value),)  # nothing says what it holds
        return (type(value), *same, tuple((k, _attribute(v, inside)) for k, v in known))
    plain = ((k, v) for k, v in known if isinstance(v, SCALARS) and not k.startswith("_"))
    return (type(value), tuple((k, repr(v)) for k, v in plain))
