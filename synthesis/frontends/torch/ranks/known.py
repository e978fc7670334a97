"""Values of the tensors that a step makes of numbers alone, such as a table that it keeps.

A trace has no values: what is made of data or of parameters is not known.
"""

# pyright: basic

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import is_fake
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from shardproof.synthesis.frontends.torch.digest import written_by
from shardproof.synthesis.frontends.torch.ranks.spans import same_storage, storage
from shardproof.synthesis.frontends.torch.uninitialized_reads import OF_A_SHAPE

MOST = 1 << 20
"""Elements of a tensor whose values are followed."""
_UNSAID = frozenset({"set_", "resize_", "empty", "empty_strided", "empty_like", "new_empty"})
_UNSAID |= {"new_empty_strided", "empty_permuted"}
"""Ops whose results hold what nobody said, or lie elsewhere."""


class Known(TorchDispatchMode):
    """Computes with values, beside what it watches, where these are known."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
        """By the number of a tensor: the tensor, and what it holds."""
        self.building = False
        """Whether tensors that have numbers hold these, as before any step."""

    def value(self, t: torch.Tensor) -> torch.Tensor | None:
        """What a tensor holds; None where that is not known."""
        if id(t) not in self._held:
            if is_fake(t) or type(t) not in (torch.Tensor, torch.nn.Parameter):
                return None
            with _disable_current_modes():
                now = t.detach().clone()
            if self.building:
                return now
            self._held[id(t)] = (t, now)
        return self._held[id(t)][1]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        outs = [t for t in tree_leaves(made) if isinstance(t, torch.Tensor)]
        if self.building and not any(map(is_fake, (*given, *outs))):
            return made
        followed = (
            func.namespace == "aten"
            and func._opname not in _UNSAID
            and torch.Tag.nondeterministic_seeded not in func.tags
            and all(t.numel() <= MOST and t.device.type == "cpu" for t in (*given, *outs))
        )
        unread = func.namespace == "aten" and func._opname in OF_A_SHAPE
        if not followed or (not unread and any(self.value(t) is None for t in given)):
            for t in written_by(func, args, kwargs):
                self._forget(t)
            return made
        with _disable_current_modes():
            real = func(*tree_map(self._real, args), **tree_map(self._real, kwargs))
        values = [t for t in tree_leaves(real) if isinstance(t, torch.Tensor)]
        self._held |= {id(t): (t, v) for t, v in zip(outs, values, strict=True)}
        return made

    def _real(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        known = self.value(value)
        return torch.empty(value.shape, dtype=value.dtype) if known is None else known

    def _forget(self, written: torch.Tensor) -> None:
        value = self.value(written)
        if value is None:
            return
        for key, (t, held) in self._held.items():
            if held is not None and same_storage(storage(held), storage(value)):
                self._held[key] = (t, None)
