"""The syntax tree of a tensor program: what the parser makes and a person may build by hand.

Names are scoped lexically, as in the script: a loop or block axis is seen in its body. Integer
expressions index buffers; value expressions are made of the same nodes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the script. Line 0: nowhere in it."""

    line: int = 0
    col: int = 0
    file: str = "<tir>"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col}" if self.line else self.file


NOPLACE = Place()


@dataclass(frozen=True, slots=True)
class Const:
    """A number: an exact rational, or plus or minus infinity. `is_float` tells 1.0 from 1."""

    value: Fraction | float
    is_float: bool = False


@dataclass(frozen=True, slots=True)
class TIRVar:
    """A loop or block axis, used in an expression."""

    name: str


@dataclass(frozen=True, slots=True)
class Load:
    """One element of a buffer."""

    buffer: str
    indices: tuple[Expr, ...] = ()
    place: Place = field(default=NOPLACE, compare=False)


@dataclass(frozen=True, slots=True)
class Apply:
    """A function of expressions: the name of an elementwise op, `floordiv` or `floormod`.

    `cast` has the dtype in `attr`, `pow` the exponent, `where` the word `eager` if both of its
    branches are evaluated.
    """

    op: str
    args: tuple[Expr, ...]
    attr: str | Fraction = ""
    place: Place = field(default=NOPLACE, compare=False)


Expr = Const | TIRVar | Load | Apply
LoopKind = Literal["serial", "parallel"]
"""`parallel`: iterations run in any order, at once (parallel, vectorized, thread-bound)."""


@dataclass(frozen=True, slots=True)
class TIRBuffer:
    """A tensor, or a scalar parameter (shape `()`)."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "f32"
    symbols: tuple[str, ...] = ()
    """Per dim the name its extent has in the script, or an empty string."""
    place: Place = field(default=NOPLACE, compare=False)


@dataclass(frozen=True, slots=True)
class Alloc:
    """A buffer that exists from here to the end of the enclosing body."""

    buffer: TIRBuffer


@dataclass(frozen=True, slots=True)
class TIRBufferRegion:
    """A box of a buffer: per dim the first index and the extent."""

    buffer: str
    ranges: tuple[tuple[Expr, int], ...]
    place: Place = field(default=NOPLACE, compare=False)


@dataclass(frozen=True, slots=True)
class TIRBlockAxis:
    """A block axis `name` over `[0, extent)`, bound to an expression of the loops around."""

    name: str
    kind: Literal["S", "R"]
    extent: int
    binding: Expr
    place: Place = field(default=NOPLACE, compare=False)


@dataclass(frozen=True, slots=True)
class Store:
    """`buffer[indices] = value`."""

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr
    place: Place = field(default=NOPLACE, compare=False)


@dataclass(frozen=True, slots=True)
class TIRGrid:
    """Nested loops from 0 to each extent, the last variable fastest."""

    vars: tuple[TIRVar, ...]
    extents: tuple[int, ...]
    body: tuple[Stmt, ...]
    kind: LoopKind = "serial"
    place: Place = field(default=NOPLACE, compare=False)


@dataclass(frozen=True, slots=True)
class TIRBlock:
    """A block: axes, an init that runs where all reduce axes are 0, a body.

    `reads` and `writes` are None where the script says nothing; else every access must lie in them.
    """

    name: str
    axes: tuple[TIRBlockAxis, ...]
    body: tuple[Stmt, ...]
    init: tuple[Stmt, ...] = ()
    where: Expr | None = None
    reads: tuple[TIRBufferRegion, ...] | None = None
    writes: tuple[TIRBufferRegion, ...] | None = None
    place: Place = field(default=NOPLACE, compare=False)


Stmt = TIRGrid | TIRBlock | Store | Alloc


@dataclass(frozen=True, slots=True)
class TIRFunc:
    """A function: parameters (inputs and outputs alike, in order) and a body."""

    name: str
    params: tuple[TIRBuffer, ...]
    body: tuple[Stmt, ...]
    file: str = "<tir>"
    lines: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Lines of the script, for source notes."""

    @property
    def place(self) -> Place:
        """That of its first parameter; where there is none, its file."""
        return self.params[0].place if self.params else Place(file=self.file)


ARITHMETIC = ("add", "sub", "mul", "div", "neg", "floordiv", "floormod", "maximum", "minimum")
REAL = ("exp", "log", "log1p", "sqrt", "rsqrt", "tanh", "sigmoid", "sin", "cos", "erf", "pow")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
TRUTH = (*COMPARISONS, "logical_and", "logical_or", "logical_not")
INTEGER: dict[str, Callable[[int, int], int]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "floordiv")},
    "floormod": operator.mod,
}
"""Functions of two integers that are one."""
FUNCTIONS = frozenset({*ARITHMETIC, *REAL, *TRUTH, "floor", "abs", "where", "cast"})
"""What `Apply` may apply."""


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions."""
    if isinstance(expr, Load):
        return expr.indices
    return expr.args if isinstance(expr, Apply) else ()


def rebuilt(expr: Expr, parts: tuple[Expr, ...]) -> Expr:
    """The expression with other direct subexpressions, constants folded."""
    if isinstance(expr, Load):
        return Load(expr.buffer, parts, expr.place)
    if isinstance(expr, Apply):
        return apply(expr.op, parts, expr.attr, expr.place)
    return expr


def mapped(store: Store, change: Callable[[Expr], Expr]) -> Store:
    """The store with its expressions changed."""
    indices = tuple(map(change, store.indices))
    return Store(store.buffer, indices, change(store.value), store.place)


def substitute(expr: Expr, env: dict[str, Expr]) -> Expr:
    """The expression with variables replaced."""
    if isinstance(expr, TIRVar):
        return env.get(expr.name, expr)
    parts = children(expr)
    return rebuilt(expr, tuple(substitute(p, env) for p in parts)) if parts else expr


def variables(expr: Expr) -> frozenset[str]:
    """Names of the variables used."""
    if isinstance(expr, TIRVar):
        return frozenset({expr.name})
    return frozenset[str]().union(*(variables(p) for p in children(expr)))


def loads(expr: Expr) -> tuple[Load, ...]:
    """Every element read, those in indices included."""
    own = (expr,) if isinstance(expr, Load) else ()
    return own + tuple(x for p in children(expr) for x in loads(p))


def number(value: int) -> Const:
    return Const(Fraction(value))


def as_int(expr: Expr) -> int | None:
    """The value of an integer constant."""
    if isinstance(expr, Const) and not expr.is_float and isinstance(expr.value, Fraction):
        return int(expr.value)
    return None


def apply(
    op: str, args: tuple[Expr, ...], attr: str | Fraction = "", place: Place = NOPLACE
) -> Expr:
    """An `Apply`, integer constants folded and zeros and ones dropped from integer sums."""
    ints = [as_int(a) for a in args]
    if len(ints) == 2 and op in INTEGER:
        a, b = ints
        if a is not None and b is not None and not (op.startswith("floor") and b == 0):
            return number(INTEGER[op](a, b))
        if (op in ("add", "sub") and b == 0) or (op == "mul" and b == 1):
            return args[0]
        if (op == "add" and a == 0) or (op == "mul" and a == 1):
            return args[1]
    if op == "neg" and isinstance(args[0], Const):
        return Const(-args[0].value, args[0].is_float)
    return Apply(op, args, attr, place)
