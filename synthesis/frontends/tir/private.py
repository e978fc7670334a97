"""Gives buffers that each iteration has for itself a dim for the loops they live in.

A buffer allocated in a loop is new in each iteration. One allocated outside a serial loop, used
only inside, with indices that do not depend on the loop, and written before it is read, might as
well be: whether each read is covered by a write of the same iteration is checked when it is read.
"""

from collections.abc import Sequence
from dataclasses import replace

from shardproof.synthesis.frontends.tir.errors import fail
from shardproof.synthesis.frontends.tir.leaves import Flat, Leaf, Loop
from shardproof.synthesis.frontends.tir.tree import (
    Expr,
    Load,
    TIRVar,
    children,
    mapped,
    rebuilt,
    substitute,
    variables,
)
from shardproof.synthesis.frontends.tir.updates import update_of


def expanded(flat: Flat) -> Flat:
    """The function with private buffers made whole: one element for each iteration and index.

    Raises:
        TirError: a block whose axes hide the loop that a buffer is private to.
    """
    owners = {name: _owners(flat, name) for name in flat.buffers}
    leaves = tuple(_rewrite(flat, leaf, owners) for leaf in flat.leaves)
    buffers = {
        name: replace(b, shape=(*(lp.extent for lp in owners[name]), *b.shape))
        for name, b in flat.buffers.items()
    }
    return replace(flat, leaves=leaves, buffers=buffers)


def common(a: Sequence[Loop], b: Sequence[Loop]) -> tuple[Loop, ...]:
    """The loops around both."""
    out: list[Loop] = []
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        out.append(x)
    return tuple(out)


def _owners(flat: Flat, name: str) -> tuple[Loop, ...]:
    home = flat.homes[name]
    using = [lf for lf in flat.leaves if name in {lf.store.buffer, *(x.buffer for x in lf.reads)}]
    owners = [loop for loop in home if loop.extent > 1]
    if not using or any(name == p.name for p in flat.func.params):
        return tuple(owners)
    first = using[0]
    killed = first.store.buffer == name and all(x.buffer != name for x in first.reads)
    if not killed or update_of(first.store) is not None or first.init:
        return tuple(owners)
    shared = using[0].loops
    for leaf in using[1:]:
        shared = common(shared, leaf.loops)
    used = frozenset[str]().union(
        *(variables(substitute(i, lf.raw)) for lf in using for i in _indices(lf, name))
    )
    for loop in shared[len(home) :]:
        if loop.kind != "serial" or loop.name in used:
            break
        if loop.extent > 1:
            owners.append(loop)
    return tuple(owners)


def _indices(leaf: Leaf, name: str) -> list[Expr]:
    out = list(leaf.store.indices) if leaf.store.buffer == name else []
    return out + [i for x in leaf.reads if x.buffer == name for i in x.indices]


def _rewrite(flat: Flat, leaf: Leaf, owners: dict[str, tuple[Loop, ...]]) -> Leaf:
    def prefix(name: str) -> tuple[Expr, ...]:
        return tuple(_seen(flat, leaf, loop, name) for loop in owners[name])

    def visit(expr: Expr) -> Expr:
        made = rebuilt(expr, tuple(visit(c) for c in children(expr)))
        if isinstance(made, Load):
            return Load(made.buffer, (*prefix(made.buffer), *made.indices), made.place)
        return made

    store = mapped(leaf.store, visit)
    return replace(leaf, store=replace(store, indices=(*prefix(store.buffer), *store.indices)))


def _seen(flat: Flat, leaf: Leaf, loop: Loop, name: str) -> Expr:
    """The loop as an iter of the leaf."""
    if loop.name in leaf.extents:
        return TIRVar(loop.name)
    for item in leaf.iters:
        if leaf.raw.get(item.name) == TIRVar(loop.name):
            return TIRVar(item.name)
    return fail(
        leaf.store.place,
        f"{name} is private to loop {loop.name}, which the block hides behind its axes",
        hint=f"allocate {name} outside the loops",
    )
