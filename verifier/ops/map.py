"""Elementwise ops: numpy broadcasting, one result, dims pass through unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from verifier.domains.base import Array, Domain, is_index
from verifier.ir.builder import Builder
from verifier.ir.types import FLOATS, TensorType
from verifier.layout import Dim, Layout, local_extent
from verifier.ops.registry import (
    REQUIRED,
    AttrMap,
    Op,
    Operands,
    Placed,
    Refused,
    Site,
    groups,
    register,
)


def broadcast_shape(site: Site) -> tuple[int, ...]:
    try:
        return tuple(np.broadcast_shapes(*(t.shape for t in site.types)))
    except ValueError:
        raise site.fail("shapes do not broadcast") from None


def _promote(types: Sequence[TensorType]) -> str:
    """f64 over f32 over narrow floats over ints; a 0-d operand does not widen."""
    order = ("bool", "u8", "i32", "i64", "bf16", "f16", "f32", "f64")
    floats = [t for t in types if t.is_float]
    pool = [t for t in (floats or types) if t.shape] or floats or list(types)
    return max((t.dtype for t in pool), key=order.index)


ORDER = ("eq", "ne", "lt", "le", "gt", "ge")
LOGIC = ("logical_and", "logical_or", "logical_not")
SCALED = ("mul_scalar", "add_scalar")
ON_BOOLS = frozenset({"cast", "mul", "maximum", "minimum", *ORDER, *LOGIC})
ON_INTEGERS = frozenset({"add", "sub", "neg", *SCALED, "abs", "sign", "floor", "relu"})
"""With `ON_BOOLS`, the ops that integers are closed under; others give floats."""


def is_integer(value: Fraction) -> bool:
    """Whether a constant is an integer that fits in 64 bits."""
    return value.denominator == 1 and abs(value) < 2**63


def is_natural(value: Fraction) -> bool:
    """Whether a constant is an integer, 0 or more."""
    return value.denominator == 1 and value >= 0


def map_types(arity: int, result: str | None = None) -> Callable[[Site], tuple[TensorType, ...]]:
    def rule(site: Site) -> tuple[TensorType, ...]:
        if len(site.types) != arity:
            raise site.fail(f"takes {arity} operands")
        dtype = result or site.attrs.get("dtype") or _promote(site.types)
        if dtype == "bool" and site.op not in ON_BOOLS:
            raise site.fail("bools do not add or scale; cast them first")
        value = site.attrs.get("value")
        if value is not None and dtype not in FLOATS and not is_integer(Fraction(value)):
            raise site.fail(f"{value} is not an integer of 64 bits")
        if dtype not in FLOATS and site.op not in (*ON_BOOLS, *ON_INTEGERS):
            keeps = site.op == "pow" and is_natural(Fraction(site.attrs["exponent"]))
            dtype = dtype if keeps else "f32"
        return (TensorType(broadcast_shape(site), dtype),)

    return rule


def join_partial(op: Op, given: Operands) -> tuple[tuple[str, str], ...]:
    """Pending folds of the result, by the op's linearity. Raises Refused."""
    out: list[tuple[str, str]] = []
    names = sorted({name for layout in given.layouts for name in layout.pending})
    for name in names:
        holders = {i for i, layout in enumerate(given.layouts) if layout.fold(name)}
        folds = {given.layouts[i].fold(name) for i in holders}
        first = min(holders)
        if len(folds) > 1:
            raise Refused(f"operands wait for different reductions over {name}", name, first)
        fold = folds.pop() or "sum"
        if fold != "sum" and not (op.name == "cast" or (op.name, fold) in MONOTONE):
            raise Refused(
                f"a pending {fold} over {name} does not pass through {op.name}", name, first
            )
        allowed = any(
            holders <= group and all(i in holders or i in given.zeros for i in group)
            for group in op.linear
        )
        if fold == "sum" and not allowed:
            others = [i for i in range(len(given.layouts)) if i not in holders]
            if op.linear and others and any(holders <= g for g in op.linear):
                why = (
                    f"{op.name} adds a value that waits for a sum over {name} to one that does not"
                )
            elif len(holders) > 1:
                why = f"{op.name} of several values that each wait for a sum over {name}"
            else:
                why = (
                    f"{op.name} is not linear in operand {first}, which waits for a sum over {name}"
                )
            raise Refused(why, name, first)
        for i, layout in enumerate(given.layouts):
            if i not in holders and name in layout.sharded:
                raise Refused(
                    f"operand {i} is split over {name}, operand {first} waits for a sum over it",
                    name,
                    first,
                )
        out.append((name, fold))
    return tuple(out)


MONOTONE = {("maximum", "max"), ("minimum", "min")}


def place_map(op: Op, given: Operands) -> list[Placed]:
    """Equal splits combine; a dim of whole extent 1 broadcasts against any split."""
    rank = max(len(layout.dims) for layout in given.layouts)
    dims: list[Dim] = []
    for position in range(rank):
        chosen: Dim = ()
        owner = 0
        for i, layout in enumerate(given.layouts):
            offset = position - (rank - len(layout.dims))
            dim = layout.dims[offset] if offset >= 0 else ()
            if not dim or dim == chosen:
                continue
            if chosen:
                if local_extent(dim) != local_extent(chosen):
                    raise Refused(
                        f"local extents {local_extent(chosen)} and {local_extent(dim)} differ "
                        f"at dim {position}",
                        next((a.mesh_dim for a in (*chosen, *dim) if a.mesh_dim), None),
                        i,
                    )
                raise Refused(
                    f"operands {owner} and {i} are split differently at dim {position}",
                    next((a.mesh_dim for a in (*chosen, *dim) if a.mesh_dim), None),
                    i,
                )
            chosen, owner = dim, i
        dims.append(chosen)
    names = [a.mesh_dim for d in dims for a in d if a.mesh_dim]
    if len(set(names)) != len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise Refused(f"two dims of the result would be split over {twice}", twice, 0)
    layout = Layout(tuple(dims), join_partial(op, given))
    if op.name == "cast" and given.attr("dtype") not in FLOATS and layout.partial:
        name = layout.partial[0][0]
        raise Refused(f"a cast to {given.attr('dtype')} of a value that waits over {name}", name, 0)
    return [Placed((layout,), given.attrs)]


def declare(
    name: str,
    arity: int,
    meaning: Callable[..., Any],
    *,
    linear: Any = None,
    attrs: dict[str, Any] | None = None,
    result: str | None = None,
    doc: str = "",
    flops: int = 1,
) -> Op:
    signature = ", ".join(["..."] * arity) + " -> ..."
    return register(
        Op(
            name,
            "map",
            signature,
            meaning,
            map_types(arity, result),
            place_map,
            linear=groups(linear, arity),
            attrs=attrs or {},
            flops=lambda types, results, _: flops * results[0].size,
            doc=doc,
        )
    )


def one(meaning: Callable[[Domain, Array], Array]) -> Callable[..., Array]:
    """A meaning of one operand."""
    return meaning


def two(meaning: Callable[[Domain, Array, Array], Array]) -> Callable[..., Array]:
    """A meaning of two operands."""
    return meaning


INTEGRAL: dict[str, Callable[[Array], Array]] = {
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.copy,
    "relu": lambda x: np.maximum(x, 0),
}
"""What functions that keep integers do to them."""


def _function(name: str) -> Op:
    def meaning(d: Domain, x: Array) -> Array:
        exact = INTEGRAL.get(name)
        return exact(x) if exact is not None and is_index(x) else d.unary(name, x)

    return declare(name, 1, meaning, doc=f"`{name}(x)`, element by element.", flops=8)


UNARY = {
    name: _function(name)
    for name in [
        "exp",
        "log",
        "log1p",
        "expm1",
        "sqrt",
        "rsqrt",
        "sin",
        "cos",
        "tanh",
        "sigmoid",
        "erf",
        "abs",
        "sign",
        "floor",
        "relu",
        "relu_grad",
        "silu",
        "silu_grad",
        "gelu",
        "gelu_grad",
        "gelu_tanh",
        "gelu_tanh_grad",
        "softplus",
    ]
}

neg = declare("neg", 1, one(lambda d, x: d.neg(x)), linear="each", doc="`-x`.")
reciprocal = declare(
    "reciprocal", 1, one(lambda d, x: d.reciprocal(d.lift(x))), doc="`1/x`.", flops=4
)


def _pow(d: Domain, x: Array, exponent: Fraction) -> Array:
    if is_index(x) and is_natural(Fraction(exponent)):
        return np.power(x, int(exponent))
    return d.unary(f"pow:{exponent}", x)


pow_ = declare(
    "pow",
    1,
    _pow,
    attrs={"exponent": REQUIRED},
    doc="`x ** exponent`, a rational exponent.",
    flops=8,
)


def _mul_scalar(d: Domain, x: Array, value: Fraction) -> Array:
    if x.dtype.kind == "i":
        return x * int(value)
    return d.mul(d.lift(x), d.const(Fraction(value)))


def _add_scalar(d: Domain, x: Array, value: Fraction) -> Array:
    if x.dtype.kind == "i":
        return x + int(value)
    return d.add(d.lift(x), d.const(Fraction(value)))


mul_scalar = declare(
    "mul_scalar",
    1,
    _mul_scalar,
    linear="each",
    attrs={"value": REQUIRED},
    doc="`value * x`, an exact rational.",
)
add_scalar = declare(
    "add_scalar",
    1,
    _add_scalar,
    attrs={"value": REQUIRED},
    doc="`x + value`.",
)


def _cast(d: Domain, x: Array, dtype: str) -> Array:
    if dtype == "bool":
        return x if x.dtype.kind == "b" else d.compare("ne", x, np.zeros((), np.int64))
    if dtype in ("i64", "i32", "u8"):
        return x.astype(np.int64) if is_index(x) else d.truncate(x)
    return d.lift(x)


cast = declare(
    "cast",
    1,
    _cast,
    linear="each",
    attrs={"dtype": REQUIRED},
    doc="Change of dtype: the identity over the reals, toward zero from floats to integers.",
)

add = declare("add", 2, two(lambda d, a, b: d.add(a, b)), linear="joint", doc="`a + b`.")
sub = declare("sub", 2, two(lambda d, a, b: d.sub(a, b)), linear="joint", doc="`a - b`.")
mul = declare("mul", 2, two(lambda d, a, b: d.mul(a, b)), linear="each", doc="`a * b`.")
div = declare("div", 2, two(lambda d, a, b: d.div(a, b)), linear=[[0]], doc="`a / b`.", flops=4)
maximum = declare("maximum", 2, two(lambda d, a, b: d.maximum(a, b)), linear=[], doc="`max(a, b)`.")
minimum = declare("minimum", 2, two(lambda d, a, b: d.minimum(a, b)), linear=[], doc="`min(a, b)`.")


def _compare(name: str) -> Op:
    return declare(
        name, 2, two(lambda d, a, b: d.compare(name, a, b)), result="bool", doc=f"`a {name} b`."
    )


COMPARISONS = {name: _compare(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}

logical_and = declare("logical_and", 2, two(lambda d, a, b: d.logical("and", a, b)), result="bool")
logical_or = declare("logical_or", 2, two(lambda d, a, b: d.logical("or", a, b)), result="bool")
logical_not = declare("logical_not", 1, one(lambda d, a: d.logical("not", a)), result="bool")


def _where_types(site: Site) -> tuple[TensorType, ...]:
    if len(site.types) != 3 or site.types[0].dtype != "bool":
        raise site.fail("takes a bool condition and two operands")
    return (TensorType(broadcast_shape(site), _promote(site.types[1:])),)


def _where(d: Domain, c: Array, a: Array, b: Array) -> Array:
    return d.where(c, a, b)


where = register(
    Op(
        "where",
        "map",
        "..., ..., ... -> ...",
        _where,
        _where_types,
        place_map,
        linear=(frozenset({1, 2}),),
        flops=lambda types, results, _: results[0].size,
        doc="`a` where the condition holds, else `b`. Linear in `a` and `b` together.",
    )
)


def reduce_to(b: Builder, ct: str, like: str) -> str:
    """Sum a cotangent down to the shape that was broadcast."""
    shape, target = b.types[ct].shape, b.types[like].shape
    extra = len(shape) - len(target)
    dims = tuple(i for i, n in enumerate(shape) if i < extra or (target[i - extra] == 1 and n != 1))
    if dims:
        ct = b.add("sum", ct, dims=dims, keepdim=False)
    return ct if b.types[ct].shape == target else b.add("reshape", ct, shape=target)


def _scaled(value: int) -> Callable[..., list[str | None]]:
    def rule(
        b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
    ) -> list[str | None]:
        second = cts[0] if value == 1 else b.add("neg", cts[0])
        return [reduce_to(b, cts[0], ins[0]), reduce_to(b, second, ins[1])]

    return rule


add.vjp(_scaled(1))
sub.vjp(_scaled(-1))
neg.vjp(lambda b, ins, outs, cts, attrs: [b.add("neg", cts[0])])
cast.vjp(lambda b, ins, outs, cts, attrs: [b.add("cast", cts[0], dtype=b.types[ins[0]].dtype)])
mul_scalar.vjp(lambda b, ins, outs, cts, attrs: [b.add("mul_scalar", cts[0], value=attrs["value"])])
add_scalar.vjp(lambda b, ins, outs, cts, attrs: [cts[0]])


@mul.vjp
def _mul_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    return [
        reduce_to(b, b.add("mul", cts[0], ins[1]), ins[0]),
        reduce_to(b, b.add("mul", cts[0], ins[0]), ins[1]),
    ]


@div.vjp
def _div_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    over = b.add("div", cts[0], ins[1])
    return [
        reduce_to(b, over, ins[0]),
        reduce_to(b, b.add("neg", b.add("mul", over, outs[0])), ins[1]),
    ]


@where.vjp
def _where_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    zero = b.add("full", shape=(), value=Fraction(0), dtype=b.types[cts[0]].dtype)
    return [
        None,
        reduce_to(b, b.add("where", ins[0], cts[0], zero), ins[1]),
        reduce_to(b, b.add("where", ins[0], zero, cts[0]), ins[2]),
    ]


@pow_.vjp
def _pow_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    e = Fraction(attrs["exponent"])
    slope = b.add("mul_scalar", b.add("pow", ins[0], exponent=e - 1), value=e)
    return [b.add("mul", cts[0], slope)]


def _derivative(name: str, slope: Callable[[Builder, str, str], str]) -> None:
    def rule(
        b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
    ) -> list[str | None]:
        return [b.add("mul", cts[0], slope(b, ins[0], outs[0]))]

    UNARY[name].vjp(rule)


_derivative("exp", lambda b, x, y: y)
_derivative("log", lambda b, x, y: b.add("reciprocal", x))
_derivative("relu", lambda b, x, y: b.add("relu_grad", x))
_derivative("silu", lambda b, x, y: b.add("silu_grad", x))
_derivative("gelu", lambda b, x, y: b.add("gelu_grad", x))
_derivative("gelu_tanh", lambda b, x, y: b.add("gelu_tanh_grad", x))
_derivative("softplus", lambda b, x, y: b.add("sigmoid", x))
_derivative("sin", lambda b, x, y: b.add("cos", x))
_derivative("cos", lambda b, x, y: b.add("neg", b.add("sin", x)))
_derivative("abs", lambda b, x, y: b.add("sign", x))
_derivative(
    "sqrt", lambda b, x, y: b.add("mul_scalar", b.add("reciprocal", y), value=Fraction(1, 2))
)
_derivative(
    "rsqrt",
    lambda b, x, y: b.add(
        "mul_scalar", b.add("pow", y, exponent=Fraction(3)), value=Fraction(-1, 2)
    ),
)
_derivative(
    "tanh",
    lambda b, x, y: b.add("add_scalar", b.add("neg", b.add("mul", y, y)), value=Fraction(1)),
)
_derivative("sigmoid", lambda b, x, y: b.add("sub", y, b.add("mul", y, y)))


_derivative("log1p", lambda b, x, y: b.add("reciprocal", b.add("add_scalar", x, value=Fraction(1))))
_derivative("expm1", lambda b, x, y: b.add("add_scalar", y, value=Fraction(1)))


def _picks(beats: str) -> Callable[..., list[str | None]]:
    """The larger (smaller) operand gets the cotangent; equal operands get half each."""

    def rule(
        b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
    ) -> list[str | None]:
        zero = b.add("full", shape=(), value=Fraction(0), dtype=b.types[cts[0]].dtype)
        half = b.add("mul_scalar", cts[0], value=Fraction(1, 2))
        tied = b.add("where", b.add("eq", *ins), half, zero)
        shares = [b.add("where", b.add(beats, a, c), cts[0], tied) for a, c in (ins, ins[::-1])]
        return [reduce_to(b, share, like) for share, like in zip(shares, ins, strict=True)]

    return rule


maximum.vjp(_picks("gt"))
minimum.vjp(_picks("lt"))


@reciprocal.vjp
def _reciprocal_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    return [b.add("neg", b.add("mul", cts[0], b.add("mul", outs[0], outs[0])))]
