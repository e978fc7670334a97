"""Calls that ask for a CUDA device, answered by the CPU where that is asked for."""

# pyright: basic
# (PyTorch has no types for what is used here.)

from collections.abc import Callable
from typing import Any

import torch

_CALLS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "torch.cuda.current_device": (torch.cuda, lambda: torch.device("cpu")),
    "torch.cuda.set_device": (torch.cuda, lambda device: None),
    "torch.cuda.synchronize": (torch.cuda, lambda device=None: None),
    "torch.Tensor.cuda": (torch.Tensor, lambda tensor, *args, **kwargs: tensor),
    "torch.nn.Module.cuda": (torch.nn.Module, lambda module, device=None: module),
}


def answer_by_cpu() -> dict[str, None]:
    """From now on, in this process; the calls that were answered, as they come."""
    answered: dict[str, None] = {}
    for name, (owner, instead) in _CALLS.items():

        def call(*args: Any, name: str = name, instead: Any = instead, **kwargs: Any) -> Any:
            answered[name] = None
            return instead(*args, **kwargs)

        setattr(owner, name.rpartition(".")[2], call)
    return answered
