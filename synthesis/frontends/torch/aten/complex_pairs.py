"""Complex numbers as pairs of reals, in a last dim of extent 2."""

from collections.abc import Sequence
from typing import Any

from shardproof.synthesis.frontends.torch.aten.table import TABLE, Emit, Rule

COMPLEX: dict[str, Rule] = {}
"""As `TABLE`, for ops that read or give complex numbers."""


def declare(*names: str) -> Any:
    """Enter a rule for ops that read or give complex numbers."""

    def enter(rule: Rule) -> Rule:
        COMPLEX.update(dict.fromkeys((f"{name}" for name in names), rule))
        return rule

    return enter


def parts(e: Emit, x: str) -> tuple[str, str]:
    """Real and imaginary part, of the same rank."""
    last = len(e.shape(x)) - 1
    return e.slice(x, last, 0, 1), e.slice(x, last, 1, 2)


def pair(e: Emit, real: str, imaginary: str) -> str:
    """What `parts` parts."""
    return e.concat([real, imaginary], len(e.shape(real)) - 1)


@declare(
    *("view_as_complex.default", "view_as_real.default", "clone.default", "detach.default"),
    *("alias.default", "contiguous.default", "resolve_conj.default", "lift_fresh_copy.default"),
)
def same(e: Emit, x: str, **_: Any) -> str:
    return x


@declare("_conj.default", "_conj_physical.default", "conj_physical.default")
def conj(e: Emit, x: str) -> str:
    real, imaginary = parts(e, x)
    return pair(e, real, e.scale(imaginary, -1))


@declare("polar.default")
def polar(e: Emit, length: str, angle: str) -> str:
    shape = (*e.shape(angle), 1)
    size, turn = e.reshape(length, (*e.shape(length), 1)), e.reshape(angle, shape)
    return pair(e, *(e.add("mul", size, e.add(f, turn)) for f in ("cos", "sin")))


@declare("complex.default")
def from_parts(e: Emit, real: str, imaginary: str) -> str:
    return pair(e, *(e.reshape(x, (*e.shape(x), 1)) for x in (real, imaginary)))


@declare("_to_copy.default")
def to_copy(e: Emit, x: str, **_: Any) -> str:
    """Reals have no imaginary part; that of complex numbers is left out where reals are made."""
    shape, dtype = e.result[0].shape, e.result[0].dtype
    if not e.paired[0]:
        real = e.cast(e.reshape(x, (*shape[:-1], 1)), dtype)
        return pair(e, real, e.full(0, (*shape[:-1], 1), dtype))
    return e.cast(x if len(shape) == len(e.shape(x)) else e.reshape(parts(e, x)[0], shape), dtype)


@declare("copy.default")
def copy(e: Emit, x: str, source: str, *_: Any, **__: Any) -> str:
    if not e.paired[0]:
        raise NotImplementedError("complex numbers copied into reals")
    if not e.paired[1]:
        source = e.reshape(source, (*e.shape(source), 1))
        source = pair(e, source, e.scale(source, 0))
    return e.expand(source, e.result[0].shape)


@declare("abs.default")
def length(e: Emit, x: str) -> str:
    return e.add("sqrt", e.sum(e.add("mul", x, x), (len(e.shape(x)) - 1,)))


@declare("mul.Tensor", "mul.Scalar")
def mul(e: Emit, a: Any, b: Any) -> str:
    whole = [e.is_value(x) and paired for x, paired in zip((a, b), e.paired, strict=True)]
    if not all(whole):
        x, by = (a, b) if whole[0] else (b, a)
        return (
            e.add("mul", x, e.reshape(by, (*e.shape(by), 1))) if e.is_value(by) else e.scale(x, by)
        )
    (p, q), (r, s) = parts(e, a), parts(e, b)
    real = e.add("sub", e.add("mul", p, r), e.add("mul", q, s))
    return pair(e, real, e.add("add", e.add("mul", p, s), e.add("mul", q, r)))


@declare("add.Tensor", "sub.Tensor", "neg.default")
def linear(e: Emit, *args: Any, **kwargs: Any) -> str:
    if not all(e.paired):
        raise NotImplementedError("complex numbers and reals in one sum")
    return TABLE[f"{e.op}.{'default' if e.op == 'neg' else 'Tensor'}"](e, *args, **kwargs)


@declare(
    *("view.default", "_unsafe_view.default", "reshape.default", "_reshape_alias.default"),
    *("unsqueeze.default", "squeeze.dim", "squeeze.dims", "squeeze.default"),
)
def view(e: Emit, x: str, *_: Any) -> str:
    return e.reshape(x, e.result[0].shape)


@declare("expand.default")
def expand(e: Emit, x: str, *_: Any, **__: Any) -> str:
    return e.expand(x, e.result[0].shape)


def _dim(e: Emit, x: str, dim: int) -> int:
    return dim % (len(e.shape(x)) - 1)


@declare("permute.default")
def permute(e: Emit, x: str, dims: Sequence[int]) -> str:
    return e.permute(x, [*(_dim(e, x, d) for d in dims), len(dims)])


@declare("transpose.int", "slice.Tensor", "select.int")
def along(e: Emit, x: str, dim: int = 0, *args: Any) -> str:
    if e.op == "transpose":
        args = (_dim(e, x, args[0]),)
    return TABLE[f"{e.op}.{'Tensor' if e.op == 'slice' else 'int'}"](e, x, _dim(e, x, dim), *args)


@declare("cat.default")
def cat(e: Emit, parts: Sequence[str], dim: int = 0) -> str:
    return e.concat(parts, _dim(e, parts[0], dim))


@declare("slice_scatter.default")
def slice_scatter(e: Emit, x: str, part: str, dim: int = 0, *args: Any) -> str:
    return TABLE["slice_scatter.default"](e, x, part, _dim(e, x, dim), *args)


@declare("slice_backward.default")
def slice_backward(e: Emit, g: str, sizes: Sequence[int], dim: int, *args: Any) -> str:
    return TABLE["slice_backward.default"](e, g, [*sizes, 2], _dim(e, g, dim), *args)


@declare("constant_pad_nd.default")
def pad(e: Emit, x: str, pads: Sequence[int], *value: Any) -> str:
    return TABLE["constant_pad_nd.default"](e, x, [0, 0, *pads], *value)


@declare("sum.dim_IntList", "mean.dim")
def folded(
    e: Emit, x: str, dims: Sequence[int] | None = None, keepdim: bool = False, **_: Any
) -> str:
    places = [_dim(e, x, d) for d in dims or range(len(e.shape(x)) - 1)]
    return e.sum(x, places, keepdim) if e.op == "sum" else e.mean(x, places, keepdim)
