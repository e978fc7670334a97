"""Single numbers that Python, numpy and `torch.rand(())` draw: while they are given, each is one
that the caller chooses, so that calls which differ in them alone can be compared.

What a draw is compared with is noted: on which side it lies is then tried both ways. Generators
that a model or a file holds need not be replaced: what they give is set.
"""

# pyright: basic

import math
import os
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from shardproof.synthesis.frontends.torch.digest import Log
from shardproof.synthesis.frontends.torch.homes import loaded
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
    for _, module, file in loaded():
        if places.own(file):
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


LEAST = 2.0**-40
"""By how much a draw is above that of the call before."""
_STEP = 2.0**-20
LEVELS = (_STEP, 0.25, 0.5, 0.75, 1 - _STEP)
"""Where draws are taken to lie, in turn."""
HELD = "a line that is not known"
_MOST = 96
"""How many ways to draw are compared."""
_ENDLESS = 4096
"""After so many numbers in one call they differ, so that a loop until one fits ends."""
_NORMAL = statistics.NormalDist()
_MOST_OF = 32
"""Whole numbers below at most this are each drawn."""


def _far(p: float) -> float:
    return -math.log1p(-p)


_PYTHON = {
    **dict.fromkeys(("gauss", "normalvariate"), _NORMAL.inv_cdf),
    **dict.fromkeys(("expovariate", "gammavariate", "weibullvariate", "lognormvariate"), _far),
    "paretovariate": lambda p: 1 + _far(p),
    "betavariate": float,
    "vonmisesvariate": lambda p: 2 * math.pi * p,
}
"""What is drawn of these, by how much of it lies below."""


@dataclass
class Singles:
    """The numbers that one call draws: the n-th is `levels[n]`, later ones the last of these."""

    levels: tuple[float, ...]
    places: Places
    held: Held | None = None
    """Generators that give numbers near the first level."""
    is_other: bool = False
    """Whether one of these gave a number by a function that is not replaced."""
    lines: list[str] = field(default_factory=list[str])
    """Where they were drawn."""
    ends: set[float] = field(default_factory=set[float])
    """What they were compared with."""

    def number(self) -> float:
        drawn = len(self.lines)
        level = self.levels[min(drawn, len(self.levels) - 1)]
        self.lines.append(self.places.line(sys._getframe(1)))
        if drawn >= _ENDLESS:
            level = drawn * 0.6180339887 % 1
        return _Drawn.of(level, self.ends)

    def below(self, n: int) -> int:
        if n <= _MOST_OF:
            self.ends |= {k / n for k in range(1, n)}
        return min(n - 1, int(float(self.number()) * n))

    def ways(self) -> Iterator[tuple[float, ...]]:
        """Draws with which the call is to be compared: all near one level, and each near another
        than the rest."""
        near = [end + side for end in sorted(self.ends) for side in (-_STEP, _STEP)]
        levels = [*LEVELS, *(v for v in near if 0 < v < 1)]
        out: list[tuple[float, ...]] = [(level,) for level in levels]
        out += [((k + 0.5) / _MOST_OF,) for k in range(_MOST_OF)] if self.is_other else []
        for at in range(min(len(self.lines), 8)) if len(self.lines) > 1 else ():
            for low, high in ((LEVELS[0], LEVELS[-1]), (LEVELS[-1], LEVELS[0])):
                out.append((*[low] * at, high, low))
        yield from out[:_MOST]


class _Drawn(float):
    """A draw that notes what it is compared with."""

    ends: set[float]

    @classmethod
    def of(cls, value: float, ends: set[float]) -> "_Drawn":
        made = cls(value)
        made.ends = ends
        return made

    def _note(self, other: Any) -> None:
        if isinstance(other, (int, float)):
            self.ends.add(float(other))

    def __lt__(self, other: Any) -> Any:
        self._note(other)
        return float(self) < other

    def __le__(self, other: Any) -> Any:
        self._note(other)
        return float(self) <= other

    def __gt__(self, other: Any) -> Any:
        self._note(other)
        return float(self) > other

    def __ge__(self, other: Any) -> Any:
        self._note(other)
        return float(self) >= other

    def __eq__(self, other: Any) -> Any:
        self._note(other)
        return float(self) == other

    __hash__ = float.__hash__


@contextmanager
def given(singles: Singles) -> Iterator[None]:
    """Single numbers are those of `singles`; also where the user's files hold the functions that
    draw under names of their own."""
    number, below = singles.number, singles.below
    replaced: list[tuple[Any, Any]] = []

    def sample(_: Any, population: Any, k: int, **__: Any) -> list[Any]:
        held = list(population)
        if not 0 <= k <= len(held):
            raise ValueError("Sample larger than population or is negative")
        start = below(max(len(held), 1))
        return [held[(start + i) % len(held)] for i in range(k)]

    def spread(way: Callable[[float], float]) -> Callable[..., float]:
        return lambda *_, **__: way(float(number()))

    def raw(n: int) -> bytes:
        return bytes([below(256)]) * n

    if singles.held is not None:
        singles.held.set(singles.levels[0])
    with ExitStack() as stack:

        def put(holder: Any, name: str, value: Any) -> None:
            if not isinstance(holder, type):
                replaced.append((getattr(holder, name), value))
            stack.enter_context(patch.object(holder, name, value))

        for kind in (random.Random, random.SystemRandom):
            put(kind, "random", lambda self: number())
            put(kind, "getrandbits", lambda self, k: below(1 << k))
            put(kind, "_randbelow", lambda self, n: below(n))
        put(random.Random, "uniform", lambda self, a, b: a + number() * (b - a))
        put(random.Random, "sample", sample)
        for name, way in _PYTHON.items():
            put(random.Random, name, spread(way))
            put(random, name, spread(way))
        put(random, "random", number)
        put(random, "uniform", lambda a, b: a + number() * (b - a))
        put(random, "getrandbits", lambda k: below(1 << k))
        put(random, "sample", lambda population, k, **more: sample(None, population, k))
        put(random, "_urandom", raw)
        put(os, "urandom", raw)
        put(torch, "rand", _torch(torch.rand, singles))
        _numpy(put, singles)
        for module, name, new in _aliases(singles.places, replaced):
            stack.enter_context(patch.object(module, name, new))
        yield
        if singles.held is not None and singles.held.moved():
            singles.is_other = True
            singles.lines.append(HELD)


def _aliases(places: Places, replaced: Sequence[tuple[Any, Any]]) -> Iterator[tuple[Any, str, Any]]:
    """Names under which the user's modules hold what is replaced."""
    new = {id(old): value for old, value in replaced}
    for _, module, file in loaded():
        if places.own(file):
            for name, value in list(vars(module).items()):
                if id(value) in new:
                    yield module, name, new[id(value)]


def deciding(
    call: Callable[[Singles], Log], first: Log, model: nn.Module, places: Places
) -> tuple[list[str], Log | None]:
    """The lines that draw; and what another call did, where that is something else than `first`:
    without lines it is not what is drawn that it depends on. One more call is made at least."""
    held = Held(model, places)
    seen = Singles((LEAST,), places, held)
    called = call(seen)
    if HELD in seen.lines:
        seen.lines = held.lines(places, lambda: call(seen)) or seen.lines
    if not called.alike(first):
        return seen.lines, called
    tried: set[tuple[float, ...]] = set()
    while seen.lines:
        levels = next((way for way in seen.ways() if way not in tried), None)
        if levels is None:
            break
        tried.add(levels)
        singles = Singles(levels, places, held)
        other = call(singles)
        seen.ends |= singles.ends
        if HELD not in singles.lines:
            seen.lines = max(seen.lines, singles.lines, key=len)
        if not other.alike(first):
            return seen.lines, other
    return list(dict.fromkeys(seen.lines)), None


def told(lines: Sequence[str]) -> Iterator[str]:
    """The assumption where draws decide nothing."""
    if lines:
        yield (
            f"What is drawn at {', '.join(lines[:4])} decides nothing: draws near 0, 1/4, 1/2, 3/4 "
            "and 1, and on both sides of what a draw is compared with, were tried, and no others."
        )


def _numpy(put: Callable[[Any, str, Any], None], singles: Singles) -> None:
    """numpy's functions and generators that are made meanwhile."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return
    drawn = _Numpy(numpy, singles)
    for name in ("rand", "random", "random_sample", "ranf", "sample", "uniform", "randint", "randn",
                 "normal", "standard_normal", "binomial", "choice", "permutation",
                 "shuffle"):  # fmt: skip
        put(numpy.random, name, getattr(drawn, name))


class _Numpy:
    """What numpy draws."""

    def __init__(self, numpy: Any, singles: Singles) -> None:
        self._np, self._singles = numpy, singles

    def _full(self, size: Any, value: Any) -> Any:
        return value if size is None or size == () else self._np.full(size, value)

    def random(self, size: Any = None, *_: Any, **__: Any) -> Any:
        return self._full(size, self._singles.number())

    random_sample = ranf = sample = random

    def rand(self, *size: int) -> Any:
        return self.random(size)

    def uniform(self, low: float = 0.0, high: float = 1.0, size: Any = None) -> Any:
        return self._full(size, low + self._singles.number() * (high - low))

    def normal(self, loc: float = 0.0, scale: float = 1.0, size: Any = None) -> Any:
        return self._full(size, loc + scale * _NORMAL.inv_cdf(float(self._singles.number())))

    def standard_normal(self, size: Any = None, *_: Any, **__: Any) -> Any:
        return self.normal(size=size)

    def beta(self, a: float, b: float, size: Any = None) -> Any:
        return self.random(size)

    def randn(self, *size: int) -> Any:
        return self.normal(size=size)

    def randint(self, low: int, high: Any = None, size: Any = None, *_: Any, **__: Any) -> Any:
        start, end = (0, low) if high is None else (low, high)
        return self._full(size, start + self._singles.below(end - start))

    integers = randint

    def binomial(self, n: int, p: float, size: Any = None) -> Any:
        return self._full(size, int(float(self._singles.number()) * (n + 1)))

    def permutation(self, x: Any) -> Any:
        held = self._np.arange(x) if isinstance(x, int) else self._np.array(x)
        return self._np.roll(held, self._singles.below(max(len(held), 1)))

    def shuffle(self, x: Any) -> None:
        x[:] = self.permutation(x)

    def choice(self, a: Any, size: Any = None, *_: Any, **__: Any) -> Any:
        held = range(a) if isinstance(a, int) else a
        return self._full(size, held[self._singles.below(len(held))])


def _torch(plain: Any, singles: Singles) -> Any:
    """`torch.rand`, of which a single number is drawn."""

    def rand(*size: Any, **kwargs: Any) -> torch.Tensor:
        given = size[0] if len(size) == 1 else kwargs.get("size")
        if isinstance(given, (list, tuple)) and not given and set(kwargs) <= {"size"}:
            return torch.tensor(float(singles.number()))
        return plain(*size, **kwargs)

    return rand
