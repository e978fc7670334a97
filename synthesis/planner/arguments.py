"""What a module takes of all heads and works on some of: a bias of scores that is made outside it,
once for all layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from shardproof.synthesis.planner.plan import ARGUMENT, LocalExtent
from shardproof.synthesis.planner.roles import Module
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node

if TYPE_CHECKING:
    from shardproof.synthesis.planner.expressible import Passed, Scope


def own_arguments(passed: Passed, modules: Sequence[Module], tp: str) -> tuple[LocalExtent, ...]:
    """The values that modules with heads take whole, and of which a rank works on its heads."""
    sliced = (
        (scope, node)
        for scope, node in passed.steps
        if node.op == "shard_slice" and node.attrs["mesh_dim"] == tp
    )
    found = (extent for at in sliced for extent in taken(passed, *at, modules))
    return tuple(dict.fromkeys(found))


def taken(
    passed: Passed, scope: Scope, node: Node, modules: Sequence[Module]
) -> tuple[LocalExtent, ...]:
    """The same of one value that is sliced; none where something else reads it, or a module that
    reads it makes it."""
    dim, types = node.number("dim"), scope.program.types
    value = before = whole = node.inputs[0]
    heads = types[value].shape[dim]
    paths = {_around(path, modules, heads) for path in reading(scope, node)}
    while (made := scope.producers.get(value)) is not None:
        moved = lookup(made.op).kind == "collective"
        if made.op == "reshape" and any(p and _within(made, p) for p in paths):
            before = made.inputs[0]
        elif not moved or made.attrs["mesh_dim"] == node.attrs["mesh_dim"]:
            break
        elif before == whole:
            before = whole = made.inputs[0]
        value = made.inputs[0]
    program = passed.lowered.program
    params = {i.name for i in program.inputs if i.role == "param"}
    inside = made is not None and any(p and _within(made, p) for p in paths)
    if inside or None in paths or scope.given.get(value, value) in params:
        return ()
    at, shape = node.source, types[whole].shape
    local = (*shape[:dim], types[node.outputs[0]].shape[dim], *shape[dim + 1 :])
    return tuple(
        LocalExtent(at.file, at.line, ARGUMENT, path, shape, local, types[before].shape)
        for path in sorted(filter(None, paths))
    )


def reading(scope: Scope, node: Node) -> set[str]:
    """The modules of the ops that read what a node gives, past views, which several may share."""
    todo, found = [*node.outputs], set[str]()
    for value in todo:
        for reader in scope.readers(value):
            is_view = lookup(reader.op).kind == "view" and len(reader.inputs) == 1
            todo += reader.outputs if is_view else ()
            found |= set() if is_view else {reader.source.module}
    return found


def _around(path: str, modules: Sequence[Module], heads: int) -> str | None:
    """The innermost module around a path in which linears make so many heads."""
    inside = {m.path for m in modules if m.use == "linear" and 1 < m.heads == heads}
    for outer in _outward(path):
        if any(p.startswith(f"{outer}.") for p in inside):
            return outer
    return None


def _outward(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition(".")[0]


def _within(made: Node, path: str) -> bool:
    return f"{made.source.module}.".startswith(f"{path}.")
