"""Generators of random numbers that are held by something: those of Python and numpy themselves,
and those that a model, or a file of the user's, keeps. Their functions need not be replaced:
what they give is set.
"""

# pyright: basic
# (numpy and random have no types for what is set here.)

import random
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from shardproof.synthesis.frontends.torch.ranks.places import Places

_LEGACY = np.random.RandomState
_KINDS = (random.Random, _LEGACY, np.random.Generator)
_PCG64 = 0x2360ED051FC65DA44385DF649FCCF645
"""What PCG64 multiplies its state by."""
_WORDS = 624
_FIRST = 400
"""Words of MT19937 that stand for one number; the rest end loops that draw until one fits."""


class Held:
    """The generators that are there when this is made."""

    def __init__(self, model: nn.Module, places: Places) -> None:
        own: Any = random
        found = {id(o): o for o in (own._inst, np.random.mtrand._rand)}
        kept = [vars(m) for m in model.modules()]
        for names in (*kept, *_globals(model, places)):
            found |= {id(o): o for o in _generators(list(names.values()), 2)}
        self._all = list(found.values())
        self._before: list[Any] = []

    def set(self, level: float) -> None:
        """What is drawn next is near a level; what follows depends on it."""
        rest = random.Random(level)
        word = max(min(int(level * 2**32), 2**32 - 1), 32)
        words = [_untempered(word)] * _FIRST
        words += [rest.getrandbits(32) for _ in range(_WORDS - _FIRST)]
        for generator in self._all:
            _set(generator, word, words)
        self._before = self._states()

    def moved(self) -> bool:
        """Whether anything was drawn since."""
        return self._states() != self._before

    def lines(self, places: Places, call: Callable[[], Any]) -> list[str]:
        """`file:line` of what draws while something is called."""
        found: dict[str, None] = {}
        last: list[Any] = ["", self._states()]

        def look(frame: Any, event: str, _: Any) -> Any:
            if not places.own(frame.f_code.co_filename):
                return None
            now = self._states()
            if now != last[1] and last[0]:
                found[last[0]] = None
            last[1] = now
            outer = frame.f_back if event == "return" else frame
            last[0] = places.line(outer)
            return look

        before = sys.gettrace()
        sys.settrace(look)
        try:
            call()
        finally:
            sys.settrace(before)
        return list(found)

    def _states(self) -> list[Any]:
        return [_state(generator) for generator in self._all]


def _globals(model: nn.Module, places: Places) -> Iterator[dict[str, Any]]:
    """Of the user's files, and of those of the model's classes."""
    for module in list(sys.modules.values()):
        if places.own(getattr(module, "__file__", None) or ""):
            yield vars(module)
    for forward in {type(m).forward for m in model.modules()}:
        code = getattr(forward, "__code__", None)
        if code is not None and places.own(code.co_filename):
            yield forward.__globals__


def _generators(values: list[Any], depth: int) -> Iterator[Any]:
    """Generators among values, and in what these hold."""
    for value in values:
        if isinstance(value, _KINDS) and not isinstance(value, random.SystemRandom):
            yield value
        elif depth and isinstance(value, (list, tuple)):
            yield from _generators(list(value), depth - 1)
        elif depth and isinstance(value, dict):
            yield from _generators(list(value.values()), depth - 1)
        elif depth and not isinstance(value, (type, ModuleType, nn.Module, torch.Tensor)):
            yield from _generators(list(getattr(value, "__dict__", {}).values()), depth - 1)


def _bits(generator: Any) -> Any:
    is_legacy = isinstance(generator, _LEGACY)
    return generator._bit_generator if is_legacy else generator.bit_generator


def _set(generator: Any, word: int, words: list[int]) -> None:
    if isinstance(generator, random.Random):
        generator.setstate((3, (*words, 0), None))
        return
    bits = _bits(generator)
    state = type(bits)(words[-1]).state
    if state["bit_generator"] == "MT19937":
        state["state"] = {"key": np.array(words, dtype=np.uint32), "pos": 0}
    elif state["bit_generator"] == "PCG64":
        after = word << 32 | 2**31
        step = state["state"]
        step["state"] = (after - step["inc"]) * pow(_PCG64, -1, 2**128) % 2**128
    bits.state = state


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    return repr(_bits(generator).state)


def _untempered(word: int) -> int:
    """The word of MT19937's state that is given out as `word`."""
    word ^= word >> 18
    word ^= (word << 15) & 0xEFC60000
    kept = word
    for _ in range(5):
        kept = word ^ ((kept << 7) & 0x9D2C5680)
    word = found = kept & 0xFFFFFFFF
    for _ in range(3):
        found = word ^ (found >> 11)
    return found
