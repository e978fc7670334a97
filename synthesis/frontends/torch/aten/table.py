"""The table of aten ops, and what a rule works with."""

import hashlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Node
from shardproof.verifier.kernel.program.types import FLOATS, Attr, Source, TensorType

Rule = Callable[..., Any]

TABLE: dict[str, Rule] = {}
"""`mm.default` -> rule(emit, *args, **kwargs) -> value name, or a tuple of them. Ops of another
namespace than aten are written `namespace::op.overload`."""


def aten(*names: str) -> Callable[[Rule], Rule]:
    """Declare how aten overloads (`mm.default`) are written in ops of the language."""

    def declare(rule: Rule) -> Rule:
        for name in names:
            if name in TABLE:
                raise ValueError(f"aten op {name} has two rules")
            TABLE[name] = rule
        return rule

    return declare


INFINITY = Fraction(2**200)
"""Stands for infinity in masks, and for the largest number of a dtype: libraries use both."""
LARGEST = frozenset(
    map(Fraction, (3.4028234663852886e38, 3.3895313892515355e38, 1.7976931348623157e308))
)
"""Of f32, bf16 and f64."""
MASKS = (
    "Constants that are infinite or the largest of a dtype (masks) are plus or minus 2^200, scores "
    "under them -10^30."
)


SIMPLE, SIMPLE_F32 = 2**40, 2**17
"""The largest product of numerator and denominator of a fraction that a float is read as, as it
is and as a float32: few floats are near one by chance."""


def fraction(value: Any, dtype: str = "f64") -> Fraction:
    """The rational of a Python number beside a tensor of a dtype. Of a float it is the simplest
    fraction that rounds to it, so that `x * (1 / 24)` is `x / 24`; the exact one where that is not
    `SIMPLE`. PyTorch rounds it to a float32 unless the tensor is of f64, so `1 - 0.999` is `1/1000`
    there. Infinities become plus or minus `INFINITY`."""
    if not isinstance(value, float):
        return Fraction(value)
    if value in (float("inf"), float("-inf")):
        return INFINITY if value > 0 else -INFINITY
    exact = Fraction(value)
    near = [exact.limit_denominator(2**bits) for bits in (10, 17, 20, 30, 40)]
    size = [abs(f.numerator) * f.denominator for f in near]
    for f, n in zip(near, size, strict=True):
        if n <= SIMPLE and float(f) == value:
            return f
    rounded, normal = np.float32, 2.0**-126 <= abs(value) < 2.0**127
    for f, n in zip(near, size, strict=True):
        narrow = dtype in FLOATS - {"f64"} and normal and 0 < n <= SIMPLE_F32
        if narrow and rounded(float(f)) == rounded(value):
            return f
    return exact


def content_name(value: NDArray[Any]) -> str:
    """The name of a constant input: equal tables have one name."""
    value = np.ascontiguousarray(value)
    digest = hashlib.sha256(repr((value.shape, value.dtype.str)).encode() + value.tobytes())
    return f"const.{digest.hexdigest()[:12]}"


class Emit:
    """Adds ops to a builder, dropping those that change nothing and merging equal ones.

    Merging stays within one `scope` (block, direction), so that repeated blocks remain alike.
    """

    fused = True
    """Whether attention is one op in the forward; else it is written as backwards compute it."""
    tables = False
    """Whether constants are tables, whatever is in them."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder
        self.scope: tuple[str, str] = ("", "")
        self.written = False
        """Whether the user's line writes the op at hand, not a hook of a library or a backward."""
        self.result: list[TensorType] = []
        """What PyTorch says of the results of the node at hand."""
        self.paired: list[bool] = []
        """Which of its operands are complex numbers, as pairs."""
        self.memory: tuple[int, Sequence[int]] = (0, ())
        """Offset and strides of the first of its operands, where that is a tensor."""
        self.op = ""
        """Name of the aten op at hand, without its overload."""
        self.infinite = False
        """Whether an infinite constant was met."""
        self.notes: set[str] = set()
        """Sentences for the report about ops that are written differently over the reals."""
        self.groups: dict[str, tuple[str, ...]] = {}
        """Name of a process group -> the mesh dims it runs along."""
        self.ignored: dict[str, int] = {}
        """By input: an integer that its entries may be, beside those from 0 on."""
        self.consts: dict[str, NDArray[Any]] = {}
        """Values of constant inputs."""
        self._known: dict[Any, str] = {}
        self._made: dict[str, tuple[str, str, dict[str, Attr], Source, bool]] = {}

    def table_of(self, value: NDArray[Any]) -> str:
        """A constant of which nothing is said but what is in it."""
        name, kind = content_name(value), "bool" if value.dtype == bool else "f32"
        if name not in self.b.types:
            self.b.input(name, TensorType(value.shape, kind), "const")
        self.consts[name] = value
        return name

    def mesh_dim(self, group: str) -> str | tuple[str, ...]:
        if group not in self.groups:
            raise NotImplementedError(
                f"a collective over the group {group}, which is not a mesh dim"
            )
        dims = self.groups[group]
        return dims[0] if len(dims) == 1 else dims

    def type(self, x: str) -> TensorType:
        return self.b.types[x]

    def shape(self, x: str) -> tuple[int, ...]:
        return self.b.types[x].shape

    def add(self, op: str, *inputs: str, **attrs: Attr) -> str:
        key = (op, inputs, tuple(sorted(attrs.items())), self.scope)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.b.add(op, *inputs, **attrs)
            if len(inputs) == 1:
                self._made[found] = (op, inputs[0], attrs, self.b.source, self.written)
        return found

    def _inner(self, x: str, op: str) -> tuple[str, dict[str, Attr]] | None:
        """The operand and attributes of the `op` that made `x` here, if one did.

        Views of different modules are not joined: what a module returns stays visible. Neither are
        reshapes that different lines of a forward write: each has extents of its own.
        """
        made = self._made.get(x)
        if made is None or made[0] != op:
            return None
        there, here = made[3], self.b.source
        written = op == "reshape" and made[4] and self.written
        if there.module != here.module or (written and there.line != here.line):
            return None
        return made[1], made[2]

    def dim(self, x: str, dim: int, extra: int = 0) -> int:
        rank = len(self.shape(x)) + extra
        return dim + rank if dim < 0 else dim

    def dims(self, x: str, dims: Sequence[int] | int | None) -> tuple[int, ...]:
        if dims is None or dims == []:
            return tuple(range(len(self.shape(x))))
        if isinstance(dims, int):
            dims = [dims]
        return tuple(sorted(self.dim(x, d) for d in dims))

    def full(self, value: Any, shape: Sequence[int] = (), dtype: str = "f32") -> str:
        number = fraction(value, dtype)
        if abs(number) in LARGEST:
            number = INFINITY if number > 0 else -INFINITY
        self.infinite = self.infinite or abs(number) == INFINITY
        return self.add("full", shape=tuple(shape), value=number, dtype=dtype)

    def iota(self, shape: Sequence[int], dim: int, offset: int = 0, dtype: str = "i64") -> str:
        return self.add("iota", shape=tuple(shape), dim=dim, offset=offset, dtype=dtype)

    def made(self, x: str) -> Node | None:
        """The op that made a value; None for an input."""
        return next((n for n in reversed(self.b.nodes) if x in n.outputs), None)

    def held(self, value: NDArray[Any]) -> str:
        """An integer table as a constant input, named after its content."""
        name = content_name(value)
        if name not in self.b.types:
            self.b.input(name, TensorType(tuple(value.shape), "i64"), "const")
        self.consts[name] = value
        return name

    def table(self, x: str) -> NDArray[Any] | None:
        """The entries of integers that are known: a table, a ramp, one number, or views of them."""
        if x in self.consts:
            return np.broadcast_to(self.consts[x], self.shape(x))
        node, shape = self.made(x), self.shape(x)
        if node is None or self.type(x).is_float:
            return None
        if node.op == "full":
            return np.full(shape, int(node.attrs["value"]))  # pyright: ignore[reportArgumentType]
        if node.op == "iota":
            line = np.arange(shape[node.number("dim")]) + node.number("offset")
            wide = [1] * len(shape)
            wide[node.number("dim")] = -1
            return np.broadcast_to(line.reshape(wide), shape)
        if node.op not in ("reshape", "expand"):
            return None
        inner = self.table(node.inputs[0])
        if inner is None:
            return None
        return inner.reshape(shape) if node.op == "reshape" else np.broadcast_to(inner, shape)

    def ramp(self, x: str) -> int | None:
        """First entry of an index ramp along the only dim with several entries."""
        node = self.made(x)
        if node is None or node.op != "iota":
            return None
        whole = self.shape(x)[node.number("dim")] == self.type(x).size
        return node.number("offset") if whole else None

    def is_zero(self, x: str) -> bool:
        """Whether a value is a constant of zeros."""
        return self.constant(x) == 0

    def constant(self, x: str) -> Fraction | None:
        """The one number that all entries of a value are, where it was made so."""
        node = self.made(x)
        if node is not None and node.op in ("expand", "reshape"):
            return self.constant(node.inputs[0])
        value = node.attrs["value"] if node is not None and node.op == "full" else None
        return value if isinstance(value, Fraction) else None

    def least(self, x: str) -> int | None:
        """The lowest entry of integers that are known: a ramp, one number, or a table."""
        table = self.consts.get(x)
        if table is not None and table.size and table.dtype.kind in "iu":
            return int(table.min())
        node = self.made(x)
        if node is None or self.type(x).is_float:
            return None
        if node.op in ("expand", "reshape"):
            return self.least(node.inputs[0])
        first = node.attrs.get({"iota": "offset", "full": "value"}.get(node.op, ""))
        return int(first) if isinstance(first, int | Fraction) else None

    def beside(self, x: str) -> int | None:
        """The integer that entries of an input may be besides, where `x` is made of its entries."""
        if x in self.ignored:
            return self.ignored[x]
        node = self.made(x)
        if node is None or node.op not in ("reshape", "expand", "slice", "permute", "concat"):
            return None
        return next((i for v in node.inputs if (i := self.beside(v)) is not None), None)

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """`shape` may hold one -1."""
        shape = list(shape)
        if -1 in shape:
            known = 1
            for n in shape:
                known *= n if n != -1 else 1
            shape[shape.index(-1)] = self.type(x).size // known if known else 0
        target = tuple(shape)
        if self.shape(x) == target:
            return x
        inner = self._inner(x, "reshape")
        if inner is not None:
            return self.reshape(inner[0], target)
        return self.add("reshape", x, shape=target)

    def permute(self, x: str, dims: Sequence[int]) -> str:
        order = tuple(self.dim(x, d) for d in dims)
        if order == tuple(range(len(order))):
            return x
        inner = self._inner(x, "permute")
        if inner is not None:
            before: Any = inner[1]["dims"]
            return self.permute(inner[0], tuple(before[d] for d in order))
        return self.add("permute", x, dims=order)

    def transpose(self, x: str, a: int, b: int) -> str:
        order = list(range(len(self.shape(x))))
        a, b = self.dim(x, a), self.dim(x, b)
        order[a], order[b] = order[b], order[a]
        return self.permute(x, order)

    def expand(self, x: str, shape: Sequence[int]) -> str:
        """-1 keeps an extent. One entry is expanded to itself too: it may be all that a rank has of
        more."""
        old = self.shape(x)
        extra = len(shape) - len(old)
        target = tuple(old[i - extra] if n == -1 else n for i, n in enumerate(shape))
        one = target and self.type(x).size == 1
        return x if target == old and not one else self.add("expand", x, shape=target)

    def slice(self, x: str, dim: int, start: int, stop: int, step: int = 1) -> str:
        """Python slice rules: ends beyond the extent are clipped, negative ends count back."""
        dim = self.dim(x, dim)
        start, stop, step = slice(start, stop, step).indices(self.shape(x)[dim])
        stop = max(start, stop)
        if (start, stop, step) == (0, self.shape(x)[dim], 1):
            return x
        return self.add("slice", x, dim=dim, start=start, stop=stop, step=step)

    def pad(self, x: str, dim: int, lo: int, hi: int) -> str:
        return x if lo == hi == 0 else self.add("pad", x, dim=self.dim(x, dim), lo=lo, hi=hi)

    def sum(self, x: str, dims: Sequence[int], keepdim: bool = False) -> str:
        """Also over dims of extent 1, which may be all that a rank has of a larger one."""
        return self.add("sum", x, dims=tuple(dims), keepdim=keepdim)

    def number(self, value: Any, x: str) -> Fraction:
        """A number beside a tensor."""
        return fraction(value, self.type(x).dtype)

    def scale(self, x: str, value: Any) -> str:
        value = self.number(value, x)
        return x if value == 1 else self.add("mul_scalar", x, value=value)

    def shift(self, x: str, value: Any) -> str:
        value = self.number(value, x)
        return x if value == 0 else self.add("add_scalar", x, value=value)

    def cast(self, x: str, dtype: str) -> str:
        """Integers of two widths are the same numbers."""
        kinds = {self.type(x).dtype, dtype}
        return x if len(kinds) == 1 or kinds == {"i32", "i64"} else self.add("cast", x, dtype=dtype)

    def concat(self, parts: Sequence[str], dim: int) -> str:
        return parts[0] if len(parts) == 1 else self.add("concat", *parts, dim=dim)

    def mean(self, x: str, dims: Sequence[int], keepdim: bool = False) -> str:
        """The sum times one over the whole extent."""
        count = 1
        for d in dims:
            count *= self.shape(x)[d]
        return self.scale(self.sum(x, dims, keepdim), Fraction(1, count))

    def power(self, x: str, exponent: Any) -> str:
        e = fraction(exponent)
        if e == 1:
            return x
        if e == 2:
            return self.add("mul", x, x)
        if e == -1:
            return self.add("reciprocal", x)
        if e == Fraction(1, 2):
            return self.add("sqrt", x)
        if e == Fraction(-1, 2):
            return self.add("rsqrt", x)
        return self.add("pow", x, exponent=e)

    def is_value(self, x: Any) -> bool:
        return isinstance(x, str) and x in self.b.types

    def operand(self, x: Any, like: str) -> str:
        """A tensor operand; a Python number becomes a 0-d constant of the dtype of `like`."""
        return x if self.is_value(x) else self.full(x, (), self.type(like).dtype)
