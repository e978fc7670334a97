"""Instances of rules in normal form: two that differ only in how mesh dims are called are one."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from shardproof.verifier.kernel.instance import JOINED, Instance, Piece
from shardproof.verifier.kernel.layout import Atom, Layout
from shardproof.verifier.kernel.program.types import Affine, Mesh


def normal_form(instance: Instance) -> Instance:
    """The instance on the mesh dims that it names, called by the order in which they come up."""
    instance = _on_a_rank(instance)
    names = dict.fromkeys(n for n in _named(instance) if n in instance.mesh)
    called = {name: f"m{k}" for k, name in enumerate(names)}
    return renamed(instance, called)


def _on_a_rank(instance: Instance) -> Instance:
    """A step that ranks take on their own says the same of all ranks that hold the operands."""
    if instance.op == JOINED or "mesh_dim" in dict(instance.attrs):
        return instance
    pieces = (*instance.given, instance.made)
    kept = {n for p in pieces for n in p.layout.mentioned}

    def bare(piece: Piece) -> Piece:
        return replace(piece, where=tuple(w for w in piece.where if w[0] in kept))

    return replace(instance, given=tuple(map(bare, instance.given)), made=bare(instance.made))


def renamed(instance: Instance, called: Mapping[str, str]) -> Instance:
    """The instance under other names of mesh dims; those without one are left out of its mesh."""
    mesh = Mesh(tuple((called[n], instance.mesh[n]) for n in called))
    how, *rest = instance.rule.split(":")
    rule = ":".join([how, *(called.get(part, part) for part in rest)])
    attrs = tuple((k, _renamed(k, v, called)) for k, v in instance.attrs)
    given = tuple(_renamed_piece(p, called) for p in instance.given)
    return replace(
        instance,
        rule=rule,
        attrs=attrs,
        given=given,
        made=_renamed_piece(instance.made, called),
        mesh=mesh,
    )


def _named(instance: Instance) -> Iterator[str]:
    for piece in (*instance.given, instance.made):
        for dim in piece.layout.dims:
            yield from (a.mesh_dim for a in dim if a.mesh_dim is not None)
        yield from (name for name, _ in piece.layout.partial)
        yield from (name for name, _ in piece.where)
    yield from instance.rule.split(":")[1:]
    for key, value in instance.attrs:
        if key == "mesh_dim":
            yield from _names(value)
        if isinstance(value, Affine):
            yield from (name for name, _ in value.terms)


def _names(value: Any) -> Iterable[str]:
    return (value,) if isinstance(value, str) else value


def _renamed(key: str, value: Any, called: Mapping[str, str]) -> Any:
    if key == "mesh_dim":
        return called[value] if isinstance(value, str) else tuple(called[n] for n in value)
    if isinstance(value, Affine):
        return Affine.of(value.const, {called[n]: c for n, c in value.terms})
    return value


def _renamed_piece(piece: Piece, called: Mapping[str, str]) -> Piece:
    dims = tuple(
        tuple(Atom(a.size, called[a.mesh_dim] if a.mesh_dim else None) for a in dim)
        for dim in piece.layout.dims
    )
    partial = ((called[name], fold) for name, fold in piece.layout.partial)
    where = tuple(sorted((called[name], at) for name, at in piece.where))
    return replace(piece, layout=Layout(dims).with_partial(partial), where=where)
