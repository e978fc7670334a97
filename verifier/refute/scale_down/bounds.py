"""Choices that the extents decide: what can go one way only at the given extents, and both ways at
small ones.

`minimum(s, 1000)` of a sum of 4096 numbers above 1 is 1000 for all inputs, and not so of 4 numbers.
So a difference that is found at small extents need not be there at the given ones. Each value is
bounded by the ops that make it, inputs by nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

from verifier.kernel.ops import lookup
from verifier.kernel.program.program import Node, Program
from verifier.kernel.program.types import mesh_dims

Bounds = tuple[float, float]
ANY: Bounds = (-math.inf, math.inf)
ORDERS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
SAME = frozenset(
    {"reshape", "permute", "expand", "slice", "flip", "concat", "amax", "all_gather", "all_to_all"}
    | {"shard_slice", "send", "recv", "broadcast", "ring_shift", "only", "wait", "merge"}
    | {"gather", "scatter"}
)
"""Ops whose entries are among those of their operands."""
OR_ZERO = frozenset({"pad", "take", "take_along", "on_coord"})
RISING: dict[str, tuple[Callable[[float], float], Bounds]] = {
    "exp": (math.exp, (-math.inf, 0)),
    "expm1": (math.expm1, (-math.inf, -1)),
    "tanh": (math.tanh, (-math.inf, -1)),
    "floor": (math.floor, (-math.inf, -math.inf)),
    "log": (math.log, (0, -math.inf)),
    "log1p": (math.log1p, (-1, -math.inf)),
    "sqrt": (math.sqrt, (0, 0)),
}
"""Functions that grow, where they begin, and what they come to there."""
RANGES: dict[str, Bounds] = {
    "sigmoid": (0, 1),
    "sin": (-1, 1),
    "cos": (-1, 1),
    "erf": (-1, 1),
    "sign": (-1, 1),
    "rsqrt": (0, math.inf),
    "softplus": (0, math.inf),
    **dict.fromkeys((*ORDERS, "logical_and", "logical_or", "logical_not", "topk_mask"), (0, 1)),
}


def saturated(given: Program, small: Program) -> list[str]:
    """Caveats: the choices of a program that its extents decide, and smaller ones do not."""
    before, after = (dict(_decided(p, "", set())) for p in (given, small))
    return [
        f"at the given extents %{name} can only go one way"
        for name, way in before.items()
        if after.get(name) != way
    ]


def _decided(program: Program, path: str, seen: set[int]) -> Iterator[tuple[str, float]]:
    """The choices of a program, those of its blocks included, that can only go one way: which."""
    known = {i.name: (0.0, 1.0) if i.type.dtype == "bool" else ANY for i in program.inputs}
    for node in program.nodes:
        if node.body is not None:
            if id(node.body) not in seen:
                seen.add(id(node.body))
                yield from _decided(node.body, f"{path}{node.outputs[0]}/", seen)
            known |= dict.fromkeys(node.outputs, ANY)
            continue
        args = [known[v] for v in node.inputs]
        (out,) = node.outputs
        known[out] = _bounds(program, node, args)
        way = _way(node, args, known[out])
        if way is not None:
            yield f"{path}{out}", way


def _way(node: Node, args: list[Bounds], out: Bounds) -> float | None:
    if node.op == "floor":
        return out[0] if out[0] == out[1] else None
    if node.op == "relu":
        args = [*args, (0, 0)]
    elif node.op not in ("maximum", "minimum", *ORDERS):
        return None
    (a, b), (c, d) = args
    return -1 if b < c else 1 if d < a else None


def _bounds(program: Program, node: Node, args: list[Bounds]) -> Bounds:
    op, attrs = node.op, lookup(node.op).with_defaults(node.attrs)
    if op in RANGES:
        return RANGES[op]
    if op in RISING:
        return _risen(*RISING[op], args[0])
    if op == "full":
        return _number(attrs["value"]), _number(attrs["value"])
    if op in SAME or op in OR_ZERO:
        return _hull(*args[: 1 if op in OR_ZERO else None], *([(0, 0)] if op in OR_ZERO else []))
    if op == "where":
        return _hull(*args[1:])
    if op == "cast":
        return args[0] if program[node.outputs[0]].is_float else ANY
    if op in ("neg", "abs", "relu", "reciprocal"):
        return _alone(op, args[0])
    if op in ("mul_scalar", "add_scalar"):
        value = _number(attrs["value"])
        return _product(args[0], (value, value)) if op[0] == "m" else _sum(args[0], (value, value))
    if op in ("add", "sub"):
        return _sum(args[0], args[1] if op == "add" else _alone("neg", args[1]))
    if op in ("mul", "div"):
        if op == "mul" and node.inputs[0] == node.inputs[1]:
            low, high = _alone("abs", args[0])
            return low * low, high * high
        return _product(args[0], args[1] if op == "mul" else _alone("reciprocal", args[1]))
    if op in ("maximum", "minimum"):
        pick = max if op == "maximum" else min
        return pick(args[0][0], args[1][0]), pick(args[0][1], args[1][1])
    return _reduced(program, node, args)


def _reduced(program: Program, node: Node, args: list[Bounds]) -> Bounds:
    """Of ops that add up, or take the most of, several entries."""
    op, attrs = node.op, lookup(node.op).with_defaults(node.attrs)
    if op == "sum":
        dims: tuple[int, ...] = tuple(attrs["dims"])
        shape = program[node.inputs[0]].shape
        return _times(args[0], math.prod(shape[d] for d in dims))
    if op in ("mm", "bmm"):
        return _times(_product(*args), program[node.inputs[0]].shape[-1])
    if op in ("all_reduce", "reduce_scatter", "reduce_to"):
        ranks = math.prod(program.mesh[n] for n in mesh_dims(attrs["mesh_dim"]))
        return _times(args[0], ranks) if attrs["reduce"] == "sum" else args[0]
    return ANY


def _hull(*args: Bounds) -> Bounds:
    return min(a for a, _ in args), max(b for _, b in args)


def _sum(a: Bounds, b: Bounds) -> Bounds:
    return a[0] + b[0], a[1] + b[1]


def _times(a: Bounds, count: int) -> Bounds:
    return (a[0] * count, a[1] * count) if count else (0, 0)


def _product(a: Bounds, b: Bounds) -> Bounds:
    ends = [x * y if x and y else 0.0 for x in a for y in b]
    return min(ends), max(ends)


def _alone(op: str, a: Bounds) -> Bounds:
    low, high = a
    if op == "neg":
        return -high, -low
    if op == "relu":
        return max(low, 0), max(high, 0)
    if op == "reciprocal":
        return (1 / high if high < math.inf else 0, 1 / low) if low > 0 else ANY
    least = 0 if low <= 0 <= high else min(abs(low), abs(high))
    return least, max(abs(low), abs(high))


def _risen(function: Callable[[float], float], begin: Bounds, a: Bounds) -> Bounds:
    def at(x: float) -> float:
        if x <= begin[0] or math.isinf(x):
            return begin[1] if x < math.inf else math.inf
        try:
            return function(x)
        except OverflowError:
            return math.inf

    return at(a[0]), at(a[1])


def _number(value: Fraction | int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
