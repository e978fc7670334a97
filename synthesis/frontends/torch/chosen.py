"""Rows that a mask chooses, and loops over what is chosen, read as all rows.

How many rows a mask chooses depends on its values, so `x[mask]` has no shape. Here it is a row for
each entry of the mask, of which those that are not chosen count for nothing: what is done to rows
is done to each alone, and where they are added or put back those are left out.

    i = torch.where(mask);  out.index_add_(0, i, f(x[i]))   = out += where(mask, f(x), 0)
    for e in hit.nonzero(): body(e)                         = for e in range(n): body(e), if hit[e]

Anything else that is done to such rows is refused. Runs in the worker, where PyTorch stops at a
mask or a loop, and from there on.
"""

# pyright: basic

import ast
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from shardproof.synthesis.frontends.torch.asked.classless import CLASSLESS
from shardproof.synthesis.frontends.torch.closed_loops import closed_loop, skips_rest
from shardproof.synthesis.frontends.torch.errors import OR_TRANSLATE, CaptureError

T = TypeVar("T")
STOPPED = frozenset({"GuardOnDataDependentSymNode", "DynamicOutputShapeException"})
"""Errors of PyTorch where a shape depends on values."""
SAID = (
    "Rows that values choose are read as all rows, those not chosen left out of what is added or "
    "put back, and loops over what is chosen as loops over all: what is computed of rows that are "
    "not chosen is defined."
)
_ON: list[bool] = []


def unbounded(changed: str) -> CaptureError:
    """The error for what changes as often as values say."""
    return CaptureError(
        f"a call changes {changed}, and rows that the values of a tensor choose are not all run: "
        "how often it does depends on values"
    )


def reads_whole() -> bool:
    """Whether rows that are chosen are read as all rows, in this process."""
    return bool(_ON)


def read_whole(problem: BaseException | None = None) -> bool:
    """From now on, read them so; whether that is new, and may help where this was raised."""
    if _ON or (problem is not None and type(problem).__name__ not in STOPPED):
        return False
    _ON.append(True)
    return True


def called(call: Callable[[], T]) -> T:
    """What a call gives, chosen rows read as all rows where that was asked for."""
    if not _ON:
        return call()
    mode = Chosen()
    function: Any = torch.autograd.Function
    original = function.__dict__["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if any(mode.of(t) for t in _tensors((args, kwargs))):
            _refuse(cls.__name__)
        return original.__get__(None, cls)(*args, **kwargs)

    function.apply = classmethod(apply)
    try:
        with mode:
            result = call()
    finally:
        function.apply = original
    for mark in filter(None, map(mode.of, _tensors(result))):
        _refuse("what forward returns", mark.choice.place)
    return result


def unwatched() -> Any:
    """A block in which rows are tensors like others: what is asked of them changes nothing."""
    return torch._C.DisableTorchFunction()


@dataclass(eq=False)
class Choice:
    """What a mask chooses: `rows`, one for each of its entries, in order."""

    grid: tuple[int, ...]
    valid: torch.Tensor
    """[rows]: whether an entry is chosen."""
    place: Any = None
    """File and line at which it is made."""

    @property
    def rows(self) -> int:
        return math.prod(self.grid)


@dataclass(frozen=True, eq=False)
class Mark:
    """A tensor whose dim 0 are the rows of a choice."""

    choice: Choice
    dim: int | None = None
    """It holds the coordinates of its rows along this dim of the mask."""
    places: bool = False
    """It holds all coordinates of its rows, side by side."""


@dataclass
class Loop:
    """A loop over what is chosen, at an entry."""

    node: ast.For
    code: Any
    choice: Choice
    at: int
    asked: list[Choice] = field(default_factory=list[Choice])
    """Choices without which the rest of the body is skipped."""
    made: dict[int, Any] = field(default_factory=dict[int, Any])
    """Memory that the body made."""
    fails: bool = False
    """Whether the body ends in an error: where anything is computed, the entry is not chosen."""


_ASKING = """
lt le gt ge bool int float complex index round trunc floor ceil neg pos abs invert len iter
contains getitem call hash str repr format add sub mul truediv floordiv mod divmod pow matmul
lshift rshift and or xor radd rsub rmul rtruediv rfloordiv rmod rdivmod rpow rmatmul rlshift
rrshift rand ror rxor
"""


def _tells(what: str) -> Callable[[type], type]:
    """Of a class that stands in for numbers: whatever else it is asked than what it defines is
    refused. An error of Python's own, of a thing that has no such method, the code could catch."""

    def refuse(*_: Any) -> Any:
        _refuse(what)

    def complete(kind: type) -> type:
        for name in (f"__{n}__" for n in _ASKING.split()):
            if vars(kind).get(name) is None:
                setattr(kind, name, refuse)
        CLASSLESS[kind] = refuse
        return kind

    return complete


@_tells("what an entry of a loop is")
class Entry:
    """An entry of a loop over what is chosen: its number is known."""

    def __init__(self, at: int, ndim: int) -> None:
        self.at, self.ndim = at, ndim

    def __index__(self) -> int:
        return self.at

    __int__ = item = __index__

    def __getitem__(self, at: Any) -> "Entry":
        if self.ndim != 1 or at not in (0, -1):
            _refuse("an entry of a loop")
        return Entry(self.at, 0)

    def squeeze(self, *_: Any) -> "Entry":
        return Entry(self.at, 0)

    def __eq__(self, other: Any) -> Any:
        return self.at == other

    def __lt__(self, other: Any) -> Any:
        return self.at < other

    def __le__(self, other: Any) -> Any:
        return self.at <= other

    def __gt__(self, other: Any) -> Any:
        return self.at > other

    def __ge__(self, other: Any) -> Any:
        return self.at >= other

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __getattr__(self, name: str) -> Any:
        _refuse(f"an entry of a loop: {name}")


@_tells("how many rows are chosen")
class Count:
    """How many rows are chosen: at least one, or the rest of a loop's body is skipped."""

    def __init__(self, mode: "Chosen", choice: Choice) -> None:
        self.mode, self.choice = mode, choice

    def _some(self, answer: bool) -> bool:
        frame = _caller()
        loop = self.mode.loops[-1] if self.mode.loops else None
        if answer or loop is None or frame is None or frame.f_code is not loop.code:
            _refuse("how many rows are chosen")
        if not skips_rest(loop.node, frame.f_lineno):
            _refuse("how many rows are chosen")
        loop.asked.append(self.choice)
        return answer

    def __eq__(self, other: Any) -> bool:
        return self._some(False) if other == 0 else _refuse("how many rows are chosen")

    def __lt__(self, other: Any) -> bool:
        return self._some(False) if other == 1 else _refuse("how many rows are chosen")

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __getattr__(self, name: str) -> Any:
        _refuse("how many rows are chosen")


class _Entries:
    """The entries of a loop."""

    def __init__(self, mode: "Chosen", choice: Choice, ndim: int) -> None:
        frame = _caller()
        if frame is None or len(choice.grid) != 1:
            _refuse("a loop")
        self.mode, self.choice, self.ndim = mode, choice, ndim
        self.node, self.code = closed_loop(frame), frame.f_code

    def __iter__(self) -> Iterator[Entry]:
        for at in range(self.choice.rows):
            loop = Loop(self.node, self.code, self.choice, at)
            self.mode.loops.append(loop)
            try:
                yield Entry(at, self.ndim)
            finally:
                self.mode.loops.remove(loop)
                self.mode.left.update(loop.made)


class Chosen(TorchFunctionMode):
    """Follows rows that are chosen through what is done to them."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: dict[int, tuple[torch.Tensor, Mark]] = {}
        self.known: dict[int, tuple[torch.Tensor, int, Choice]] = {}
        """Choices by their masks, as those were then."""
        self.loops: list[Loop] = []
        self.left: dict[int, Any] = {}
        """Memory that bodies of loops made, which are over."""

    def of(self, t: Any) -> Mark | None:
        found = self.marks.get(id(t))
        return found[1] if found is not None else None

    def mark(self, result: Any, mark: Mark) -> Any:
        for t in _tensors(result):
            if not t.shape or t.shape[0] != mark.choice.rows:
                _refuse("rows of another number")
            self.marks[id(t)] = (t, mark)
        return result

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = _name(func)
        result = self.watched(name, func, args, kwargs)
        if _writes(name, kwargs):
            self.known.clear()
        return result

    def watched(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """What a function gives, which the body of a loop may not do to what is around it."""
        if not self.loops and not self.left:
            return self.run(name, func, args, kwargs)
        given = [t for t in _tensors((args, kwargs)) if _plain_memory(t)]
        held = {t.untyped_storage()._cdata for t in given}
        if held & self.left.keys():
            _refuse("what the body of a loop leaves behind")
        if not self.loops:
            return self.run(name, func, args, kwargs)
        loop = self.loops[-1]
        sink = self.is_sink(name, args)
        outer = [t for t in given if t.untyped_storage()._cdata not in loop.made]
        if _writes(name, kwargs) and not sink and any(args[0] is t for t in outer):
            _refuse(f"{name} on a tensor from outside of the loop")
        before = [t._version for t in outer]
        result = self.run(name, func, args, kwargs)
        if not sink and before != [t._version for t in outer]:
            _refuse(f"{name} on a tensor from outside of the loop")
        for t in _tensors(result):
            memory = t.untyped_storage() if _plain_memory(t) else None
            if memory is not None and (memory._cdata not in held):
                loop.made[memory._cdata] = memory
        return result

    def is_sink(self, name: str, args: Any) -> bool:
        """Whether rows are added or put into a tensor of all rows."""
        if name in ("index_add_", "index_put_"):
            return self.of(args[0]) is None and any(self.of(t) for t in _tensors(args))
        return name == "__setitem__" and self.of(args[0]) is None and self.of(args[2]) is not None

    def run(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        if name in ("__getitem__", "__setitem__"):
            args = (args[0], self.key(*args[:2]), *args[2:])
        if name == "where" and len(args) == 1 and not kwargs:
            return self.coordinates(self.choice(args[0]))
        if name in ("nonzero", "argwhere"):
            choice = self.choice(args[0])
            if kwargs.get("as_tuple") or args[1:] == (True,):
                return self.coordinates(choice)
            places = torch.stack(self.coordinates(choice), -1)
            return self.mark(places, Mark(choice, places=True))
        if name == "__getitem__" and self.of(args[0]) is None:
            return self.picked(func, *args)
        marks = [m for t in _tensors((args, kwargs)) if (m := self.of(t)) is not None]
        if not marks:
            return func(*args, **kwargs)
        if any(m.choice is not marks[0].choice for m in marks):
            _refuse(f"{name} of rows that two masks choose")
        if self.is_sink(name, args) or name == "index_add":
            return self.put(name, *args, **kwargs)
        mark = self.of(args[0]) if args else None
        if mark is not None and mark.places:
            return self.place(name, mark, args, kwargs)
        return self.on_rows(name, func, marks[0].choice, args, kwargs)

    def key(self, x: torch.Tensor, key: Any) -> tuple[Any, ...]:
        """An index as a tuple, entries of loops as numbers, or slices of one; the last line for an
        entry beyond it."""
        parts: list[Any] = list(key) if isinstance(key, tuple) else [key]
        for k, part in enumerate(parts):
            if isinstance(part, Entry):
                at = min(part.at, x.shape[k] - 1) if k == 0 and part.at >= x.shape[k] else part.at
                if at != part.at:
                    self.loops[-1].fails = True
                parts[k] = at if part.ndim == 0 else slice(at, at + 1)
        return tuple(parts)

    def choice(self, mask: torch.Tensor) -> Choice:
        if self.of(mask) is not None or not mask.ndim:
            _refuse("a choice among rows that are chosen")
        _, version, found = self.known.get(id(mask), (mask, -1, None))
        if found is None or version != mask._version:
            found = Choice(tuple(mask.shape), (mask != 0).reshape(-1), _place())
            self.known[id(mask)] = mask, mask._version, found
        return found

    def coordinates(self, choice: Choice) -> tuple[torch.Tensor, ...]:
        grid, out = choice.grid, []
        for d, n in enumerate(grid):
            line = torch.arange(n, device=choice.valid.device)
            line = line.reshape([-1 if k == d else 1 for k in range(len(grid))])
            out.append(self.mark(line.expand(grid).reshape(-1), Mark(choice, d)))
        return tuple(out)

    def place(self, name: str, mark: Mark, args: Any, kwargs: Any) -> Any:
        """What is done to the coordinates of all dims."""
        t, choice, single = args[0], mark.choice, len(mark.choice.grid) == 1
        if name == "unbind" and args[1:] == (0,) and not kwargs:
            return _Entries(self, choice, 1)
        key = args[1] if name == "__getitem__" else ()
        if len(key) == 2 and key[0] == slice(None) and isinstance(key[1], int):
            return self.coordinates(choice)[key[1]]
        line = (-1,) in args[1:] or args[1:] in ((-1,), (1,), ())
        if single and name in ("squeeze", "flatten", "view", "reshape") and line:
            return self.coordinates(choice)[0]
        return self.asked(name, t, args, kwargs, choice)

    def asked(self, name: str, t: torch.Tensor, args: Any, kwargs: Any, choice: Choice) -> Any:
        """What is asked of the extents of rows."""
        if name == "shape":
            return (Count(self, choice), *t.shape[1:])
        if name in ("numel", "nelement") and t.ndim == 1:
            return Count(self, choice)
        if name == "size" and not kwargs:
            whole = (Count(self, choice), *t.shape[1:])
            return whole[args[1]] if args[1:] else whole
        if name in _TOLD:
            return getattr(t, name)() if callable(getattr(t, name)) else getattr(t, name)
        return _refuse(name)

    def picked(self, func: Any, x: torch.Tensor, key: tuple[Any, ...]) -> Any:
        """Rows of a tensor of all rows, by a mask or by coordinates in front of other indices."""
        found = self.leading(key)
        if found is None:
            if any(self.of(t) or _is_truth(t) for t in _tensors(key)):
                _refuse("an index")
            return func(x, key)
        choice, dims = found
        rows = self.rows(x, choice, dims)
        rest = (slice(None), *key[1 if _is_truth(key[0]) else len(dims) :])
        return self.mark(rows[rest] if len(rest) > 1 else rows, Mark(choice))

    def leading(self, key: tuple[Any, ...]) -> tuple[Choice, list[int]] | None:
        """The choice by which an index begins, and which of its coordinates."""
        if key and _is_truth(key[0]) and self.of(key[0]) is None and key[0].ndim:
            if not all(map(_keeps_apart, key[1:])):
                return None
            choice = self.choice(key[0])
            return choice, list(range(len(choice.grid)))
        dims, choice = [], None
        for k in key:
            mark = self.of(k)
            if mark is None or mark.dim is None or mark.choice is not (choice or mark.choice):
                break
            choice = mark.choice
            dims.append(mark.dim)
        if choice is None or not all(map(_keeps_apart, key[len(dims) :])):
            return None
        return choice, dims

    def rows(self, x: torch.Tensor, choice: Choice, dims: Sequence[int]) -> torch.Tensor:
        """`x` with a row for each entry of the mask, of the coordinates along these dims."""
        count, grid = len(dims), choice.grid
        self.fits(x, choice, dims)
        order = sorted(range(count), key=dims.__getitem__)
        out = x.permute(*order, *range(count, x.ndim))
        for d in range(len(grid)):
            out = out if d in dims else out.unsqueeze(d)
        rest = x.shape[count:]
        return out.expand(*grid, *rest).reshape(choice.rows, *rest).clone()

    def fits(self, x: torch.Tensor, choice: Choice, dims: Sequence[int]) -> None:
        want = tuple(choice.grid[d] for d in dims)
        if len(set(dims)) != len(dims) or tuple(x.shape[: len(dims)]) != want:
            _refuse("coordinates of a mask of other extents")

    def put(self, name: str, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Rows added to a tensor of all rows, or put in their places; those not chosen are not."""
        accumulate = name != "__setitem__"
        if name in ("index_add", "index_add_"):
            if len(args) != 3:
                _refuse(name)
            dim, index, source = args
            scale, found = kwargs.pop("alpha", 1), self.of(index)
            if found is None or found.dim is None or dim not in (0, -x.ndim):
                _refuse(name)
            choice, dims = found.choice, [found.dim]
        else:
            if len(args) < 2:
                _refuse(name)
            key, source, *more = args
            scale, (choice, dims) = 1, self.leading(tuple(key)) or (None, [])
            accumulate = accumulate and (kwargs.pop("accumulate", False) or more == [True])
            if len(key) != (1 if key and _is_truth(key[0]) else len(dims)):
                _refuse(name)
        mark = self.of(source)
        if kwargs or choice is None or mark is None or mark.choice is not choice:
            _refuse(name)
        self.fits(x, choice, dims)
        if any(loop.fails for loop in self.loops):
            return x
        grid, rest = choice.grid, x.shape[len(dims) :]
        if tuple(source.shape) != (choice.rows, *rest):
            _refuse(name)
        wide = self.valid(choice).reshape(*grid, *(1 for _ in rest))
        source = source.reshape(*grid, *rest)
        if not accumulate:
            if list(dims) != list(range(len(grid))):
                _refuse("rows put where two may meet")
            return x.copy_(torch.where(wide, source, x))
        part = torch.where(wide, source, torch.zeros((), dtype=source.dtype))
        if spare := [d for d in range(len(grid)) if d not in dims]:
            part = part.sum(spare)
        left = sorted(dims)
        part = part.permute(*(left.index(d) for d in dims), *range(len(dims), part.ndim))
        part = part if scale == 1 else part * scale
        return x.add_(part) if name.endswith("_") else x + part

    def valid(self, choice: Choice) -> torch.Tensor:
        """Which rows are chosen, at these entries of the loops around."""
        valid = choice.valid
        for loop in self.loops:
            valid = valid & loop.choice.valid[loop.at]
            for other in loop.asked:
                valid = valid if other is choice else valid & other.valid.any()
        return valid

    def on_rows(self, name: str, func: Any, choice: Choice, args: Any, kwargs: Any) -> Any:
        """What is done to each row alone."""
        t: Any = args[0] if args else None
        first = self.of(t)
        if name == "unbind" and first is not None and first.dim is not None and args[1:] == (0,):
            return _Entries(self, choice, 0)
        if first is not None and (name in _TOLD or name in _EXTENTS):
            return self.asked(name, t, args, kwargs, choice)
        if not _row_by_row(name, choice.rows, self.of, args, kwargs):
            _refuse(name)
        return self.mark(func(*args, **kwargs), Mark(choice))


_TOLD = ("dtype", "device", "ndim", "dim", "requires_grad", "is_floating_point", "layout")
_TOLD += ("is_complex", "is_cuda", "is_sparse", "is_nested", "is_quantized", "is_leaf")
_EXTENTS = ("shape", "numel", "nelement", "size", "__len__")
_COPIES = ("to", "type", "type_as", "float", "double", "half", "bfloat16", "contiguous", "clone")
_COPIES += ("detach", "dropout", "zeros_like", "ones_like", "full_like")
_ALONG = ("softmax", "log_softmax", "sum", "mean", "amax", "amin", "cumsum", "chunk", "split")
_ALONG += ("unbind", "squeeze", "unsqueeze", "flatten", "max", "min")
"""What works along a dim, or dims."""
_NORMS = ("layer_norm", "rms_norm")
_DUNDER = {"truediv": "div", "floordiv": "floor_divide", "invert": "bitwise_not"}
_DUNDER |= {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}


def _row_by_row(
    name: str, rows: int, of: Callable[[Any], Mark | None], args: Any, kwargs: Any
) -> bool:
    """Whether each row of what an op gives is made of that row of what it is given, and of tensors
    that are no rows."""
    given = _tensors((args, kwargs))
    ours = [t for t in given if of(t) is not None]
    if any(of(t).places for t in ours):  # pyright: ignore[reportOptionalMemberAccess]
        return False
    if "out" in kwargs:
        return False
    x: Any = args[0] if args else None
    rank = max(t.ndim for t in ours)
    alone = len(given) == 1 and given[0] is x
    if _writes(name, kwargs) and (of(x) is None or not x.is_floating_point()):
        return False
    if _entry_by_entry(name) and not (alone and name in _ALONG):
        narrow = (t for t in given if of(t) is None)
        return all(t.ndim == rank for t in ours) and all(
            t.ndim < rank or (t.ndim == rank and t.shape[0] == 1) for t in narrow
        )
    if name in _COPIES:
        return of(x) is not None and "memory_format" not in kwargs
    if name in ("linear", "matmul", "__matmul__", "mm"):
        others = given[1:]
        only = len(ours) == 1 and ours[0] is given[0] is x
        return only and rank >= 2 and all(t.ndim <= 2 for t in others)
    if name in _NORMS:
        only = len(ours) == 1 and ours[0] is given[0] is x
        return only and len(args) > 1 and len(args[1]) < rank
    if name in ("view", "reshape") and alone and not kwargs:
        shape = args[1:] if len(args) != 2 or not isinstance(args[1], (tuple, list)) else args[1]
        return _is_of_rows(shape, rows, x.numel())
    if name == "__getitem__" and alone:
        return _inner(args[1], rank)
    if name in ("cat", "stack"):
        dims = args[1:] or (kwargs.get("dim", kwargs.get("axis", 0)),)
        rank += name == "stack"
        return len(ours) == len(given) and _inside(dims[0], rank)
    if name in ("transpose", "swapaxes") and alone:
        dims = (*args[1:], *kwargs.values())
        return len(dims) == 2 and all(_inside(d, rank) for d in dims)
    if name in _ALONG and alone:
        extra = name == "unsqueeze"
        at = 2 if name in ("chunk", "split") else 1
        dims = args[at] if len(args) > at else kwargs.get("dim", kwargs.get("start_dim"))
        dims = dims if isinstance(dims, (tuple, list)) else (dims,)
        return bool(dims) and all(_inside(d, rank + extra) for d in dims)
    return False


def _is_of_rows(shape: Any, rows: int, size: int) -> bool:
    """Whether the extents of a view keep the rows in dim 0: as -1, since a number is never how many
    are chosen, even if it is that of all rows."""
    inner = shape[1:]
    plain = all(type(n) is int and n > 0 for n in inner)
    return plain and bool(shape) and shape[0] == -1 and math.prod(inner) * rows == size


def _keeps_apart(k: Any) -> bool:
    """Whether an index beside those of rows is none that PyTorch would join with them, as it does
    with tensors, lists, ranges and truths."""
    return k is None or k is Ellipsis or type(k) in (int, slice)


def _inside(dim: Any, rank: int) -> bool:
    """Whether a dim is another than the first."""
    return type(dim) is int and -rank <= dim < rank and dim % rank != 0


def _inner(key: tuple[Any, ...], rank: int) -> bool:
    """Whether an index takes all along dim 0, which stays first."""
    used = [k for k in key if isinstance(k, (int, slice))]
    if not all(map(_keeps_apart, key)):
        return False
    if key and key[0] is Ellipsis:
        return len(used) < rank and not (len(used) == 0 and len(key) == 0)
    return not key or key[0] == slice(None)


def _entry_by_entry(name: str) -> bool:
    plain = name.strip("_") if name.startswith("__") else name.removesuffix("_")
    if name.startswith("__") and plain not in _DUNDER and not hasattr(torch.ops.aten, plain):
        plain = plain[1:]  # __radd__, __iadd__
    plain = _DUNDER.get(plain, plain)
    packet = getattr(torch.ops.aten, plain, None)
    if packet is None:
        return False
    overloads = [getattr(packet, o) for o in packet.overloads()]
    return any(torch.Tag.pointwise in o.tags for o in overloads)


def _writes(name: str, kwargs: Any) -> bool:
    dunder = name.startswith("__")
    inplace = name.startswith("__i") and name not in ("__invert__", "__index__", "__int__")
    ends = name.endswith("_") and not dunder
    return ends or inplace or name in ("__setitem__", "__set__") or "out" in kwargs


def _name(func: Any) -> str:
    """The name of a function, or of the attribute that is read."""
    name = getattr(func, "__name__", "")
    return func.__self__.__name__ if name == "__get__" else name


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def _is_truth(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and t.dtype is torch.bool


def _plain_memory(t: torch.Tensor) -> bool:
    return not isinstance(t, FunctionalTensor)


def _caller() -> Any:
    """The innermost frame of code that is neither PyTorch's nor ours."""
    ours = (str(Path(str(torch.__file__)).parent), str(Path(__file__).parent), "<")
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(ours):
        frame = frame.f_back
    return frame


def _place() -> tuple[str, int]:
    frame = _caller()
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)


def _refuse(what: str, place: tuple[str, int] | None = None) -> NoReturn:
    file, line = place or _place()
    lines = Path(file).read_text(encoding="utf-8").splitlines() if Path(file).is_file() else []
    raise CaptureError(
        f"a shape is data-dependent: {what}, of rows that the values of a tensor choose",
        file=file.partition("-packages/")[2] or Path(file).name,
        line=line if lines else 0,
        text=lines[line - 1].strip() if lines else "",
        hint=f"a mask as an index? use torch.where{OR_TRANSLATE}",
    )
