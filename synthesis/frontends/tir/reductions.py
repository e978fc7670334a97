"""Updates over many iterations: sums, maxima, minima, and sums of products as matrix products."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from shardproof.synthesis.frontends.tir.expressions import HIGHEST, LOWEST
from shardproof.synthesis.frontends.tir.gathers import Lab
from shardproof.synthesis.frontends.tir.tree import Apply, Const, Expr
from shardproof.synthesis.frontends.tir.updates import Update
from shardproof.verifier.kernel.program.types import FLOATS

if TYPE_CHECKING:
    from shardproof.synthesis.frontends.tir.emit import LeafEmitter


def reduced(e: LeafEmitter, update: Update, over: list[str]) -> Lab | Const:
    """The value of an update, folded over the variables that its target does not depend on."""
    if update.fold == "sum":
        made = _sum(e, update.value, over)
    else:
        made = _extreme(e, update.fold, e.tensor(update.value), over)
        e.kinds.add(f"reduction({update.fold})" if over else "elementwise")
    return made


def combined(
    e: LeafEmitter, update: Update, old: Lab | Const, new: Lab | Const, dtype: str
) -> Lab | Const:
    """What the target holds after the update."""
    op = {"sum": "sub" if update.negated else "add", "max": "maximum", "min": "minimum"}
    if isinstance(old, Const) and is_identity(update.fold, old.value, dtype):
        if update.fold != "sum" and not (isinstance(old.value, float) and math.isinf(old.value)):
            e.assumptions.append(
                f"values that a {update.fold} runs over are in the range of {dtype}"
            )
        if not update.negated:
            return new
        zero = Fraction(0)
        return Const(zero, True) if isinstance(new, Const) and new.value == 0 else _negative(e, new)
    return e.joined(op[update.fold], old, new)


def _negative(e: LeafEmitter, new: Lab | Const) -> Lab | Const:
    return Const(-new.value, new.is_float) if isinstance(new, Const) else e.map("neg", new)


def is_identity(fold: str, value: Fraction | float, dtype: str) -> bool:
    """Whether folding into a target that holds `value` leaves the rest alone."""
    if fold == "sum":
        return value == 0
    if fold == "max":
        return value == -math.inf or value == LOWEST.get(dtype)
    return value == math.inf or value == HIGHEST.get(dtype)


def _extreme(e: LeafEmitter, fold: str, made: Lab | Const, over: list[str]) -> Lab | Const:
    if isinstance(made, Const):
        return made
    dims = tuple(i for i, v in enumerate(made.vars) if v in over)
    if not dims:
        return made
    kept = tuple(v for v in made.vars if v not in over)
    value = made.value if fold == "max" else e.views.add("neg", made.value)
    value = e.views.add("amax", value, dims=dims, keepdim=False)
    return Lab(value if fold == "max" else e.views.add("neg", value), kept)


def _factors(e: LeafEmitter, expr: Expr) -> tuple[Fraction, list[Expr]]:
    """A product as a rational and the rest."""
    if isinstance(expr, Const) and isinstance(expr.value, Fraction):
        return expr.value, []
    if isinstance(expr, Apply):
        if expr.op == "mul":
            a, left = _factors(e, expr.args[0])
            b, right = _factors(e, expr.args[1])
            return a * b, left + right
        if expr.op == "neg":
            a, rest = _factors(e, expr.args[0])
            return -a, rest
        if expr.op == "div" and isinstance(expr.args[1], Const):
            by = expr.args[1]
            if by.is_float and isinstance(by.value, Fraction) and by.value:
                a, rest = _factors(e, expr.args[0])
                return a / by.value, rest
    return Fraction(1), [expr]


def _plain(e: LeafEmitter, made: Lab) -> Lab:
    """A value without casts between floats: they are the identity over the reals."""
    node = e.views.made.get(made.value)
    if node is not None and node.op == "cast" and node.attrs["dtype"] in FLOATS:
        (inner,) = node.inputs
        if e.views.b.types[inner].is_float:
            return Lab(inner, made.vars)
    return made


def _sum(e: LeafEmitter, value: Expr, over: list[str]) -> Lab | Const:
    if not over:
        e.kinds.add("elementwise")
        return e.tensor(value)
    coef, rest = _factors(e, value)
    labs: list[Lab] = []
    for part in rest:
        made = e.tensor(part)
        if isinstance(made, Const) and isinstance(made.value, Fraction):
            coef *= made.value
        else:
            labs.append(_plain(e, e.lab(made)))
    for v in over:
        if not any(v in x.vars for x in labs):
            coef *= e.extents[v]
    if not labs:
        e.kinds.add("fill")
        return Const(coef, e.memory[e.leaf.store.buffer].dtype in FLOATS)
    labs = [_summed(e, x, [v for v in x.vars if v in over and _alone(v, x, labs)]) for x in labs]
    while len(labs) > 1:
        labs = _merge(e, labs)
        if len(labs) == 2:
            made = _product(e, labs[0], labs[1], over)
            if made is not None:
                labs = [made]
                break
            labs = [e.map("mul", *labs)]
    e.kinds.add("reduction(sum)" if "matmul" not in e.kinds else "matmul")
    out = _summed(e, labs[0], [v for v in labs[0].vars if v in over])
    return out if coef == 1 else e.map("mul_scalar", out, value=coef)


def _alone(var: str, lab: Lab, labs: list[Lab]) -> bool:
    return all(x is lab or var not in x.vars for x in labs)


def _summed(e: LeafEmitter, lab: Lab, over: list[str]) -> Lab:
    dims = tuple(i for i, v in enumerate(lab.vars) if v in over)
    if not dims:
        return lab
    kept = tuple(v for v in lab.vars if v not in over)
    return Lab(e.views.add("sum", lab.value, dims=dims, keepdim=False), kept)


def _merge(e: LeafEmitter, labs: list[Lab]) -> list[Lab]:
    """Multiply factors into others that have all their variables, then down to two factors."""
    for small in sorted(labs, key=lambda x: len(x.vars)):
        for big in labs:
            if big is not small and set(small.vars) <= set(big.vars):
                made = e.map("mul", big, small)
                return [made if x is big else x for x in labs if x is not small]
    if len(labs) > 2:
        return [e.map("mul", labs[0], labs[1]), *labs[2:]]
    return labs


def _product(e: LeafEmitter, a: Lab, b: Lab, over: list[str]) -> Lab | None:
    """Two factors as a matrix product, batched where they share variables that are kept."""
    both = [v for v in e.order if v in a.vars and v in b.vars]
    inner = [v for v in both if v in over]
    batch = [v for v in both if v not in over]
    rows = [v for v in e.order if v in a.vars and v not in both]
    cols = [v for v in e.order if v in b.vars and v not in both]
    floats = e.kind(a) == e.kind(b) == "float"
    if not (inner and rows and cols and floats) or set(rows + cols) & set(over):
        return None

    def matrix(lab: Lab, *groups: list[str]) -> str:
        order = [v for g in groups for v in g]
        value = e.views.permute(lab.value, [lab.vars.index(v) for v in order])
        return e.views.reshape(value, [math.prod(e.extents[v] for v in g) for g in groups])

    if batch:
        value = e.views.add("bmm", matrix(a, batch, rows, inner), matrix(b, batch, inner, cols))
    else:
        value = e.views.add("mm", matrix(a, rows, inner), matrix(b, inner, cols))
    labels = (*batch, *rows, *cols)
    e.kinds.add("matmul")
    return Lab(e.views.reshape(value, [e.extents[v] for v in labels]), labels)
