"""Elementwise aten ops, with Python numbers as operands and the activations' backwards."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from shardproof.synthesis.frontends.torch.aten.table import Emit, aten
from shardproof.verifier.ops import REGISTRY, facets


def _same(op: str) -> Callable[..., str]:
    """An op that is one of ours, operand by operand."""

    def rule(e: Emit, *operands: str) -> str:
        return e.add(op, *operands)

    return rule


for _name in REGISTRY:
    aten(*facets(_name).aten)(_same(_name))


@aten("bitwise_not.default")
def bitwise_not(e: Emit, x: str) -> str:
    """Of signed integers in two's complement, `-x - 1`."""
    dtype = e.type(x).dtype
    if dtype == "bool":
        return e.add("logical_not", x)
    if dtype not in ("i64", "i32"):
        raise NotImplementedError(f"the bits of {dtype}")
    return e.shift(e.add("neg", x), -1)


@aten("add.Tensor", "add.Scalar")
def add(e: Emit, a: Any, b: Any, alpha: Any = 1) -> str:
    a, b = _promoted(e, a), _promoted(e, b)
    if not e.is_value(a):
        a, b = b, a
        a = e.scale(a, alpha)
        return e.shift(a, b)
    if not e.is_value(b):
        return e.shift(a, e.number(b, a) * e.number(alpha, a))
    return e.add("add", a, e.scale(b, alpha))


@aten("sub.Tensor", "sub.Scalar")
def sub(e: Emit, a: Any, b: Any, alpha: Any = 1) -> str:
    a, b = _promoted(e, a), _promoted(e, b)
    if not e.is_value(a):
        return e.shift(e.add("neg", e.scale(b, alpha)), a)
    if not e.is_value(b):
        return e.shift(a, -e.number(b, a) * e.number(alpha, a))
    return e.add("sub", a, e.scale(b, alpha))


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(e: Emit, a: Any, b: Any, alpha: Any = 1) -> str:
    return sub(e, b, a, alpha)


@aten("mul.Tensor", "mul.Scalar")
def mul(e: Emit, a: Any, b: Any) -> str:
    if not e.is_value(a):
        a, b = b, a
    return e.add("mul", a, b) if e.is_value(b) else e.scale(_promoted(e, a), b)


def _promoted(e: Emit, x: Any) -> Any:
    """Integers of which an op makes reals, as reals."""
    reals = e.is_value(x) and bool(e.result) and e.result[0].is_float
    return e.cast(x, e.result[0].dtype) if reals and not e.type(x).is_float else x


@aten("div.Tensor", "div.Scalar")
def div(e: Emit, a: Any, b: Any) -> str:
    a, b = _promoted(e, a), _promoted(e, b)
    if not e.is_value(b):
        a = _real(e, a)
        return e.scale(a, 1 / e.number(b, a))
    if not e.is_value(a):
        return e.scale(e.add("reciprocal", b), a)
    return e.add("div", a, b)


aten("pow.Tensor_Scalar")(Emit.power)


@aten("pow.Scalar")
def power_of(e: Emit, base: Any, x: str) -> str:
    """A number above 0 to the power of each entry."""
    if base <= 0:
        raise NotImplementedError(f"{base} to a power that is not known")
    x = e.cast(x, e.result[0].dtype)
    return e.add("exp", e.add("mul", x, e.add("log", e.full(base, e.shape(x), e.type(x).dtype))))


@aten("exp2.default")
def exp2(e: Emit, x: str) -> str:
    return power_of(e, 2, x)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):

    def _compare(e: Emit, a: str, b: Any, *, op: str = _name) -> str:
        like = a if e.is_value(a) else b
        return e.add(op, e.operand(a, like), e.operand(b, like))

    aten(f"{_name}.Tensor", f"{_name}.Scalar")(_compare)


@aten("clamp.default", "clamp_min.default", "clamp.Tensor", "clamp_min.Tensor")
def clamp(
    e: Emit, x: str, low: Any = None, high: Any = None, min: Any = None, max: Any = None
) -> str:
    low, high = (min if low is None else low), (max if high is None else high)
    if _is_between(e, x, low, high):
        return x
    if low is not None:
        x = e.add("maximum", x, e.operand(low, x))
    return x if high is None else e.add("minimum", x, e.operand(high, x))


def _is_between(e: Emit, x: str, low: Any, high: Any) -> bool:
    """Whether a value was clamped already, to bounds that are no wider."""
    if any(v is not None and e.is_value(v) for v in (low, high)) or e.type(x) != e.result[0]:
        return False
    bounds = dict[str, Fraction]()
    for op in ("minimum", "maximum"):
        made = e.made(x)
        bound = e.made(made.inputs[1]) if made is not None and made.op == op else None
        if made is not None and bound is not None and bound.op == "full":
            value = bound.attrs["value"]
            if isinstance(value, Fraction):
                bounds[op], x = value, made.inputs[0]
    if low is not None and ("maximum" not in bounds or min(bounds.values()) < e.number(low, x)):
        return False
    return high is None or ("minimum" in bounds and bounds["minimum"] <= e.number(high, x))


for _name, _op in (("and", "logical_and"), ("or", "logical_or"), ("xor", "ne")):

    def _bitwise(e: Emit, a: str, b: Any, *, op: str = _op) -> str:
        """Of truths, and of integers that are each 0 or 1; the last bits of an integer are what it
        leaves over from a power of 2, in two's complement below 0 too."""
        if op == "logical_and" and type(b) is int and _ones(b) and not _is_bit(e, a):
            return remainder(e, a, b + 1)
        if op != "logical_and" and type(b) is int and b == 0:
            return a
        b = e.operand(b, a)
        if not (_is_bit(e, a) and _is_bit(e, b)):
            raise NotImplementedError("the bits of integers other than 0 and 1")
        return e.cast(e.add(op, _truth(e, a), _truth(e, b)), e.result[0].dtype)

    aten(f"bitwise_{_name}.Tensor", f"bitwise_{_name}.Scalar")(_bitwise)


@aten("logical_xor.default")
def differ(e: Emit, a: str, b: str) -> str:
    return e.add("ne", _truth(e, a), _truth(e, b))


def _ones(mask: int) -> bool:
    """Whether a mask is of the last bits."""
    return mask > 0 and mask & (mask + 1) == 0


_VIEWS = ("cast", "reshape", "expand", "permute", "slice")


def _is_bit(e: Emit, x: str) -> bool:
    """Whether no entry is other than 0 and 1, by what made it."""
    if e.type(x).dtype == "bool" or e.constant(x) in (0, 1):
        return True
    table, made = e.table(x), e.made(x)
    if table is not None:
        return bool(np.isin(table, (0, 1)).all())
    if made is None:
        return False
    if made.op == "where":
        return all(_is_bit(e, v) for v in made.inputs[1:])
    return made.op in _VIEWS and _is_bit(e, made.inputs[0])


def _truth(e: Emit, x: str) -> str:
    if e.type(x).dtype == "bool":
        return x
    made = e.made(x)
    if made is not None and made.op == "cast" and e.type(made.inputs[0]).dtype == "bool":
        return made.inputs[0]
    return e.add("ne", x, e.full(0, (), e.type(x).dtype))


@aten("isnan.default")
def isnan(e: Emit, x: str) -> str:
    """No real number is."""
    return e.add("ne", x, x)


@aten("log2.default", "log10.default")
def log_of_base(e: Emit, x: str) -> str:
    return e.scale(e.add("log", x), 1 / math.log(2 if e.op == "log2" else 10))


_AS_POSITIVE = (
    "sum",
    "mean",
    "all_reduce",
    "reshape",
    "expand",
    "slice",
    "div",
    "mul",
    "add",
    "cast",
)


def _positive(e: Emit, x: str) -> bool:
    """Whether it is made of exponentials, so that it is above 0 where it has a value."""
    made = e.made(x)
    if made is None or made.op not in ("exp", *_AS_POSITIVE) or not e.type(made.inputs[0]).size:
        return False
    if not e.type(x).is_float:
        return False  # an integer may be 0 where a real is above
    if made.op == "all_reduce" and made.attrs["reduce"] != "sum":
        return False
    return made.op == "exp" or all(_positive(e, v) for v in made.inputs)


@aten("xlogy.Tensor")
def x_log_y(e: Emit, x: str, y: str) -> str:
    """0 where x is, whatever y is: which is said here of an x that is y, or is never 0."""
    product = e.add("mul", x, e.add("log", y))
    if _positive(e, x):
        return product
    if x != y:
        raise NotImplementedError("xlogy of two values of which the first may be 0")
    zero = e.full(0, (), e.type(x).dtype)
    return e.add("where", e.add("eq", x, zero), zero, product)


@aten("bucketize.Tensor")
def bucketize(e: Emit, x: str, bounds: str, *, out_int32: bool = False, right: bool = False) -> str:
    """How many bounds are below a number; with `right`, those that are equal count too."""
    last = len(e.shape(x))
    below = e.add("le" if right else "lt", bounds, e.reshape(x, (*e.shape(x), 1)))
    return e.cast(e.sum(e.cast(below, "i64"), (last,)), e.result[0].dtype)


def _down(e: Emit, x: str) -> str:
    """The largest integer not above."""
    return e.add("floor", x)


def _cut(e: Emit, x: str) -> str:
    """Toward zero."""
    return e.add("mul", e.add("sign", x), _down(e, e.add("abs", x)))


@aten("ceil.default", "trunc.default")
def rounded(e: Emit, x: str) -> str:
    return _cut(e, x) if e.op == "trunc" else e.add("neg", _down(e, e.add("neg", x)))


@aten("round.default")
def nearest(e: Emit, x: str) -> str:
    """The nearest integer: what is half way goes to the even one."""
    if not e.type(x).is_float:
        return x
    half = e.shift(x, Fraction(1, 2))
    above = _down(e, half)
    odd = e.add("sub", above, e.scale(_down(e, e.scale(above, Fraction(1, 2))), 2))
    tie = e.cast(e.add("eq", above, half), e.type(x).dtype)
    return e.add("sub", above, e.add("mul", tie, odd))


@aten("div.Tensor_mode", "div.Scalar_mode", "floor_divide.default")
def whole_quotient(e: Emit, a: str, b: Any, rounding_mode: str | None = "floor") -> str:
    """Integers are divided as reals."""
    dtype = e.result[0].dtype
    out = div(e, _real(e, a), _real(e, b) if e.is_value(b) else b)
    if rounding_mode is None:
        return out
    return e.cast((_down if rounding_mode == "floor" else _cut)(e, out), dtype)


_RIGHT = ("__rshift__", "bitwise_right_shift")
_LEFT = ("__lshift__", "bitwise_left_shift")


@aten(*(f"{n}.{'Scalar' if n.startswith('__') else 'Tensor_Scalar'}" for n in _RIGHT + _LEFT))
def shifted(e: Emit, x: str, places: Any) -> str:
    """Of integers by a known number of places: the whole quotient by a power of 2, or a product."""
    if type(places) is not int or not 0 <= places < 63 or e.type(x).is_float:
        raise NotImplementedError(f"a shift of {e.type(x).dtype} by {places} places")
    if e.op in _LEFT:
        return e.scale(x, 2**places)
    return whole_quotient(e, x, 2**places)


def _real(e: Emit, x: str) -> str:
    return x if e.type(x).is_float else e.cast(x, "f64")


@aten("remainder.Scalar", "remainder.Tensor", "fmod.Scalar", "fmod.Tensor")
def remainder(e: Emit, a: str, b: Any) -> str:
    mode = "trunc" if e.op == "fmod" else "floor"
    whole = whole_quotient(e, a, b, mode)
    return sub(e, a, mul(e, whole, b))


@aten("sinh.default", "cosh.default")
def hyperbolic(e: Emit, x: str) -> str:
    parts = e.add("exp", x), e.add("exp", e.add("neg", x))
    return e.scale(e.add("sub" if e.op == "sinh" else "add", *parts), Fraction(1, 2))


@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(e: Emit, cond: str, a: Any, b: Any) -> str:
    dtype = e.result[0].dtype
    a = a if e.is_value(a) else e.full(a, (), dtype)
    b = b if e.is_value(b) else e.full(b, (), dtype)
    return e.add("where", cond, a, b)


@aten("_to_copy.default")
def to_copy(e: Emit, x: str, dtype: Any = None, **_: Any) -> str:
    """Of a sum of whole numbers, integers are summed: ranks then have sums of their own."""
    made, kind = e.made(x), e.result[0]
    if made is not None and made.op == "sum" and not kind.is_float and _is_whole(e, x):
        return e.add("sum", e.cast(made.inputs[0], "i64"), **made.attrs)
    return e.cast(x, kind.dtype)


def _is_whole(e: Emit, x: str) -> bool:
    """Whether all entries are integers, by what made them."""
    constant, made = e.constant(x), e.made(x)
    if not e.type(x).is_float or (constant is not None and constant == int(constant)):
        return True
    if made is None or made.op not in (*_VIEWS, "sum", "where"):
        return False
    return all(_is_whole(e, v) for v in made.inputs[made.op == "where" :])


@aten("full_like.default", "new_full.default")
def full(e: Emit, x: str, *given: Any, **_: Any) -> str:
    return e.full(given[-1], e.result[0].shape, e.result[0].dtype)


for _value, _names in enumerate((("zeros_like", "new_zeros"), ("ones_like", "new_ones"))):

    def _like(e: Emit, x: str, *_: Any, value: int = _value, **__: Any) -> str:
        return e.full(value, e.result[0].shape, e.result[0].dtype)

    aten(*(f"{n}.default" for n in _names))(_like)


@aten("gelu.default")
def gelu(e: Emit, x: str, approximate: str = "none") -> str:
    return e.add("gelu_tanh" if approximate == "tanh" else "gelu", x)


@aten("gelu_backward.default")
def gelu_backward(e: Emit, g: str, x: str, approximate: str = "none") -> str:
    return e.add("mul", g, e.add("gelu_tanh_grad" if approximate == "tanh" else "gelu_grad", x))


@aten("silu_backward.default")
def silu_backward(e: Emit, g: str, x: str) -> str:
    return e.add("mul", g, e.add("silu_grad", x))


@aten("threshold_backward.default")
def threshold_backward(e: Emit, g: str, y: str, threshold: Any) -> str:
    """`g` where `y > threshold`; with threshold 0 that is the backward of relu."""
    if threshold == 0:
        return e.add("mul", g, e.add("relu_grad", y))
    return e.add("where", e.add("gt", y, e.operand(threshold, y)), g, e.operand(0, g))


ROUNDED = 15
"""From here on log(1 + exp(x)) is x, to the bits of a float32."""


@aten("softplus.default")
def softplus(e: Emit, x: str, beta: Any = 1, threshold: Any = 20) -> str:
    """PyTorch takes `x` above `threshold`: a high one is rounding, and is noted."""
    b = e.number(beta, x)
    if b == 0:
        raise NotImplementedError("softplus with beta 0")
    scaled = e.scale(x, b)
    y = e.scale(e.add("softplus", scaled), Fraction(1) / b)
    return _above(e, scaled, threshold, x, y)


@aten("softplus_backward.default")
def softplus_backward(e: Emit, g: str, x: str, beta: Any, threshold: Any) -> str:
    scaled = e.scale(x, beta)
    return _above(e, scaled, threshold, g, e.add("mul", g, e.add("sigmoid", scaled)))


def _above(e: Emit, scaled: str, threshold: Any, linear: str, curved: str) -> str:
    if threshold >= ROUNDED:
        e.notes.add(f"softplus is log(1 + exp(x)) also above its threshold of {threshold}.")
        return curved
    return e.add("where", e.add("gt", scaled, e.operand(threshold, scaled)), linear, curved)


@aten("log_sigmoid_forward.default")
def log_sigmoid(e: Emit, x: str) -> tuple[str, str]:
    return e.scale(e.add("softplus", e.scale(x, -1)), -1), x


@aten("log_sigmoid_backward.default")
def log_sigmoid_backward(e: Emit, g: str, x: str, buffer: str) -> str:
    return e.add("mul", g, e.add("sigmoid", e.scale(x, -1)))


@aten("native_dropout.default")
def native_dropout(e: Emit, x: str, p: float, train: bool) -> tuple[str, str]:
    if train and p > 0:
        raise NotImplementedError("dropout is random: capture in eval mode")
    return x, e.full(1, e.shape(x), "bool")


@aten(
    "detach.default",
    "alias.default",
    "clone.default",
    "lift_fresh_copy.default",
    "lift_fresh.default",
    "contiguous.default",
)
def identity(e: Emit, x: str, **_: Any) -> str:
    return x
