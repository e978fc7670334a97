"""Which tensors of a training step hold counts, and what is known of the truth of others.

A count is a sum of many entries of a mask, or a sum or product of counts: a step may tell it from
0. A single flag is no count, nor is a number that no data decides.
"""

# pyright: basic

import operator
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from shardproof.synthesis.frontends.torch.ranks.dtensors import local
from shardproof.synthesis.frontends.torch.ranks.spans import same_storage, storage

NOT_ZERO = "Counts that a step tells from 0 are above it: {places}."
ALL_FINITE = "Numbers are finite where a step asks: {places}."
FINITE = {"isfinite": True, "isnan": False, "isinf": False}
"""What is answered of a real number."""
COMPARISONS: dict[str, Callable[[float], bool | None]] = {
    "gt": lambda bound: True if bound < 1 else None,
    "ge": lambda bound: True if bound <= 1 else None,
    "lt": lambda bound: False if bound <= 1 else None,
    "le": lambda bound: False if bound < 1 else None,
    "eq": lambda bound: False if bound < 1 else None,
    "ne": lambda bound: True if bound < 1 else None,
}
"""What a comparison of an integer above 0 with a number comes to."""
_KEPT = frozenset({"to", "long", "int", "float", "double", "type", "clone", "detach", "view"})
_KEPT |= {"reshape", "squeeze", "unsqueeze", "flatten", "contiguous", "cpu"}
_ADDED = frozenset({"add", "radd", "iadd"})
_MULTIPLIED = frozenset({"mul", "rmul", "imul"})
_PLAIN = frozenset({"zeros", "ones", "zeros_like", "ones_like", "new_zeros", "new_ones"})


class Level(IntEnum):
    """What is known of the entries of a tensor."""

    NONE = 0
    WHOLE = 1
    """Integers of at least 0."""
    MASK = 2
    """Such ones, and data decides which."""
    COUNT = 3
    """Sums of many of those."""


def in_place(func: Any) -> bool:
    """Whether a function of PyTorch writes into its first argument: `add_`, `__iadd__`."""
    name = getattr(func, "__name__", "")
    if name.startswith("__"):
        return (name.startswith("__i") and name not in ("__int__", "__index__", "__invert__")) or (
            name in ("__setitem__", "__set__", "__delitem__")
        )
    return name.endswith("_")


def compared(name: str, bound: Any) -> bool | None:
    """What a comparison of a count above 0 with a number comes to; None: not known."""
    return COMPARISONS[name](bound) if type(bound) in (int, float, bool) else None


def is_one_of(value: torch.Tensor, level: Level) -> bool:
    """Whether a tensor has a single entry, and at least a level."""
    return value.numel() == 1 and level >= Level.COUNT


class Counts:
    """What is known of the tensors of one call."""

    def __init__(self) -> None:
        self.levels: dict[int, tuple[torch.Tensor, tuple[Level, ...]]] = {}
        """By the number of a tensor: the tensor, and the level of each of its parts."""
        self.flags: dict[int, tuple[torch.Tensor, str, bool]] = {}
        """By the number of a tensor that is true or false: the tensor, what is taken for granted,
        and which it is."""

    def follow(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], made: Any
    ) -> None:
        """Note what is known of what a call made, or wrote into its first argument."""
        into = args[0] if name == "setitem" else made
        plain = isinstance(into, torch.Tensor) and not {"alpha", "out"} & kwargs.keys()
        plain = plain and not (name == "view" and "dtype" in kwargs)  # its bytes
        levels = self._made_of(name, args, kwargs, into) if plain else None
        flag = self._flag(name, args) if plain else None
        first = args[:1] if in_place(func) else ()
        for written in tree_flatten((first, kwargs.get("out")))[0]:
            if isinstance(written, torch.Tensor):
                self.forget(written)
        if levels is not None and any(levels):
            self.levels[id(into)] = (into, levels)
        if flag is not None:
            self.flags[id(made)] = (made, *flag)

    def forget(self, written: torch.Tensor) -> None:
        """Other numbers are written into a tensor."""
        known: tuple[dict[int, Any], ...] = (self.levels, self.flags)
        for held in known:
            for key, (t, *_) in list(held.items()):
                if same_storage(storage(local(t)), storage(local(written))):
                    del held[key]

    def level(self, value: Any) -> Level:
        """Of all entries of a tensor, or of a number."""
        if not isinstance(value, torch.Tensor):
            whole = type(value) in (int, float) and value >= 0 and value == int(value)
            return Level.WHOLE if whole else Level.NONE
        if id(value) in self.flags:
            return Level.NONE
        known = self.levels.get(id(value))
        return min(known[1]) if known else Level.MASK if value.dtype == torch.bool else Level.NONE

    def truth(self, value: torch.Tensor) -> tuple[str, bool] | None:
        """What is taken for granted of a tensor whose truth is asked, and its truth."""
        if id(value) in self.flags:
            return self.flags[id(value)][1:]
        return (NOT_ZERO, True) if is_one_of(value, self.level(value)) else None

    def _made_of(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], made: torch.Tensor
    ) -> tuple[Level, ...] | None:
        first = args[0] if args else None
        if name in _PLAIN:
            return (Level.WHOLE,)
        if name in ("stack", "cat") and isinstance(first, (list, tuple)):
            alone = name == "stack" or all(t.numel() == 1 for t in first)
            return tuple(map(self.level, first)) if alone else (min(map(self.level, first)),)
        if not isinstance(first, torch.Tensor):
            return None
        held = self.levels.get(id(first), (None, (self.level(first),)))[1]
        least = min(held)
        if name in _KEPT:
            return None if name == "view" and torch.dtype in map(type, args) else held
        if name == "getitem" and type(args[1]) is int and len(held) > 1:
            return (held[args[1]],)
        if name in ("sum", "count_nonzero") and least:
            many = least == Level.MASK and made.numel() < first.numel()
            return (Level.COUNT if many else least,)
        levels = [self.level(v) for v in args if not isinstance(v, torch.Size)]
        if name in _ADDED and all(levels):
            return (max(levels),)
        if name in _MULTIPLIED and all(levels) and all(args[i] != 0 for i in _numbers(args)):
            return (min(self.level(v) for v in args if isinstance(v, torch.Tensor)),)
        if name in ("setitem", "masked_fill") and least and self.level(args[2]):
            chosen = isinstance(args[1], torch.Tensor) and args[1].dtype == torch.bool
            least = min(least, Level.MASK)
            return (Level.MASK if chosen else max(least, min(self.level(args[2]), Level.MASK)),)
        return None

    def _flag(self, name: str, args: tuple[Any, ...]) -> tuple[str, bool] | None:
        """What is known of a tensor that is true or false, and what is taken for granted."""
        first = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if first is None:
            return None
        if name in FINITE and len(args) == 1:
            return ALL_FINITE, FINITE[name]
        known = self.flags.get(id(first))
        if known is not None:
            if name in COMPARISONS and len(args) == 2 and type(args[1]) in (int, float, bool):
                return known[1], getattr(operator, name)(known[2], args[1])
            if name in (*_KEPT, "any", "all"):
                return known[1:]
            if name in ("logical_not", "invert") and first.dtype == torch.bool:
                return known[1], not known[2]
        if name in COMPARISONS and len(args) == 2 and is_one_of(first, self.level(first)):
            found = compared(name, args[1])
            return None if found is None else (NOT_ZERO, found)
        return None


def _numbers(args: tuple[Any, ...]) -> list[int]:
    return [i for i, v in enumerate(args) if not isinstance(v, torch.Tensor)]
