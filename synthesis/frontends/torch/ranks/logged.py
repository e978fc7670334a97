"""Numbers that a training step reads from tensors.

A trace has no values. The step may format such a number, add it up with others and keep it. Beside
a tensor it is the tensor that it was read from. What would decide by it is refused.
"""

# pyright: basic

import operator
import sys
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.homes import is_users

UNREAD = (
    "Numbers that a step reads from tensors to log them are not compared, and their text and "
    "type decide nothing: {places}."
)
_ANY = SystemRandom()
"""What is formatted is another number each time: two calls that go by it differ."""


def _decide(self: "Logged", *others: Any) -> NoReturn:
    raise CaptureError(
        "a number that the step reads from a tensor decides what it computes",
        file=self.file,
        line=self.line,
        hint="compute with the tensor instead: torch.where, clamp; log numbers of item(), or "
        "multiply and divide tensors of this call by them",
    )


def _kind(dtype: torch.dtype) -> type:
    """Of which type the number of such a tensor is."""
    if dtype == torch.bool:
        return bool
    return complex if dtype.is_complex else float if dtype.is_floating_point else int


def _alone(self: "Logged", *others: Any) -> "Logged":
    return Logged(self.file, self.line, self._kind)


def _of(op: Callable[[Any, Any], Any], *, turned: bool = False) -> Any:
    """An operation whose result is a tensor beside a tensor, else such a number."""

    def method(self: "Logged", other: Any) -> Any:
        if isinstance(other, torch.Tensor):
            mine = self.beside(other)
            return op(other, mine) if turned else op(mine, other)

        def made() -> torch.Tensor:
            pair = self.tensor(), other.tensor() if type(other) is Logged else other
            return op(*reversed(pair)) if turned else op(*pair)

        whole = self._kind is int and isinstance(other, int) and op is not operator.truediv
        return Logged(self.file, self.line, int if whole else float, made)

    return method


class Logged:
    """A number of which a trace does not know the value. `made` gives the tensor that holds it; of
    none, no tensor can be computed with it."""

    __hash__ = object.__hash__
    __add__, __radd__ = _of(operator.add), _of(operator.add, turned=True)
    __sub__, __rsub__ = _of(operator.sub), _of(operator.sub, turned=True)
    __mul__, __rmul__ = _of(operator.mul), _of(operator.mul, turned=True)
    __truediv__, __rtruediv__ = _of(operator.truediv), _of(operator.truediv, turned=True)
    __pow__ = _of(operator.pow)
    __rpow__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _alone
    __neg__ = __pos__ = __abs__ = __round__ = _alone
    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _decide
    __float__ = __int__ = __index__ = __complex__ = __trunc__ = __floor__ = __ceil__ = _decide

    def __init__(
        self, file: str, line: int, kind: type, made: Callable[[], torch.Tensor] | None = None
    ) -> None:
        self.file, self.line, self._kind, self.made = file, line, kind, made

    @property
    def __class__(self) -> type:
        """What the number is an instance of."""
        return self._kind

    def tensor(self) -> torch.Tensor:
        """The tensor, without dims, that holds the number. Raises CaptureError: there is none."""
        return _decide(self) if self.made is None else self.made()

    def beside(self, *others: torch.Tensor) -> torch.Tensor:
        """The same in the dtype that a number has in an operation with tensors: it does not change
        theirs, but for integers and masks beside a float, and masks beside an integer."""
        found = self.tensor()
        reals = [t.dtype for t in others if t.dtype.is_floating_point or t.dtype.is_complex]
        whole = [t.dtype for t in others if t.dtype != torch.bool and t.dtype not in reals]
        if self._kind is float:
            return found.to(reals[0] if reals else torch.get_default_dtype())
        if self._kind is int:
            return found.to((reals or whole or [torch.int64])[0])
        return found

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        flat, form = tree_flatten((args, kwargs or {}))
        tensors = [v for v in flat if isinstance(v, torch.Tensor)]
        if not tensors:
            _decide(next(v for v in flat if type(v) is cls))
        args, kwargs = tree_unflatten(
            [v.beside(*tensors) if type(v) is cls else v for v in flat], form
        )
        return func(*args, **kwargs)

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
        self.open = True

    def __exit__(self, *raised: Any) -> None:
        self.open = False
        super().__exit__(*raised)

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
        number = Logged(Path(file).name, line, _kind(value.dtype))
        now = value.detach().reshape(()).clone()  # the tensor may be written to afterwards

        def made() -> torch.Tensor:
            if not self.open:  # of a call before, whose tensors this one does not have
                _decide(number)
            return now

        number.made = made
        return number

    def told(self) -> list[str]:
        """What is not compared, in a sentence."""
        return [UNREAD.format(places=", ".join(self.places))] if self.places else []
