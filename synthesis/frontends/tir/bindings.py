"""Whether the loops around a block run each instance of it exactly once.

Axes and loops fall into independent groups that share no loop; the whole map is a bijection where
every group is one. A group is decided by its mixed-radix form, or else point by point.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from shardproof.synthesis.frontends.tir.affine import (
    Ints,
    NeedsSplit,
    NotAffine,
    compact,
    linear,
    on_arrays,
)
from shardproof.synthesis.frontends.tir.errors import fail
from shardproof.synthesis.frontends.tir.tree import (
    Apply,
    Expr,
    TIRBlock,
    TIRBlockAxis,
    as_int,
    variables,
)

MAX_POINTS = 1 << 21
"""Groups of loops with more iterations are decided by their form alone."""


def conjuncts(where: Expr | None) -> list[Expr]:
    """The parts of a predicate that is a conjunction."""
    if where is None:
        return []
    if isinstance(where, Apply) and where.op == "logical_and":
        return [c for a in where.args for c in conjuncts(a)]
    return [where]


def check_bindings(
    block: TIRBlock,
    bindings: Sequence[Expr],
    where: Expr | None,
    extents: Mapping[str, int],
) -> None:
    """Raise TirError unless iterations of the loops (`extents`) that pass `where` are mapped one
    to one onto the block's domain. Loops that no binding uses are left out."""
    used = {v for b in bindings for v in variables(b)}
    guards = conjuncts(where)
    members = {f"axis {i}": variables(b) for i, b in enumerate(bindings)}
    members |= {f"guard {i}": variables(g) for i, g in enumerate(guards)}
    for group in _connected(members):
        axes = [i for i in range(len(bindings)) if f"axis {i}" in group]
        here = [g for i, g in enumerate(guards) if f"guard {i}" in group]
        shared = frozenset[str]().union(*(members[m] for m in group))
        loops = {n: extents[n] for n in sorted(extents) if n in shared}
        stray = set(loops) - used
        if here and (stray or not axes):
            fail(
                block.place,
                f"the predicate of block {block.name!r} is over loops that bind no axis",
                expected="a predicate over the bindings",
            )
        if axes:
            _group(block, [(block.axes[i], bindings[i]) for i in axes], here, loops)


def _connected(members: Mapping[str, frozenset[str]]) -> list[set[str]]:
    """Members that share a loop, directly or through others, together."""
    groups: list[tuple[set[str], set[str]]] = []
    for name, loops in members.items():
        touching = [g for g in groups if g[1] & loops]
        merged = (
            {name}.union(*(g[0] for g in touching)),
            set(loops).union(*(g[1] for g in touching)),
        )
        groups = [g for g in groups if g not in touching] + [merged]
    return [names for names, _ in groups]


def _group(
    block: TIRBlock,
    axes: list[tuple[TIRBlockAxis, Expr]],
    guards: list[Expr],
    loops: dict[str, int],
) -> None:
    if len(axes) == 1 and _mixed_radix(*axes[0], guards, loops):
        return
    points = math.prod(loops.values())
    first = axes[0][0]
    if points > MAX_POINTS:
        fail(
            first.place,
            f"the binding of axis {first.name} over {points} iterations is too large to check",
            expected="digits such as i0 * 32 + i1, or smaller extents",
        )
    grid = np.unravel_index(np.arange(points), tuple(loops.values())) if loops else ()
    env: dict[str, Ints] = dict(zip(loops, grid, strict=True))
    keep = np.ones(max(points, 1), bool)
    try:
        for guard in guards:
            keep &= np.asarray(on_arrays(guard, env), bool)
        values = [np.broadcast_to(on_arrays(b, env), keep.shape)[keep] for _, b in axes]
    except NotAffine:
        fail(first.place, f"the binding of axis {first.name} is not integer arithmetic")
    for (axis, _), value in zip(axes, values, strict=True):
        if value.size and (value.min() < 0 or value.max() >= axis.extent):
            bad = int(value.min() if value.min() < 0 else value.max())
            fail(
                axis.place,
                f"axis {axis.name} of block {block.name!r} leaves its domain",
                expected=f"0 to {axis.extent - 1}",
                got=str(bad),
                hint="an imperfect tile needs T.where",
            )
    sizes = tuple(axis.extent for axis, _ in axes)
    flat = np.ravel_multi_index(values, sizes)
    seen = np.bincount(flat, minlength=math.prod(sizes))
    names = ", ".join(axis.name for axis, _ in axes)
    for wrong, what in ((seen > 1, "more than once"), (seen == 0, "never")):
        if wrong.any():
            at = np.unravel_index(int(np.argmax(wrong)), sizes)
            shown = ", ".join(f"{a.name}={int(x)}" for (a, _), x in zip(axes, at, strict=True))
            fail(
                first.place,
                f"block {block.name!r} runs {what} at {shown}: the binding of {names} is not a "
                "bijection",
                expected="every instance once",
            )


def _mixed_radix(
    axis: TIRBlockAxis, binding: Expr, guards: list[Expr], loops: dict[str, int]
) -> bool:
    """Digits that count 0, 1, 2, ..., all of the extent, or cut at it by the one predicate."""
    try:
        form = linear(binding, loops)
        digits = compact(form.terms, loops)
        if digits is None or form.const or (form.terms and min(c for _, c in form.terms) != 1):
            return False
        if set(digits) != {n for n, e in loops.items() if e != 1}:
            return False
        count = math.prod(loops.values())
        if not guards:
            return count == axis.extent
        (guard,) = guards if len(guards) == 1 else (None,)
        if not isinstance(guard, Apply) or guard.op != "lt":
            return False
        same = linear(guard.args[0], loops) == form
        return same and as_int(guard.args[1]) == axis.extent <= count
    except (NotAffine, NeedsSplit):
        return False
