"""Matrix products."""

from typing import Any

from shardproof.synthesis.frontends.torch.aten.table import Emit, aten


@aten("addmm.default", "baddbmm.default")
def addmm(e: Emit, bias: str, a: str, b: str, beta: Any = 1, alpha: Any = 1) -> str:
    product = e.scale(e.add("mm" if e.op == "addmm" else "bmm", a, b), alpha)
    return product if e.is_zero(bias) else e.add("add", product, e.scale(bias, beta))


@aten("linear.default")
def linear(e: Emit, x: str, weight: str, bias: str | None = None) -> str:
    shape = e.shape(x)
    out = e.add("mm", e.reshape(x, (-1, shape[-1])), e.permute(weight, (1, 0)))
    out = e.reshape(out, (*shape[:-1], e.shape(weight)[0]))
    return out if bias is None else e.add("add", out, bias)


@aten("mv.default")
def mv(e: Emit, a: str, x: str) -> str:
    column = e.reshape(x, (*e.shape(x), 1))
    return e.reshape(e.add("mm", a, column), (e.shape(a)[0],))


@aten("dot.default")
def dot(e: Emit, a: str, b: str) -> str:
    return e.sum(e.add("mul", a, b), (0,))


@aten("linalg_solve_triangular.default")
def solve_triangular(
    e: Emit, a: str, b: str, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> str:
    """The inverse of I + L, for L strictly triangular of n rows, is the product of I + (-L)^k over
    k = 1, 2, 4, ... below n: L^n is zero."""
    *batch, n, _ = e.shape(a)
    if not left or not unitriangular or e.shape(b)[:-1] != (*batch, n):
        raise NotImplementedError("a triangular system other than (I + L) X = B")
    beside = e.add("lt" if upper else "gt", e.iota((n, 1), 0), e.iota((1, n), 1))
    power = e.add("where", beside, e.add("neg", a), e.operand(0, a))
    power, x = e.reshape(power, (-1, n, n)), e.reshape(b, (-1, n, e.shape(b)[-1]))
    for step in range((n - 1).bit_length()):
        power = e.add("bmm", power, power) if step else power
        x = e.add("add", x, e.add("bmm", power, x))
    return e.reshape(x, e.shape(b))
