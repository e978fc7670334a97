"""Which integers a graph computes, and whether the types that hold them hold each of them.

The language computes with integers and reals that have no end. PyTorch's integers wrap around at
the ends of their type, and a float type holds each integer only up to a power of 2: bf16 up to 256.
Where an integer is rounded and then chooses (an index, a comparison), another one is chosen. So the
range of each integer is followed from those of the inputs:

    ids < 9000;  ids.to(int32) * 1000003        refused: up to 8999026997, i32 ends at 2147483647
    ids < 9000;  ids.to(float32).to(int64)      = ids
    ids < 9000;  ids.to(bfloat16).to(int64)     refused: bf16 holds each integer up to 256
"""

# pyright: basic

import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import fx

from shardproof.synthesis.frontends.torch.constants import Band, Constant, Full, Ramp

DIGITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
"""A float type holds each integer up to 2 to this power."""
WORDS = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
WORDS |= {torch.int64: "i64", torch.int32: "i32", torch.uint8: "u8", torch.bool: "bool"}
NARROW = {torch.int8: "i8", torch.int16: "i16"}
"""Types that the language does not have: where each integer that they hold is known to fit, a value
of theirs is one of i32."""
WORDS |= NARROW
SMALL = frozenset([torch.uint8, *NARROW])
"""Types of which every value is worth following."""
CAST = "_to_copy.default"
SHOWN = 4


@dataclass(frozen=True)
class Known:
    """Integers from `low` to `high`, in whatever type; None: of any size."""

    low: Any = None
    high: Any = None
    lost: str = ""
    """Where they were rounded, in words: then they are integers no more."""

    @property
    def bounded(self) -> bool:
        return self.low is not None and self.high is not None

    def __str__(self) -> str:
        return f"from {self.low} to {self.high}"


ANY = Known()
BIT = Known(0, 1)


class IntegerError(Exception):
    """Integers that a type does not hold; `hint` says what to try."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def _ends(*found: int) -> Known:
    return Known(min(found), max(found))


def _span(a: Known, b: Known, of: Callable[[int, int], int]) -> Known:
    """The range of an op that is monotone in each operand alone."""
    if not a.bounded or not b.bounded:
        return ANY
    return _ends(*(of(x, y) for x in (a.low, a.high) for y in (b.low, b.high)))


def _union(*parts: Known) -> Known:
    if not all(p.bounded for p in parts):
        return ANY
    return Known(min(p.low for p in parts), max(p.high for p in parts))


def _add(a: Known, b: Known, alpha: Known = Known(1, 1)) -> Known:
    return _span(a, _times(b, alpha), lambda x, y: x + y)


def _sub(a: Known, b: Known, alpha: Known = Known(1, 1)) -> Known:
    return _span(a, _times(b, alpha), lambda x, y: x - y)


def _times(a: Known, b: Known) -> Known:
    return _span(a, b, lambda x, y: x * y)


def _negative(a: Known) -> Known:
    return Known(-a.high, -a.low) if a.bounded else ANY


def _magnitude(a: Known) -> Known:
    if not a.bounded:
        return ANY
    far = max(abs(a.low), abs(a.high))
    return Known(0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high)), far)


def _quotient(a: Known, b: Known) -> Known:
    """Between the operand and its negative, whatever the divisor."""
    if not a.bounded:
        return ANY
    if b.bounded and b.low >= 1:
        return _ends(*(x // y for x in (a.low, a.high) for y in (b.low, b.high)), *_cut(a, b))
    far = max(abs(a.low), abs(a.high))
    return Known(-far, far)


def _cut(a: Known, b: Known) -> list[int]:
    """Quotients cut toward zero."""
    ends = [(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return [abs(x) // y if x >= 0 else -(abs(x) // y) for x, y in ends]


def _rest(a: Known, b: Known) -> Known:
    if not b.bounded:
        return ANY
    far = max(abs(b.low), abs(b.high)) - 1
    return Known(0 if b.low > 0 else -far, far)


def _rest_of_sign(a: Known, b: Known) -> Known:
    if not b.bounded:
        return ANY
    far = max(abs(b.low), abs(b.high)) - 1
    return Known(0 if a.bounded and a.low >= 0 else -far, far)


def _maximum(a: Known, b: Known) -> Known:
    return _span(a, b, max)


def _minimum(a: Known, b: Known) -> Known:
    return _span(a, b, min)


def _power(a: Known, b: Known) -> Known:
    if not a.bounded or not b.bounded or b.low != b.high or not 0 <= b.low <= 64:
        return ANY
    far = max(abs(a.low), abs(a.high)) ** b.low
    return Known(-far if a.low < 0 else 0, far)


def _right(a: Known, b: Known) -> Known:
    return _span(a, b, lambda x, y: x >> y) if b.bounded and b.low >= 0 else ANY


def _left(a: Known, b: Known) -> Known:
    return _span(a, b, lambda x, y: x << y) if b.bounded and 0 <= b.low <= b.high <= 64 else ANY


def _common_bits(a: Known, b: Known) -> Known:
    ends = [k.high for k in (a, b) if k.bounded and k.low >= 0]
    return Known(0, min(ends)) if ends else ANY


def _all_bits(a: Known, b: Known) -> Known:
    if not (a.bounded and b.bounded and a.low >= 0 and b.low >= 0):
        return ANY
    return Known(0, (1 << max(a.high, b.high).bit_length()) - 1)


ARITHMETIC: dict[str, Callable[..., Known]] = {
    "add": _add,
    "sub": _sub,
    "rsub": lambda a, b: _sub(b, a),
    "mul": _times,
    "neg": _negative,
    "abs": _magnitude,
    "maximum": _maximum,
    "minimum": _minimum,
    "clamp_min": _maximum,
    "clamp_max": _minimum,
    "floor_divide": _quotient,
    "remainder": _rest,
    "fmod": _rest_of_sign,
    "pow": _power,
    "sign": lambda a: Known(-1, 1),
    "__rshift__": _right,
    "bitwise_right_shift": _right,
    "__lshift__": _left,
    "bitwise_left_shift": _left,
    "bitwise_and": _common_bits,
    "bitwise_or": _all_bits,
    "bitwise_xor": _all_bits,
    "bitwise_not": lambda a: _sub(_negative(a), Known(1, 1)),
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), lambda a, *_: a),
}
"""Of integers, an integer: its range."""
FIRST = """view reshape _unsafe_view permute transpose t expand slice select unsqueeze squeeze clone
alias detach flip index gather index_select repeat as_strided split split_with_sizes unbind roll
lift_fresh_copy amax amin max min sort cummax cummin contiguous _to_copy getitem topk wait_tensor
broadcast all_gather_into_tensor unfold diagonal"""
"""Each entry of the result is one of the first operand."""
JOINED = {"cat": (0,), "stack": (0,), "where": (1, 2), "masked_fill": (0, 2)}
JOINED |= {"constant_pad_nd": (0, 2), "scatter": (0, 3), "slice_scatter": (0, 1)}
JOINED |= {"select_scatter": (0, 1)}
"""Each entry of the result is one of these operands."""
COMPARED = frozenset(["eq", "ne", "lt", "le", "gt", "ge", "argmax", "argmin", "topk", "sort"])
_FIRST = frozenset(FIRST.split())


class Integers:
    """The integers of each node of a graph."""

    def __init__(
        self,
        below: Mapping[str, int],
        inputs: Mapping[fx.Node, str],
        constants: Mapping[fx.Node, Constant],
        place: Callable[[fx.Node], str],
        any_value: Set[fx.Node] = frozenset(),
    ) -> None:
        """`below`: integers of an input are from 0 to that less one. `place` says where a node
        stands. `any_value`: constants that may hold another value than they do."""
        self.below, self.inputs, self.constants, self.place = below, inputs, constants, place
        self.any_value = any_value
        self.found: dict[fx.Node, Known | None] = {}
        self.unbounded: dict[str, None] = {}
        """Places at which integers of any size are computed with."""
        self.real: dict[str, None] = {}
        """Places at which reals become integers."""

    def notes(self) -> list[str]:
        """What is taken for granted, in sentences."""
        told = []
        if self.unbounded:
            told.append(f"Integers of no known range do not overflow: {_listed(self.unbounded)}.")
        if self.real:
            where = _listed(self.real)
            told.append(f"Numbers become integers as reals do, without rounding: {where}.")
        return told

    def of(self, node: Any) -> Known | None:
        """The integers of an operand; None: reals."""
        if isinstance(node, bool | int):
            return Known(int(node), int(node))
        if isinstance(node, float):
            return Known(int(node), int(node)) if node.is_integer() else None
        if not isinstance(node, fx.Node):
            return None
        if node not in self.found:
            self.found[node] = self._given(node)
        return self.found[node]

    def _given(self, node: fx.Node) -> Known | None:
        dtype = _dtype(node)
        if node in self.constants and node not in self.any_value:
            return _of_constant(self.constants[node])
        if dtype is None or dtype.is_floating_point or dtype.is_complex:
            return None
        if dtype is torch.bool:
            return BIT
        limit = self.below.get(self.inputs.get(node, ""), 0)
        if not limit and dtype in SMALL:
            return Known(torch.iinfo(dtype).min, torch.iinfo(dtype).max)
        return Known(0, limit - 1) if limit else ANY

    def follow(self, node: fx.Node) -> None:
        """Find the integers of a node.

        Raises:
            IntegerError: its type does not hold them, or they were rounded and now choose.
        """
        name = getattr(node.target, "__name__", "").partition(".")[0]
        dtype = _dtype(node)
        if name in COMPARED:
            self._chosen(node)
        if dtype is None:
            self.found[node] = self._several(node, name)
        elif dtype is torch.bool:
            self.found[node] = BIT
        elif dtype.is_floating_point:
            self.found[node] = self._in_float(node, name, dtype)
        elif dtype in WORDS:
            self.found[node] = self._in_integer(node, name, dtype)

    def _chosen(self, node: fx.Node) -> None:
        for read in node.all_input_nodes:
            known = self.of(read)
            if known is not None and known.lost:
                raise IntegerError(f"integers are compared that were rounded: {known.lost}", KEEP)

    def _several(self, node: fx.Node, name: str) -> Known | None:
        """Of an op with several results, that of the first; `_in_integer` reads the others."""
        return self.of(node.args[0]) if name in _FIRST and node.args else None

    def _operands(self, node: fx.Node) -> list[Known | None]:
        return [self.of(a) for a in (*node.args, *node.kwargs.values())]

    def _result(self, node: fx.Node, name: str) -> Known | None:
        """The integers that an op gives where they have no end; None: none, or unknown."""
        if name == "getitem":
            return self._part(node)
        if name in _FIRST:
            return self.of(node.args[0])
        if name in JOINED:
            at = [node.args[k] for k in JOINED[name] if k < len(node.args)]
            parts: list[Any] = [
                self.of(p) for a in at for p in (a if isinstance(a, list | tuple) else [a])
            ]
            return _union(*parts) if parts and all(parts) else None
        if name in ("sum", "cumsum"):
            return self._summed(node, name)
        if name == "clamp":
            return self._clamped(node)
        if name == "div":
            whole = node.kwargs.get("rounding_mode") is not None
            a, b = (self.of(x) for x in node.args[:2])
            return _quotient(a, b) if whole and a and b else None
        if name in ARITHMETIC:
            given = [k for k in self._operands(node) if k is not None]
            several = len(node.args) + len(node.kwargs) == len(given)
            return ARITHMETIC[name](*given) if several else None
        if name in ("argmax", "argmin"):
            return Known(0, math.prod(_shape(node.args[0])) - 1)
        if name in ("full", "full_like", "new_full", "scalar_tensor"):
            return self.of(node.args[0 if name == "scalar_tensor" else -1])
        if name.startswith(("zeros", "new_zeros")):
            return Known(0, 0)
        if name.startswith(("ones", "new_ones")):
            return Known(1, 1)
        return None

    def _part(self, node: fx.Node) -> Known | None:
        """One of several results: places of an op that sorts, or entries of its operand."""
        made: Any = node.args[0]
        at = node.args[1]
        name = getattr(made.target, "__name__", "").partition(".")[0]
        if at == 1 and name in ("max", "min", "topk", "sort", "cummax", "cummin"):
            return Known(0, max((*_shape(made.args[0]), 1)) - 1)
        return self.of(made)

    def _summed(self, node: fx.Node, name: str) -> Known | None:
        known = self.of(node.args[0])
        if known is None or not known.bounded:
            return known
        size, left = math.prod(_shape(node.args[0])), math.prod(_shape(node))
        count = size // left if name == "sum" and left else max((*_shape(node), 1))
        return _ends(known.low, known.high, known.low * count, known.high * count)

    def _clamped(self, node: fx.Node) -> Known | None:
        low, high = (*node.args[1:], None, None)[:2]
        low, high = node.kwargs.get("min", low), node.kwargs.get("max", high)
        known = self.of(node.args[0])
        if known is None:
            return None
        for bound, of in ((low, max), (high, min)):
            end = self.of(bound)
            if bound is None or end is None or not end.bounded:
                continue
            if known.bounded:
                known = _span(known, end, of)
        both: list[Any] = [self.of(b) for b in (low, high)]
        if not known.bounded and all(b is not None and b.bounded for b in both):
            return Known(both[0].low, max(both[0].low, both[1].high))
        return known

    def _in_float(self, node: fx.Node, name: str, dtype: torch.dtype) -> Known | None:
        tensors = [self.of(a) for a in node.all_input_nodes]
        if not tensors or not (name in _FIRST or name in JOINED or name in _KEEPING):
            return None
        if any(k is None for k in tensors):
            return None
        lost = next((k.lost for k in tensors if k is not None and k.lost), "")
        for known in (*tensors, self._result(node, name)):
            lost = lost or self._rounded(node, known, dtype)
        known = self._result(node, name)
        if lost:
            return Known(lost=lost)
        return known if known is not None and not known.lost else None

    def _rounded(self, node: fx.Node, known: Known | None, dtype: torch.dtype) -> str:
        """In words, where a float type does not hold each of these integers."""
        if known is None or not known.bounded:
            return ""
        far, end = max(abs(known.low), abs(known.high)), 2 ** DIGITS[dtype]
        if far <= end:
            return ""
        held = f"{WORDS[dtype]} holds each integer up to {end}"
        return f"{self.place(node)}, where they are {known} and {held}"

    def _in_integer(self, node: fx.Node, name: str, dtype: torch.dtype) -> Known:
        known = self._result(node, name)
        cast = name == "_to_copy"
        from_reals = cast and _is_float(node.args[0])
        if known is not None and known.lost:
            raise IntegerError(f"integers are cast back that were rounded: {known.lost}", KEEP)
        if known is None or not known.bounded:
            if dtype in NARROW:
                raise IntegerError(f"integers of no known range in {WORDS[dtype]}", WIDER)
            if from_reals:
                self.real[self.place(node)] = None
            elif name in ARITHMETIC or name in ("sum", "cumsum", "prod", "div") or cast:
                self.unbounded[self.place(node)] = None
            return ANY
        ends = torch.iinfo(dtype)
        if known.low < ends.min or known.high > ends.max:
            holds = f"{WORDS[dtype]} holds {ends.min} to {ends.max}"
            raise IntegerError(f"integers overflow: they are {known}, and {holds}", WIDER)
        return replace(known, lost="")

    def original(self, node: fx.Node) -> fx.Node:
        """The integers that casts to other types and back leave as they were; else the operand."""
        operand: Any = node.args[0]
        at = operand
        while _is_cast(at) and at not in self.constants and self._whole(at) and self._whole(node):
            at = at.args[0]
        return operand if _is_float(at) or _dtype(at) is torch.bool else at

    def _whole(self, node: fx.Node) -> bool:
        """Whether a node holds each of its integers."""
        known = self.of(node)
        return known is not None and known.bounded and _dtype(node) is not torch.bool


KEEP = (
    "keep integers in an integer type, or cast them to a float type that holds each of them: f32 "
    "does up to 16777216"
)
WIDER = "compute in a wider type, or state a smaller range: --input 'ids=i64[...]<N'"
_KEEPING = frozenset((*ARITHMETIC, "sum", "cumsum", "clamp", "div"))


def _of_constant(constant: Constant) -> Known | None:
    match constant.structure:
        case Full(value):
            values = [value]
        case Ramp(dim, offset):
            values = [offset, offset + constant.narrow[dim] - 1]
        case Band(inside=inside, outside=outside):
            values = [inside, outside]
        case opaque:
            entries = np.asarray(opaque.value)
            if not entries.size or not np.array_equal(entries, np.floor(entries)):
                return None
            values = [entries.min().item(), entries.max().item()]
    if any(v != int(v) for v in values):
        return None
    return _ends(*(int(v) for v in values))


def _dtype(node: Any) -> torch.dtype | None:
    val = node.meta.get("val")
    return val.dtype if isinstance(val, torch.Tensor) else None


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in node.meta["val"].shape)


def _is_float(node: Any) -> bool:
    dtype = _dtype(node) if isinstance(node, fx.Node) else None
    return dtype is not None and dtype.is_floating_point


def _is_cast(node: Any) -> bool:
    return isinstance(node, fx.Node) and getattr(node.target, "__name__", "") == CAST


def _listed(places: Mapping[str, None]) -> str:
    shown = list(places)[:SHOWN]
    more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    return ", ".join(shown) + more
