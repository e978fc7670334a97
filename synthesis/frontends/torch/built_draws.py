"""Notes numbers that are drawn while a module is built, and that its code asks: another run draws
others, and the module that is built may be another.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

import os
import random
import sys
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from shardproof.synthesis.frontends.torch.ranks.places import Places
from shardproof.synthesis.frontends.torch.surroundings import noted

DRAWN = "a number that is drawn while the module is built, another one in each run"
_MODULES = ("random", "secrets", "uuid")
_NO_DRAW = ("seed", "default_rng", "getstate", "setstate", "get_state", "set_state")
_GENERATORS = (random.Random, np.random.RandomState, np.random.Generator)
_LARGEST = 4096
"""Entries of a drawn tensor that code may look at one by one."""


class BuiltDraws(TorchDispatchMode):
    """Follows what is drawn by PyTorch to where Python is told its value."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.places = places
        self.drawn: set[int] = set()
        """Storages of what was drawn, and of what was made of it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        drawn = torch.Tag.nondeterministic_seeded in func.tags
        if not drawn and not self.drawn:
            return result
        given = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        if not drawn and not any(_number(t) in self.drawn for t in given):
            return result
        if torch.Tag.data_dependent_output in func.tags:
            noted(self.places.frame(sys._getframe()), DRAWN)
        made = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        made += given if func._schema.is_mutable else []
        self.drawn |= {_number(t) for t in made if t.numel() <= _LARGEST} - {0}
        return result


def _number(t: torch.Tensor) -> int:
    """Of the storage of a tensor with values; 0 for another."""
    plain = type(t) in (torch.Tensor, torch.nn.Parameter) and not t.is_meta
    return t.untyped_storage()._cdata if plain else 0


def asked_of_draws(function: Any, frame: Any) -> None:
    """A line calls a function while a module is built."""
    owner: Any = getattr(function, "__self__", None)
    module = str(getattr(function, "__module__", None) or "")
    if function.__name__ in _NO_DRAW:
        return
    python = module in _MODULES or module.startswith("numpy.random") or function is os.urandom
    read = isinstance(owner, torch.Tensor) and function.__name__ in ("tolist", "numpy")
    if python or isinstance(owner, _GENERATORS) or (read and _is_drawn(owner)):
        noted(frame, DRAWN)


def _is_drawn(t: torch.Tensor) -> bool:
    modes = [m for m in _get_current_dispatch_mode_stack() if isinstance(m, BuiltDraws)]
    return any(_number(t) in m.drawn for m in modes)
