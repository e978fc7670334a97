"""Builds modules whose parameters take no memory and whose buffers hold their real values."""

# pyright: basic

import math
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import is_fake
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from shardproof.synthesis.frontends.torch import torch_api

LARGE = 1 << 28
"""Elements from which on a tensor is a parameter, whatever it is made for."""


class _WithoutMemory(TorchFunctionMode):
    """Large tensors are made without memory: a stack of experts may be larger than the machine.
    The device of a parameter is said to be the one that it would have: what is made on it, such as
    a table, has values. Where the two meet in an op, that has none."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == _DEVICE and isinstance(args[0], nn.Parameter) and args[0].is_meta:
            return torch.device("cpu")
        if func in (torch.empty, torch.zeros, torch.ones, torch.randn, torch.rand):
            extents = kwargs.get(
                "size", args[0] if args and isinstance(args[0], Sequence) else args
            )
            if math.prod(extents) >= LARGE:
                kwargs = {**kwargs, "device": "meta"}
        try:
            return func(*args, **kwargs)
        except RuntimeError:
            kinds = {t.is_meta for t in pytree.tree_leaves((args, kwargs)) if _is_tensor(t)}
            if len(kinds) < 2:
                raise
            args, kwargs = pytree.tree_map_only(torch.Tensor, _on_meta, (args, kwargs))
            return func(*args, **kwargs)


_DEVICE: Any = torch.Tensor.device.__get__  # pyright: ignore[reportAttributeAccessIssue]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _on_meta(t: torch.Tensor) -> torch.Tensor:
    return t if t.is_meta else t.to("meta")


@contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Parameters move to the meta device as soon as a module gets them. Ties are kept."""
    with _WithoutMemory(), _registered_on_meta():
        yield


@contextmanager
def _registered_on_meta() -> Iterator[None]:
    module_class: Any = nn.Module
    original = module_class.register_parameter
    moved: dict[int, tuple[weakref.ref[torch.Tensor], nn.Parameter]] = {}

    def register(module: nn.Module, name: str, param: Any) -> None:
        if isinstance(param, nn.Parameter) and not param.is_meta:
            known = moved.get(id(param))
            if known is not None and known[0]() is param:
                param = known[1]
            else:
                empty = torch.empty_like(param, device="meta")
                replacement = nn.Parameter(empty, requires_grad=param.requires_grad)
                moved[id(param)] = (weakref.ref(param), replacement)
                param = replacement
        original(module, name, param)

    module_class.register_parameter = register
    try:
        yield
    finally:
        module_class.register_parameter = original


def take_buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    """Real values of the buffers by name, shared ones under every name."""
    return {
        name: b.detach()
        for name, b in model.named_buffers(remove_duplicate=False)
        if b.device.type != "meta"
    }


def to_fake(model: nn.Module) -> list[tuple[Any, Any]]:
    """Replace parameters and buffers, in place, by fake CPU tensors, but for those that are fake.
    Call inside the fake mode.

    Gives the parameters, each with what stands for it now. That is the object that the parameter
    was, where that can be: an optimizer, say, then has it too.
    """
    made: dict[int, tuple[Any, Any]] = {}
    params: list[tuple[Any, Any]] = []
    kept = [t for m in model.modules() for t in vars(m).values() if isinstance(t, torch.Tensor)]
    held = [t for t in (*model.buffers(), *kept) if not is_fake(t)]
    places = Counter(t.untyped_storage()._cdata for t in held)

    def fake(t: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cpu")

    for module in model.modules():
        for name, p in list(module._parameters.items()):
            if p is not None and not is_fake(p):
                if id(p) not in made:
                    new = fake_parameter(p)
                    pair = (new, p) if as_one(p, new) else (p, new)
                    params.append(pair)
                    made[id(p)] = (p, pair[1])
                module._parameters[name] = made[id(p)][1]
        for name, b in list(module._buffers.items()):
            if b is not None and not is_fake(b):
                if id(b) not in made:
                    made[id(b)] = (b, _in_its_place(b, fake(b), places))
                module._buffers[name] = made[id(b)][1]
    return params


def _in_its_place(old: torch.Tensor, new: torch.Tensor, places: Counter[int]) -> torch.Tensor:
    """The new tensor, as the object that the old one was where that can be: what else holds a
    buffer, a closure, say, then writes into the same. `places` counts what else lies there."""
    alone = places[old.untyped_storage()._cdata] == 1
    return old if alone and as_one(old, new) else new


def fake_parameter(like: torch.Tensor) -> nn.Parameter:
    """A parameter without memory, that nothing knows of: of one that `nn.Parameter` makes, the mode
    may keep a weak reference. Call inside the fake mode."""
    made: Any = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device="cpu")
    made.requires_grad_(like.requires_grad)._is_param = True
    return made


def as_one(old: Any, new: Any) -> bool:
    """Make the new tensor the object that the old one was, and the reverse, where that can be."""
    try:
        torch.utils.swap_tensors(old, new)
    except (RuntimeError, TypeError):  # something else holds its memory
        return False
    # The object has its hooks still; what autograd has of it now has none.
    before, after = old._backward_hooks, old._post_accumulate_grad_hooks
    if before:
        old._backward_hooks = before
    if after:
        old._post_accumulate_grad_hooks = after
    return True


def tied_groups(model: nn.Module) -> list[tuple[str, ...]]:
    """Names of each parameter that has several, first registered first."""
    names: dict[int, list[str]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(p), []).append(name)
    return [tuple(group) for group in names.values() if len(group) > 1]


def fake_inputs(types: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Tensors of each (shape, strides, torch dtype), without values. Call inside the fake mode."""
    return {
        name: torch.empty_strided(shape, strides, dtype=dtype)
        if strides
        else torch.zeros(shape, dtype=dtype)
        for name, (shape, strides, dtype) in types.items()
    }


fake_mode = torch_api.fake_mode
