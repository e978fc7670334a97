"""Several models that one step trains, as one module.

The processes of a run read this file too: it imports nothing of shardproof.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

import inspect
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer


class Together(nn.Module):
    """Several models that one step trains, under the names that it gives them."""

    def __init__(self, models: Mapping[str, nn.Module]) -> None:
        super().__init__()
        for name, model in models.items():
            self.add_module(name, model)
        self.first = next(iter(models))


def together(model: nn.Module, others: Sequence[Any], function: Any) -> nn.Module:
    """The model of a step, with others that it is given if optimizers train parameters of them."""
    groups = (g for held in _optimizers(others) for g in held.param_groups)
    apart = {id(p) for g in groups for p in g["params"]} - {id(p) for p in model.parameters()}
    first, *names = inspect.signature(function).parameters
    more = {
        name: other
        for name, other in zip(names, others, strict=False)
        if isinstance(other, nn.Module) and any(id(p) in apart for p in other.parameters())
    }
    return Together({first: model, **more}) if more else model


def _optimizers(held: Sequence[Any]) -> Iterator[Optimizer]:
    """Those among objects, and in their attributes, lists and dicts."""
    todo, seen = [*held], set[int]()
    while todo:
        value = todo.pop()
        if id(value) in seen or isinstance(value, (torch.Tensor, nn.Module, type)):
            continue
        seen.add(id(value))
        if isinstance(value, Optimizer):
            yield value
        if isinstance(value, (list, tuple, deque)):
            todo += value
        else:
            todo += (value if isinstance(value, Mapping) else vars_of(value)).values()


def vars_of(value: Any) -> Mapping[str, Any]:
    return getattr(value, "__dict__", {})


def first_of(model: Any) -> Any:
    """What a step is given as its model."""
    return getattr(model, model.first) if isinstance(model, Together) else model
