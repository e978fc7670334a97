"""Values of tensors that are made of nothing but numbers in the code, as a mask of a diagonal is.

A trace has no values. Where a mask chooses rows by one that is known, so are the rows: they are
chosen by their numbers instead.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

import weakref
from typing import Any

import torch
from torch._subclasses.fake_tensor import is_fake
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from shardproof.synthesis.frontends.torch.ranks.spans import storage
from shardproof.synthesis.frontends.torch.uninitialized_reads import EMPTY

_aten: Any = torch.ops.aten
CHOOSING = {
    _aten.index.Tensor,
    _aten.index_put.default,
    _aten.index_put_.default,
    _aten._index_put_impl_.default,
}
"""Ops whose second operand is a list, of indices or masks."""
MOST = 1 << 20
"""Entries of tensors whose values are kept."""


class Shadows:
    """The values of the tensors of a call that are known, by the number of the tensor."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor, int]] = {}
        """The tensor, its values, and its memory."""
        self.unknown = set[int]()
        """Memory of parameters, buffers and state: of any values, whatever they are at first."""

    def of(self, t: Any) -> torch.Tensor | None:
        """The values of a tensor, where they are known."""
        if isinstance(t, torch.Tensor) and not is_fake(t):
            return None if storage(t)._cdata in self.unknown else t
        known = self.held.get(id(t))
        if known is None or known[0]() is not t or known[2] != storage(t)._cdata:
            return None
        return known[1]

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an op, its masks of known values as the numbers of the entries that they choose, and
        note the values of what it gives."""
        if func in CHOOSING:
            lines = self._lines(func, args)
            if lines is not None:
                return lines
            args = (args[0], [n for t in args[1] for n in self._numbers(t)], *args[2:])
        result = func(*args, **kwargs)
        self._note(func, args, kwargs, result)
        return result

    def _lines(self, func: Any, args: Any) -> torch.Tensor | None:
        """What a mask chooses of a matrix, as many entries of each line, as entries of lines: so
        they stay apart where lines are split over ranks. Its adjoint adds them up there."""
        x, (first, *more), *rest = args
        mask = None if more else self._mask(first)
        if mask is None or mask.dim() != 2 or x.dim() != 2:
            return None
        with _disable_current_modes():
            counts = mask.sum(1)
            count = int(counts[0])
            if not count or not bool((counts == count).all()):
                return None
            columns = mask.nonzero()[:, 1].reshape(len(mask), count)
        if func is _aten.index.Tensor:
            return x.gather(1, columns).reshape(-1)
        values, *adds = rest
        if not any(adds[:1]):
            return None
        add = x.scatter_add_ if func._schema.is_mutable else x.scatter_add
        return add(1, columns, values.reshape(columns.shape))

    def _numbers(self, t: Any) -> list[Any]:
        mask = self._mask(t)
        if mask is None:
            return [t]
        with _disable_current_modes():
            return list(mask.nonzero(as_tuple=True))

    def _mask(self, t: Any) -> torch.Tensor | None:
        return self.of(t) if isinstance(t, torch.Tensor) and t.dtype == torch.bool else None

    def _note(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        given, made = _tensors((args, kwargs)), _tensors(result)
        values = [self.of(t) for t in given]
        known = all(v is not None for v in values)
        known = known and torch.Tag.nondeterministic_seeded not in func.tags
        known = known and func.namespace == "aten" and func._opname not in EMPTY
        known = known and sum(t.numel() for t in made) <= MOST and all(map(is_fake, made))
        if not known:
            if func._schema.is_mutable:
                self.forget((args, kwargs))
            return
        pairs = {id(t): v for t, v in zip(given, values, strict=True)}
        args, kwargs = tree_map_only(torch.Tensor, lambda t: pairs[id(t)], (args, kwargs))
        with _disable_current_modes(), torch.no_grad():
            found = _tensors(func(*args, **kwargs))
        for t, value in zip(made, found, strict=True):
            self.held[id(t)] = weakref.ref(t), value, storage(t)._cdata

    def forget(self, value: Any) -> None:
        """What lies in the memory of some tensors is not known any more."""
        places = {storage(t)._cdata for t in _tensors(value)} if self.held else set[int]()
        if places:
            self.held = {k: kept for k, kept in self.held.items() if kept[2] not in places}


def _tensors(value: Any) -> list[torch.Tensor]:
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor)]
