"""Numbers that a training step reads from tensors.

A trace has no values. The step may format such a number, add it up with others and keep it. Beside
a tensor it is the tensor that it was read from. It may ask whether numbers are finite, which reals
are, and whether a count of entries is 0, which is taken not to be so. Where an `if` decides what is
written into tensors and nothing else, both ways are traced. What else decides by one is refused.
"""

# pyright: basic

import math
import operator
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from shardproof.synthesis.frontends.torch.asked.watching import now
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.homes import is_users
from shardproof.synthesis.frontends.torch.ranks.counts import (
    ALL_FINITE,
    FINITE,
    NOT_ZERO,
    Counts,
    compared,
    in_place,
    is_one_of,
)
from shardproof.synthesis.frontends.torch.ranks.predicated import Body, asked
from shardproof.synthesis.frontends.torch.ranks.spans import storage

UNREAD = (
    "Numbers that a step reads from tensors to log them are not compared, and their text and "
    "type decide nothing: {places}."
)
_OF_PYTHON = (float, int, math.exp, math.log, math.log2, math.sqrt)
_OF_PYTHON += (math.isfinite, math.isnan, math.isinf)
MOST = 1000
"""How often one line may ask."""
_TENSORS = "let numbers that are no tensors say how often"
_ANY = SystemRandom()
"""What is formatted is another number each time: two calls that go by it differ."""


def _any_text(kind: type, form: str = "") -> str:
    number = 1e3 * _ANY.random()
    return format(int(number) if kind is int else number, form)


def _decide(self: "Logged", *others: Any) -> NoReturn:
    raise CaptureError(
        "a number that the step reads from a tensor decides what it computes",
        file=self.file,
        line=self.line,
        hint="compute with the tensor instead: torch.where, clamp; log numbers of item(), or "
        "multiply and divide tensors of this call by them",
    )


def _comparing(name: str) -> Any:
    def method(self: "Logged", other: Any) -> bool:
        found = compared(name, other) if self.counts else None
        if found is not None:
            self.among.note(NOT_ZERO, self.file, self.line)
            return found

        def condition() -> torch.Tensor:
            bound = other.tensor() if type(other) is Logged else other
            return getattr(operator, name)(self.tensor(), bound)

        return self.among.predicates(condition) or _decide(self)

    return method


def _kind(dtype: torch.dtype) -> type:
    """Of which type the number of such a tensor is."""
    if dtype == torch.bool:
        return bool
    return complex if dtype.is_complex else float if dtype.is_floating_point else int


def _alone(self: "Logged", *others: Any) -> "Logged":
    return Logged(self.among, self.file, self.line, self._kind)


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
        return Logged(self.among, self.file, self.line, int if whole else float, made)

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
    __lt__, __le__, __eq__ = _comparing("lt"), _comparing("le"), _comparing("eq")
    __gt__, __ge__, __ne__ = _comparing("gt"), _comparing("ge"), _comparing("ne")
    __float__ = __int__ = __index__ = __complex__ = __trunc__ = __floor__ = __ceil__ = _decide

    def __init__(
        self,
        among: "Logging",
        file: str,
        line: int,
        kind: type,
        made: Callable[[], torch.Tensor] | None = None,
        counts: bool = False,
    ) -> None:
        self.among, self.file, self.line, self._kind, self.made = among, file, line, kind, made
        self.counts = counts

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

    def as_kind(self, kind: type) -> "Logged":
        """`float` or `int` of it."""
        cut = kind is int and self._kind is float
        made = None if cut else self.made
        return Logged(self.among, self.file, self.line, kind, made, self.counts)

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

    def __bool__(self) -> bool:
        return self != 0

    def __repr__(self) -> str:
        return _any_text(self._kind)

    def __format__(self, spec: str) -> str:
        return _any_text(self._kind, spec)

    def item(self) -> "Logged":
        return self


class Logging(TorchFunctionMode):
    """Gives a `Logged` for numbers of tensors without values; `places` are the lines, by what is
    taken for granted there."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, dict[str, None]] = {}
        self.counts = Counts()
        self.body: Body | None = None
        """Of the `if` that asked last."""
        self.asked = Counter[tuple[str, int]]()
        self.open = True

    def __enter__(self) -> Any:
        watched = now()
        if watched is not None:
            watched.text, watched.forget = self.text, self.counts.forget
            watched.answers = {id(f): partial(self._of_python, f) for f in _OF_PYTHON}
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        self.open = False
        super().__exit__(*raised)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.Tensor.item:
            return self.number(args[0])
        if func is torch.Tensor.__bool__:
            return self._bool(args[0])
        if func is torch.Tensor.__deepcopy__ and not isinstance(args[0], DTensor):
            return _copied(*args)
        name = getattr(func, "__name__", "").strip("_")
        kwargs = kwargs or {}
        writes = in_place(func) or kwargs.get("out") is not None
        if writes and self.body is not None and self.body.runs():
            made = self.body.write(func, args, kwargs)
        else:
            made = func(*args, **kwargs)
        self.counts.follow(func, name, args, kwargs, made)
        return made

    def number(self, value: torch.Tensor, kind: type | None = None) -> Any:
        """What `value.item()` gives, or `kind(value)`."""
        whole: Any = value.full_tensor() if isinstance(value, DTensor) else value
        kind = kind or _kind(whole.dtype)
        try:
            found = whole.item()
            return found.as_kind(kind) if type(found) is Logged else kind(found)
        except DataDependentOutputException:
            pass
        file, line = self.note(UNREAD)
        counts = is_one_of(whole, self.counts.level(whole))
        number = Logged(self, file, line, kind, counts=counts)
        now = whole.detach().reshape(()).clone()  # the tensor may be written to afterwards

        def made() -> torch.Tensor:
            if not self.open:  # of a call before, whose tensors this one does not have
                _decide(number)
            return now

        if kind is not int or not whole.is_floating_point():
            number.made = made
        return number

    def text(self, value: torch.Tensor, form: str = "") -> str:
        """What stands for the text of a tensor."""
        self.note(UNREAD)
        return _any_text(_kind(value.dtype), form)

    def note(self, granted: str, file: str = "", line: int = 0) -> tuple[str, int]:
        """What is taken for granted at a line: that of the user's which runs just now."""
        if not file:
            frame = sys._getframe(1)
            while frame.f_back is not None and not is_users(frame.f_code.co_filename):
                frame = frame.f_back
            file, line = Path(frame.f_code.co_filename).name, frame.f_lineno
        self.places.setdefault(granted, {})[f"{file}:{line}"] = None
        return file, line

    def _bool(self, value: torch.Tensor) -> bool:
        try:
            return bool(value)
        except DataDependentOutputException:
            found = self.counts.truth(value)
            if found is None:
                if value.numel() == 1 and self.predicates(lambda: value != 0):
                    return True
                raise
        granted, known = found
        file, line = self.note(granted)
        self.asked[file, line] += 1
        if self.asked[file, line] > MOST:
            raise CaptureError(
                "a loop goes on as long as a tensor says", file=file, line=line, hint=_TENSORS
            )
        return known

    def predicates(self, condition: Callable[[], torch.Tensor]) -> bool:
        """Whether an `if` asks whose body is predicated from here on."""
        body = asked(condition)
        self.body = body or self.body
        return body is not None

    def _of_python(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`float`, `int` or a function of `math`, also of a tensor without values."""
        value = args[0] if len(args) == 1 and not kwargs else None
        if isinstance(function, type) and isinstance(value, torch.Tensor):
            return self.number(value, function)
        if type(value) is not Logged:
            return function(*args, **kwargs)
        if function.__name__ in FINITE:
            self.note(ALL_FINITE)
            return FINITE[function.__name__]
        return value.as_kind(function) if isinstance(function, type) else _alone(value)

    def told(self) -> list[str]:
        """What is taken for granted, in sentences."""
        return [granted.format(places=", ".join(at)) for granted, at in self.places.items()]


def _copied(value: torch.Tensor, memo: dict[Any, Any]) -> torch.Tensor:
    """What `copy.deepcopy` gives: PyTorch copies memory, which a traced tensor has none of.

    Raises:
        CaptureError: something else that is copied with it shares its memory.
    """
    if not value.is_leaf:
        raise RuntimeError("a tensor that is computed, and is not detached, cannot be deep-copied")
    place = "memory", storage(value)._cdata
    if id(value) not in memo and place in memo:
        raise CaptureError("a deep copy of tensors that share memory is not covered")
    memo[place] = None
    if id(value) not in memo:
        memo[id(value)] = value.detach().clone().requires_grad_(value.requires_grad)
    return memo[id(value)]
