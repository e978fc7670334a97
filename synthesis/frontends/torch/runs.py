"""Runs code on samples, watched: which values its lines make, which ways it goes, what it breaks.

Floats are float64 where the code allows it: casts to narrower floats are not done.
"""

# pyright: basic

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from shardproof.synthesis.frontends.torch.branch_coverage import MOST_STEPS, Ways
from shardproof.synthesis.frontends.torch.errors import shown
from shardproof.synthesis.frontends.torch.homes import own
from shardproof.synthesis.frontends.torch.observed import Handwritten, Value
from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.synthesis.frontends.torch.target import TORCH_DTYPES

_NARROW = (torch.float32, torch.bfloat16, torch.float16)
_CASTS = {"float", "half", "bfloat16"}
MOST_VALUES = 4000
MOST_CALLS = 20_000
"""Of functions in a run that looks for edges: a loop may run as often as its input is large."""
MOST_ELEMENTS = 4_000_000
_WHICH = {"topk": 2, "sort": 1, "argsort": 1, "argmax": 1, "argmin": 1, "max": 1, "min": 1}
"""Functions that name an entry, and where their dim stands: among equals PyTorch names any."""
_STEPS = ("round", "floor", "ceil", "trunc", "sign", "threshold", "hardshrink")
"""Functions of floats to floats that jump."""
_LIMITS = frozenset(
    {"clamp", "clip", "clamp_min", "clamp_max", "hardtanh", "relu6", "minimum", "maximum"}
)
"""Functions that leave an entry as it is on one side of a limit."""
_WHOLE = frozenset({"__int__", "__index__", "equal", "allclose"})
"""Functions of floats to one whole number or a truth."""
_LEAVE = frozenset({"numpy", "__array__", "tolist"})
"""Functions behind which nothing is seen."""


class Watch(TorchFunctionMode):
    """Sees every torch function that the code calls.

    With `wide`, casts to floats of any kind go to `to` instead, and `torch.finfo` of float64 says
    what that of `like` says. In `trail` comes what was decided by comparing, rounding or limiting,
    where it is a list; `ways` is told how comparisons and limits came out.
    """

    def __init__(
        self,
        root: str,
        wide: bool,
        record: bool = False,
        to: torch.dtype = torch.float64,
        trail: list[Any] | None = None,
        like: torch.dtype = torch.float32,
        ways: Ways | None = None,
    ) -> None:
        super().__init__()
        self.ways = ways
        self.root, self.wide, self.record = root, wide, record
        self.to, self.trail, self.like = to, trail, like
        self._finfo: Any = None
        self.values: list[Value] = []
        self.elements = 0
        self.tied = False
        self.calls = 0
        self.left: set[tuple[str, int]] = set()
        """Lines, each with its file, at which values leave PyTorch."""

    def __enter__(self) -> Any:
        """Beside the mode: epsilons and limits are those of the dtype that the code is for."""
        self._finfo = real = torch.finfo
        if self.wide and self.to is torch.float64:

            def finfo(dtype: Any = None) -> Any:
                dtype = torch.get_default_dtype() if dtype is None else dtype
                return real(self.like if dtype is torch.float64 else dtype)

            torch.finfo = finfo
        return super().__enter__()

    def __exit__(self, *problem: Any) -> None:
        torch.finfo = self._finfo
        super().__exit__(*problem)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        self.calls += 1
        if self.trail is not None and self.calls > MOST_CALLS:
            raise RuntimeError(f"more than {MOST_CALLS} calls")
        if self.wide:
            if name in _CASTS and args and isinstance(args[0], torch.Tensor):
                return args[0].to(self.to)
            args = tuple(self.to if _narrow(a) else a for a in args)
            if _narrow(kwargs.get("dtype")):
                kwargs["dtype"] = self.to
            if name == "rms_norm" and len(args) < 4 and kwargs.get("eps") is None:
                kwargs["eps"] = torch.finfo(args[0].dtype).eps
        if name in _WHICH and not self.tied:
            self.tied = _tied(name, args, kwargs)
        first = args[0] if args and isinstance(args[0], torch.Tensor) else None
        limits = first is not None and name.rstrip("_") in _LIMITS
        before = first.detach().clone() if limits and first is not None else None
        result = func(*args, **kwargs)
        self._decided(name, args, before, result)
        if name in _LEAVE and (frame := self._frame()) is not None:
            self.left.add((frame.f_code.co_filename, frame.f_lineno))
        if self.record:
            for t in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(t, torch.Tensor):
                    self._keep(name, t)
        return result

    def _decided(self, name: str, args: Any, before: torch.Tensor | None, result: Any) -> None:
        """Note how a comparison, a step or a limit came out."""
        if before is not None and isinstance(result, torch.Tensor):
            how = before.broadcast_to(result.shape) != result.detach()
        elif _decides(name, args, result):
            how = result.detach()
        elif name in _WHOLE and isinstance(result, int) and _floats(args):
            how = torch.tensor(result)
        else:
            return
        if self.trail is not None and len(self.trail) < MOST_STEPS:
            self.trail.append((name, hash(array(how).tobytes())))
        if self.ways is not None and self.ways.counting and how.dtype is torch.bool:
            frame = self._frame()
            if frame is not None:
                what = f"{name} changes an entry" if before is not None else f"{name} of entries"
                code, line, at = frame.f_code.co_filename, frame.f_lineno, frame.f_lasti
                sides = bool(how.any()), not bool(how.all())
                self.ways.note((code, line, -1 - at), what, *sides)

    def _frame(self) -> Any:
        """The innermost line of the user's that is being run."""
        frame: Any = sys._getframe(2)
        while frame is not None and not own(self.root, frame.f_code.co_filename):
            frame = frame.f_back
        return frame

    def _keep(self, name: str, t: torch.Tensor) -> None:
        full = self.elements + t.numel() > MOST_ELEMENTS or len(self.values) >= MOST_VALUES
        if full or name.startswith("__get"):
            return
        frame = self._frame()
        if frame is None:
            return
        self.elements += t.numel()
        at = shown(frame.f_code.co_filename, self.root)
        self.values.append(Value(at, frame.f_lineno, name, array(t)))


def _decides(name: str, args: Any, result: Any) -> bool:
    """Whether floats went in, and what came out jumps as they change."""
    if not isinstance(result, torch.Tensor) or not _floats(args):
        return False
    return name in _STEPS or not (result.is_floating_point() or result.is_complex())


def _floats(args: Any) -> bool:
    return any(isinstance(a, torch.Tensor) and a.is_floating_point() for a in args)


def _narrow(value: Any) -> bool:
    return isinstance(value, torch.dtype) and value in _NARROW


def _tied(name: str, args: Any, kwargs: Any) -> bool:
    """Whether two finite entries of a line are equal, so that which one is named is open."""
    if not args or not isinstance(args[0], torch.Tensor):
        return False
    place = _WHICH[name]
    given = args[place] if len(args) > place else kwargs.get("dim")
    if name in ("max", "min") and not isinstance(given, int):
        return False
    x = args[0].detach()
    dim = given if isinstance(given, int) else -1
    x = x.flatten() if name in ("argmax", "argmin") and given is None else x
    if not x.ndim:
        return False
    line = x.double().sort(dim=dim).values
    first = line.narrow(dim, 0, max(line.shape[dim] - 1, 0))
    second = line.narrow(dim, min(1, line.shape[dim]), max(line.shape[dim] - 1, 0))
    return bool(((first == second) & first.isfinite()).any())


def array(t: torch.Tensor) -> Any:
    """The tensor in numpy, narrow floats widened."""
    plain = t.detach()
    return (plain.double() if plain.is_floating_point() else plain).numpy().copy()


@contextmanager
def noted_functions(seen: dict[type, tuple[Any, ...]]) -> Iterator[None]:
    """Note the arguments of the first call of every custom autograd function."""
    function: Any = torch.autograd.Function
    original = function.__dict__["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls not in seen:
            seen[cls] = tuple(
                a.detach().clone().requires_grad_(a.requires_grad)
                if isinstance(a, torch.Tensor)
                else a
                for a in args
            )
        return original.__get__(None, cls)(*args, **kwargs)

    function.apply = classmethod(apply)
    try:
        yield
    finally:
        function.apply = original


def draw(specs: tuple[InputSpec, ...], label: str, seed: int, dtype: Any) -> dict[str, Any]:
    """Arguments of one sample, by its label."""
    g = torch.Generator().manual_seed(1000 + seed)
    out: dict[str, Any] = {}
    for spec in specs:
        kind = TORCH_DTYPES[spec.dtype]
        if kind.is_floating_point:
            x = torch.randn(spec.shape, generator=g, dtype=torch.float64)
            out[spec.name] = _shaped(x, label, g).to(dtype)
            continue
        below = 2 if spec.dtype == "bool" else max(spec.below, 1)
        x = torch.randint(0, below, spec.shape, generator=g)
        if spec.ignored is not None:
            x[torch.rand(spec.shape, generator=g) < 0.25] = spec.ignored
        if label in ("negative", "zeros"):
            x = torch.zeros_like(x)
        elif label == "positive":
            x = torch.full_like(x, below - 1)
        out[spec.name] = x.to(kind)
    return out


def _shaped(x: torch.Tensor, label: str, g: torch.Generator) -> torch.Tensor:
    if label.startswith("scale "):
        return x * float(label.removeprefix("scale "))
    if label.startswith("edge "):
        return x * float(label.removeprefix("edge "))
    if label.startswith("negative edge "):
        return -x.abs() * float(label.removeprefix("negative edge "))
    if label == "ties":
        return x.round().clamp(-1, 1)
    if label == "half zeros":
        return x * (torch.rand(x.shape, generator=g, dtype=torch.float64) < 0.5)
    return {"zeros": lambda: x * 0, "negative": lambda: -x.abs(), "positive": x.abs}.get(
        label, lambda: x
    )()


def randomise(model: nn.Module, seed: int, label: str = "") -> None:
    """Random parameters of moderate size, norms and biases included; coarse ones for
    ties, larger ones with larger inputs."""
    g = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for p in model.parameters():
            noise = torch.randn(p.shape, generator=g, dtype=torch.float64)
            value = noise * 0.2 + (1.0 if p.ndim == 1 else 0.0)
            value = value + noise if label == "scale 8" else value
            p.copy_((value * 4).round() / 4 if label == "ties" else value)


@dataclass
class Slope:
    """A function of one tensor, its gradient by backward, and its slope by differences."""

    told: float
    slope: float

    @property
    def agree(self) -> bool:
        return abs(self.told - self.slope) <= 1e-4 * max(abs(self.told), abs(self.slope), 1e-3)


def slope(value: Callable[[Any], float], at: Any, grad: Any, seed: int) -> Slope:
    """The derivative of `value` along a random direction, against what `grad` says."""
    g = torch.Generator().manual_seed(seed)
    v = torch.randn(at.shape, generator=g, dtype=torch.float64)
    v /= v.norm().clamp_min(1e-12)
    h = 1e-6 * max(1.0, float(at.abs().max()) if at.numel() else 1.0)
    rise = value(at + h * v) - value(at - h * v)
    told = float((grad * v).sum()) if grad is not None else 0.0
    return Slope(told, rise / (2 * h))


def _tensors(result: Any) -> list[torch.Tensor]:
    return [
        t
        for t in (result if isinstance(result, tuple) else (result,))
        if isinstance(t, torch.Tensor) and t.is_floating_point()
    ]


def examine(cls: Any, args: tuple[Any, ...], root: str, wide: bool) -> Handwritten:
    """Hold a custom function's backward to differences of its own forward, at these arguments."""
    file, line = inspect.getsourcefile(cls) or "", 0
    with suppress(OSError, TypeError):
        line = inspect.getsourcelines(cls.backward)[1]
    place = shown(file, root) if own(root, file) else Path(file).name
    plain = Handwritten(cls.__name__.removeprefix("GeneratedBackwardFor_"), place, line)
    names = list(inspect.signature(cls.forward).parameters)[1:]
    if len(names) < len(args):
        names = [f"argument {i}" for i in range(len(args))]
    floats = [
        i
        for i, a in enumerate(args)
        if isinstance(a, torch.Tensor) and a.dtype == torch.float64 and a.requires_grad
    ]
    if not floats:
        return plain
    args = tuple(a.detach() if isinstance(a, torch.Tensor) else a for a in args)
    weights: list[torch.Tensor] = []

    def total(given: list[Any]) -> Any:
        with Watch(root, wide):
            found = _tensors(cls.apply(*given))
        if not weights:
            g = torch.Generator().manual_seed(7)
            weights.extend(torch.randn(t.shape, generator=g, dtype=torch.float64) for t in found)
        return sum((w * t).sum() for w, t in zip(weights, found, strict=True))

    leaves = [a.clone().requires_grad_(True) if i in floats else a for i, a in enumerate(args)]
    given = [a.clone() if i in floats else a for i, a in enumerate(leaves)]
    scalar = total(given)
    if not scalar.requires_grad:
        return plain
    grads = torch.autograd.grad(scalar, [leaves[i] for i in floats], allow_unused=True)
    for i, grad in zip(floats, grads, strict=True):

        def value(x: Any, i: int = i) -> float:
            with torch.no_grad():
                return float(total([x if k == i else a for k, a in enumerate(args)]))

        found = slope(value, args[i], grad, 11 + i)
        if not found.agree:
            return Handwritten(plain.name, place, line, names[i], found.slope, found.told)
    return plain


@dataclass
class Call:
    """How a module is called: constants stand where they stood, tensors come by name."""

    names: list[str]
    build: Callable[[dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]
    notes: list[str] = field(default_factory=list[str])

    def __call__(self, module: nn.Module, tensors: dict[str, Any]) -> Any:
        args, kwargs = self.build(tensors)
        return module(*args, **kwargs)


def same(a: Any, b: Any) -> bool:
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-12, atol=0, equal_nan=True))
