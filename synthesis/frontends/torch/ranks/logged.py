"""Numbers that a training step reads from tensors to log them.

A trace has no values. The step may format such a number, add it up with others and keep it; what
would decide by it, or compute a tensor with it, is refused.
"""

# pyright: basic

import sys
from pathlib import Path
from random import SystemRandom
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.homes import is_users

UNREAD = (
    "Numbers that a step reads from tensors to log them are not compared, and their text and "
    "type decide nothing: {places}."
)
_ANY = SystemRandom()
"""What is formatted is another number each time: two calls that go by it differ."""


def _alike(self: "Logged", *others: Any) -> Any:
    if any(isinstance(v, torch.Tensor) for v in others):
        _decide(self)
    return self


def _decide(self: "Logged", *others: Any) -> NoReturn:
    raise CaptureError(
        "a number that the step reads from a tensor decides what it computes",
        file=self.file,
        line=self.line,
        hint="read numbers with item() only to log them; compute with the tensor",
    )


def _kind(dtype: torch.dtype) -> type:
    """Of which type the number of such a tensor is."""
    if dtype == torch.bool:
        return bool
    return complex if dtype.is_complex else float if dtype.is_floating_point else int


class Logged:
    """A number of which a trace does not know the value."""

    __hash__ = object.__hash__
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _alike
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _alike
    __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = __round__ = _alike
    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _decide
    __float__ = __int__ = __index__ = __complex__ = __trunc__ = __floor__ = __ceil__ = _decide

    def __init__(self, file: str, line: int, kind: type) -> None:
        self.file, self.line, self._kind = file, line, kind

    @property
    def __class__(self) -> type:
        """What the number is an instance of."""
        return self._kind

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        _decide(self)

    def __repr__(self) -> str:
        return repr(_ANY.random())

    def __format__(self, spec: str) -> str:
        return format(_ANY.random(), spec)

    def item(self) -> "Logged":
        return self


class Logging(TorchFunctionMode):
    """Gives a `Logged` for `t.item()` of tensors without values; `places` are the lines."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, None] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is not torch.Tensor.item:
            return func(*args, **(kwargs or {}))
        value = args[0].full_tensor() if isinstance(args[0], DTensor) else args[0]
        try:
            return value.item()
        except DataDependentOutputException:
            pass
        frame = sys._getframe(1)
        while frame.f_back is not None and not is_users(frame.f_code.co_filename):
            frame = frame.f_back
        file, line = frame.f_code.co_filename, frame.f_lineno
        self.places[f"{Path(file).name}:{line}"] = None
        return Logged(Path(file).name, line, _kind(value.dtype))

    def told(self) -> list[str]:
        """What is not compared, in a sentence."""
        return [UNREAD.format(places=", ".join(self.places))] if self.places else []
