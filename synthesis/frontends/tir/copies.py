"""Reads through buffers that only hold a copy: tiles in shared memory, fragments, casts."""

from collections.abc import Collection
from dataclasses import replace

from shardproof.synthesis.frontends.tir.leaves import Flat, Leaf
from shardproof.synthesis.frontends.tir.tree import (
    Apply,
    Expr,
    Load,
    TIRVar,
    as_int,
    children,
    mapped,
    rebuilt,
    substitute,
    variables,
)
from shardproof.verifier.kernel.program.types import FLOATS


def through_copies(flat: Flat, keep: Collection[str] = ()) -> Flat:
    """Replace reads of a whole copy by reads of its source. Stores run one after the other here.

    A copy is written by one store, over all its elements, from a source that nothing writes later.
    `keep` names buffers that are left alone.
    """
    params = {p.name for p in flat.func.params}
    leaves = list(flat.leaves)
    n = 0
    while n < len(leaves):
        name = leaves[n].store.buffer
        writers = [lf for lf in leaves if lf.store.buffer == name]
        source = _source(flat, leaves[n])
        late = {lf.store.buffer for lf in leaves[n:]}
        early = any(x.buffer == name for lf in leaves[:n] for x in lf.reads)
        free = name not in params and name not in keep and len(writers) == 1 and not early
        if source is not None and free and source[1] not in late:
            copy = leaves.pop(n)
            leaves[n:] = [_through(lf, name, copy) for lf in leaves[n:]]
        else:
            n += 1
    return replace(flat, leaves=tuple(leaves))


def _source(flat: Flat, leaf: Leaf) -> tuple[Load, str] | None:
    """What is copied, and the buffer it comes from."""
    store = leaf.store
    value = store.value
    if isinstance(value, Apply) and value.op == "cast" and value.attr in FLOATS:
        (value,) = value.args
    if not isinstance(value, Load) or leaf.init:
        return None
    if any(isinstance(i, Load) for i in value.indices):
        return None
    kinds = {flat.buffers[b].dtype in FLOATS for b in (value.buffer, store.buffer)}
    seen: list[str] = []
    for index, size in zip(store.indices, flat.buffers[store.buffer].shape, strict=True):
        if size == 1 and as_int(index) == 0:
            continue
        if not isinstance(index, TIRVar) or leaf.extents.get(index.name) != size:
            return None
        seen.append(index.name)
    used = variables(value)
    plain = len(set(seen)) == len(seen) and len(kinds) == 1 and used <= set(seen)
    return (value, value.buffer) if plain else None


def _through(leaf: Leaf, name: str, copy: Leaf) -> Leaf:
    made = copy.store

    def visit(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.buffer == name:
            env: dict[str, Expr] = {
                v.name: visit(i)
                for v, i in zip(made.indices, expr.indices, strict=True)
                if isinstance(v, TIRVar)
            }
            return substitute(made.value, env)
        parts = children(expr)
        return rebuilt(expr, tuple(visit(p) for p in parts)) if parts else expr

    return replace(leaf, store=mapped(leaf.store, visit))
