"""Complex numbers as pairs of reals, in a last dim of extent 2."""

from collections.abc import Sequence
from typing import Any

from shardproof.synthesis.frontends.torch.aten.table import TABLE, Emit, Rule

COMPLEX: dict[str, Rule] = {}
"""As `TABLE`, for ops that read or give complex numbers."""


def _declare(*names: str) -> Any:
    def declare(rule: Rule) -> Rule:
        COMPLEX.update(dict.fromkeys((f"{name}" for name in names), rule))
        return rule

    return declare


def _parts(e: Emit, x: str) -> tuple[str, str]:
    last = len(e.shape(x)) - 1
    return e.slice(x, last, 0, 1), e.slice(x, last, 1, 2)


def _pair(e: Emit, real: str, imaginary: str) -> str:
    return e.concat([real, imaginary], len(e.shape(real)) - 1)


@_declare(
    *("view_as_complex.default", "view_as_real.default", "clone.default", "detach.default"),
    *("alias.default", "contiguous.default", "resolve_conj.default", "lift_fresh_copy.default"),
)
def same(e: Emit, x: str, **_: Any) -> str:
    return x


@_declare("_conj.default", "_conj_physical.default", "conj_physical.default")
def conj(e: Emit, x: str) -> str:
    real, imaginary = _parts(e, x)
    return _pair(e, real, e.scale(imaginary, -1))


@_declare("polar.default")
def polar(e: Emit, length: str, angle: str) -> str:
    shape = (*e.shape(angle), 1)
    size, turn = e.reshape(length, (*e.shape(length), 1)), e.reshape(angle, shape)
    return _pair(e, *(e.add("mul", size, e.add(f, turn)) for f in ("cos", "sin")))


@_declare("complex.default")
def from_parts(e: Emit, real: str, imaginary: str) -> str:
    return _pair(e, *(e.reshape(x, (*e.shape(x), 1)) for x in (real, imaginary)))


@_declare("mul.Tensor")
def mul(e: Emit, a: Any, b: Any) -> str:
    whole = [e.is_value(x) and paired for x, paired in zip((a, b), e.paired, strict=True)]
    if not all(whole):
        x, by = (a, b) if whole[0] else (b, a)
        return (
            e.add("mul", x, e.reshape(by, (*e.shape(by), 1))) if e.is_value(by) else e.scale(x, by)
        )
    (p, q), (r, s) = _parts(e, a), _parts(e, b)
    real = e.add("sub", e.add("mul", p, r), e.add("mul", q, s))
    return _pair(e, real, e.add("add", e.add("mul", p, s), e.add("mul", q, r)))


@_declare("add.Tensor", "sub.Tensor", "neg.default")
def linear(e: Emit, *args: Any, **kwargs: Any) -> str:
    if not all(e.paired):
        raise NotImplementedError("complex numbers and reals in one sum")
    return TABLE[f"{e.op}.{'default' if e.op == 'neg' else 'Tensor'}"](e, *args, **kwargs)


@_declare(
    *("view.default", "_unsafe_view.default", "reshape.default", "_reshape_alias.default"),
    *("unsqueeze.default", "squeeze.dim", "squeeze.dims", "squeeze.default"),
)
def view(e: Emit, x: str, *_: Any) -> str:
    return e.reshape(x, e.result[0].shape)


@_declare("expand.default")
def expand(e: Emit, x: str, *_: Any, **__: Any) -> str:
    return e.expand(x, e.result[0].shape)


def _dim(e: Emit, x: str, dim: int) -> int:
    return dim % (len(e.shape(x)) - 1)


@_declare("permute.default")
def permute(e: Emit, x: str, dims: Sequence[int]) -> str:
    return e.permute(x, [*(_dim(e, x, d) for d in dims), len(dims)])


@_declare("transpose.int", "slice.Tensor", "select.int")
def along(e: Emit, x: str, dim: int = 0, *args: Any) -> str:
    if e.op == "transpose":
        args = (_dim(e, x, args[0]),)
    return TABLE[f"{e.op}.{'Tensor' if e.op == 'slice' else 'int'}"](e, x, _dim(e, x, dim), *args)


@_declare("cat.default")
def cat(e: Emit, parts: Sequence[str], dim: int = 0) -> str:
    return e.concat(parts, _dim(e, parts[0], dim))
