"""What a step works on beside what it is given: what these objects hold, what the model's modules
keep as plain attributes, and what functions of the owner's call by a name of their file."""

# pyright: basic
# (PyTorch has no types for what is used here.)

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from shardproof.synthesis.frontends.torch.homes import is_users
from shardproof.synthesis.frontends.torch.ranks.logged import Logged

_OF_EVERY_OPTIMIZER = frozenset(vars(torch.optim.SGD([torch.zeros(0)])))


def reached(value: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """An object, and what it holds in its attributes, lists and dicts, each with where."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif id(value) not in seen and type(value) is not Logged and not isinstance(value, type):
        seen.add(id(value))
        if isinstance(value, (Optimizer, GradScaler, nn.Module)):
            yield name, value
        for where, inner in _inside(value, name).items():
            yield from reached(inner, f"{name}{where}", seen)


def attributes(model: nn.Module) -> dict[str, Any]:
    """What modules of the owner's hold beside tensors and modules, by where."""
    found = dict[str, Any]()
    for name, module in model.named_modules():
        for where, value in _plain(module).items():
            if not isinstance(value, (torch.Tensor, nn.Module)):
                found[f"{name}{where}".lstrip(".")] = value
    return found


def named(function: Callable[..., Any]) -> dict[str, Any]:
    """The objects that a function of the owner's, or one that it calls, knows by a name of its file
    or of a function around it; classes, functions and modules apart."""
    found, todo, seen = dict[str, Any](), deque[Any]([function]), set[int]()
    while todo:
        value = todo.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, partial):
            todo += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, MethodType):
            todo += [value.__func__, value.__self__]
        elif isinstance(value, type):
            if is_users(_file(value)):
                todo += [getattr(v, "fget", v) for v in vars(value).values()]
        elif not isinstance(value, FunctionType):
            todo.append(type(value))
        elif is_users(value.__code__.co_filename):
            around = _around(value)
            todo += around.values()
            found |= {k: v for k, v in around.items() if not _is_code(v)}
    return found


def _around(function: FunctionType) -> dict[str, Any]:
    """What the names in a function stand for that it does not make itself."""
    names = _names(function.__code__)
    found = {n: function.__globals__[n] for n in names if n in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # it is not set yet
            continue
    defaults = function.__defaults__ or (), (function.__kwdefaults__ or {}).values()
    kept = [v for values in defaults for v in values]
    return found | {f"{function.__name__}.__defaults__[{i}]": v for i, v in enumerate(kept)}


def _names(code: CodeType) -> list[str]:
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return [*code.co_names, *(name for c in inner for name in _names(c))]


def _file(cls: type) -> str:
    functions = (v for v in vars(cls).values() if isinstance(v, FunctionType))
    return next((f.__code__.co_filename for f in functions), "")


def _is_code(value: Any) -> bool:
    """Whether a value is code, or belongs to PyTorch's own surroundings, as a mesh does."""
    if isinstance(value, (type, ModuleType, FunctionType, MethodType, partial)):
        return True
    holds = isinstance(value, (torch.Tensor, Optimizer, GradScaler, nn.Module))
    return not holds and type(value).__module__.startswith("torch.")


def _plain(module: nn.Module) -> dict[str, Any]:
    of_torch = type(module).__module__.startswith("torch.")
    return {} if of_torch else {f".{k}": v for k, v in vars(module).items() if k[0] != "_"}


def _inside(value: Any, name: str) -> dict[str, Any]:
    if isinstance(value, nn.Module):
        return _plain(value) | {f".{k}": v for k, v in value._modules.items()}
    if isinstance(value, Mapping):
        named = ((k, v) for k, v in value.items() if not isinstance(k, torch.Tensor))
        return {f"[{key!r}]": v for key, v in named}
    if isinstance(value, (list, tuple, deque)):
        return {f"[{i}]": v for i, v in enumerate(value)}
    if isinstance(value, Optimizer):
        return {f".{k}": v for k, v in vars(value).items() if k not in _OF_EVERY_OPTIMIZER}
    of_torch = "." in name and type(value).__module__.startswith(("torch.", "shardproof."))
    if of_torch and not isinstance(value, GradScaler):
        return {}
    return {f".{k}": v for k, v in getattr(value, "__dict__", {}).items()}
