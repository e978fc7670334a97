"""Elementwise aten ops, with Python numbers as operands and the activations' backwards."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from synthesis.frontends.torch.aten.table import Emit, aten, fraction
from verifier.ops import REGISTRY, facets


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
    if not e.is_value(a):
        a, b = b, a
        a = e.scale(a, alpha)
        return e.shift(a, b)
    if not e.is_value(b):
        return e.shift(a, fraction(b) * fraction(alpha))
    return e.add("add", a, e.scale(b, alpha))


@aten("sub.Tensor", "sub.Scalar")
def sub(e: Emit, a: Any, b: Any, alpha: Any = 1) -> str:
    if not e.is_value(a):
        return e.shift(e.add("neg", e.scale(b, alpha)), a)
    if not e.is_value(b):
        return e.shift(a, -fraction(b) * fraction(alpha))
    return e.add("sub", a, e.scale(b, alpha))


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(e: Emit, a: Any, b: Any, alpha: Any = 1) -> str:
    return sub(e, b, a, alpha)


@aten("mul.Tensor", "mul.Scalar")
def mul(e: Emit, a: Any, b: Any) -> str:
    if not e.is_value(a):
        a, b = b, a
    return e.add("mul", a, b) if e.is_value(b) else e.scale(a, b)


@aten("div.Tensor", "div.Scalar")
def div(e: Emit, a: Any, b: Any) -> str:
    if not e.is_value(b):
        return e.scale(a, 1 / fraction(b))
    if not e.is_value(a):
        return e.scale(e.add("reciprocal", b), a)
    return e.add("div", a, b)


aten("pow.Tensor_Scalar")(Emit.power)


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
    if low is not None:
        x = e.add("maximum", x, e.operand(low, x))
    return x if high is None else e.add("minimum", x, e.operand(high, x))


for _name in ("and", "or"):

    def _bitwise(e: Emit, a: str, b: str, *, op: str = f"logical_{_name}") -> str:
        if not e.type(a).dtype == e.type(b).dtype == "bool":
            raise NotImplementedError("the bits of integers")
        return e.add(op, a, b)

    aten(f"bitwise_{_name}.Tensor")(_bitwise)


@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(e: Emit, cond: str, a: Any, b: Any) -> str:
    dtype = e.result[0].dtype
    a = a if e.is_value(a) else e.full(a, (), dtype)
    b = b if e.is_value(b) else e.full(b, (), dtype)
    return e.add("where", cond, a, b)


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(e: Emit, x: str, mask: str, value: Any) -> str:
    return e.add("where", mask, e.operand(value, x), x)


@aten("_to_copy.default")
def to_copy(e: Emit, x: str, dtype: Any = None, **_: Any) -> str:
    return e.cast(x, e.result[0].dtype)


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


@aten("tanh_backward.default")
def tanh_backward(e: Emit, g: str, y: str) -> str:
    return e.add("sub", g, e.add("mul", g, e.add("mul", y, y)))


@aten("sigmoid_backward.default")
def sigmoid_backward(e: Emit, g: str, y: str) -> str:
    return e.add("mul", g, e.add("sub", y, e.add("mul", y, y)))


@aten("threshold_backward.default")
def threshold_backward(e: Emit, g: str, y: str, threshold: Any) -> str:
    """`g` where `y > threshold`; with threshold 0 that is the backward of relu."""
    if threshold == 0:
        return e.add("mul", g, e.add("relu_grad", y))
    return e.add("where", e.add("gt", y, e.operand(threshold, y)), g, e.operand(0, g))


@aten("softplus.default")
def softplus(e: Emit, x: str, beta: Any = 1, threshold: Any = 20) -> str:
    """The linear piece that PyTorch takes above `threshold` is rounding, and is noted."""
    e.notes.add(f"softplus is log(1 + exp(x)) also above its threshold of {threshold}.")
    b = fraction(beta)
    return e.scale(e.add("softplus", e.scale(x, b)), Fraction(1) / b)


@aten("softplus_backward.default")
def softplus_backward(e: Emit, g: str, x: str, beta: Any, threshold: Any) -> str:
    return e.add("mul", g, e.add("sigmoid", e.scale(x, beta)))


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
