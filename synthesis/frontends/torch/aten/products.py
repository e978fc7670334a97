"""Matrix products."""

from typing import Any

from synthesis.frontends.torch.aten.table import Emit, aten


@aten("addmm.default", "baddbmm.default")
def addmm(e: Emit, bias: str, a: str, b: str, beta: Any = 1, alpha: Any = 1) -> str:
    product = e.add("mm" if e.op == "addmm" else "bmm", a, b)
    return e.add("add", e.scale(product, alpha), e.scale(bias, beta))


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
