"""Runs programs on a domain: one device, or every rank of a mesh in lock step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from verifier.domains.base import Array, Domain
from verifier.domains.floats import Floats
from verifier.kernel.inline import inline
from verifier.kernel.ops import lookup
from verifier.kernel.ops.control import scan_parts
from verifier.kernel.program.errors import IRError
from verifier.kernel.program.program import Node, Program
from verifier.kernel.program.types import Affine, Mesh, mesh_dims
from verifier.kernel.program.where import EVERYWHERE, Where, contains
from verifier.kernel.rank_sets import Regions, regions

Values = dict[str, Array]
Ranks = list[Values]
Exchange = Callable[
    [Node, Sequence[Array | None], Sequence[int], Mapping[str, Any]], Sequence[Array | None]
]
"""What the ranks of a group hold after a node: node, their values (None where one has none), the
ranks, attributes."""


def evaluate(program: Program, values: Mapping[str, Array], domain: Domain | None = None) -> Values:
    """Run a one-device program. `values` gives an array for each input; returns every value.

    Raises:
        KeyError: an input is missing.
        ValueError: an input has another shape than the program says.
    """
    return simulate(program, [values], domain)[0]


def simulate(
    program: Program,
    ranks: Sequence[Mapping[str, Array]],
    domain: Domain | None = None,
    exchange: Exchange | None = None,
) -> Ranks:
    """Run a program on all ranks of its mesh; `ranks[i]` holds the inputs of rank i.

    Returns every value of every rank, in rank order (last mesh dim fastest); a rank has no entry
    for a value that lives on others. `exchange` runs the nodes of groups in place of what they
    mean.

    Raises:
        IRError: a node that some rank cannot run.
    """
    domain = domain or Floats()
    names: dict[int, dict[str, str]] = {}
    given_as = id(program)
    program = inline(program, names=names)
    coords = program.mesh.coords()
    places = regions(program)
    for fault in places.faults():
        raise IRError(f"{program.name}: {fault.node.op} {fault.reason}  {fault.node.source}")
    if len(ranks) != len(coords):
        raise ValueError(f"{len(ranks)} sets of inputs for a mesh of {len(coords)} ranks")
    state: Ranks = []
    for given, where in zip(ranks, coords, strict=True):
        local: Values = {}
        for item in program.inputs:
            if not contains(item.where, where):
                continue
            array = np.asarray(given[item.name])
            if array.shape != item.type.shape:
                raise ValueError(f"%{item.name} is {item.type}, got shape {list(array.shape)}")
            local[item.name] = array
        state.append(local)
    for node in program.nodes:
        run_node(node, state, program.mesh, coords, domain, places, exchange)
    for composite, value in names.get(given_as, {}).items():
        for local in state:
            if value in local:
                local[composite] = local[value]
    return state


def at(attrs: Mapping[str, Any], coords: Mapping[str, int]) -> dict[str, Any]:
    """Attributes with their affine values taken at one rank."""
    return {k: v.at(coords) if isinstance(v, Affine) else v for k, v in attrs.items()}


def process_groups(mesh: Mesh, names: Sequence[str]) -> list[list[int]]:
    """Ranks of each group of the named mesh dims, in group order (last name fastest)."""
    others = [n for n in mesh.names if n not in names]
    index = {tuple(c[n] for n in mesh.names): i for i, c in enumerate(mesh.coords())}
    groups: list[list[int]] = []
    for fixed in product(*(range(mesh[n]) for n in others)):
        base = dict(zip(others, fixed, strict=True))
        group: list[int] = []
        for moving in product(*(range(mesh[n]) for n in names)):
            where = {**base, **dict(zip(names, moving, strict=True))}
            group.append(index[tuple(where[n] for n in mesh.names)])
        groups.append(group)
    return groups


def run_node(
    node: Node,
    state: Ranks,
    mesh: Mesh,
    coords: Sequence[Mapping[str, int]],
    domain: Domain,
    places: Regions | None = None,
    exchange: Exchange | None = None,
) -> None:
    """Run one node on all ranks, adding its results to `state`."""
    op = lookup(node.op)
    attrs = op.with_defaults(node.attrs)
    if op.kind == "control":
        _scan(node, state, mesh, coords, domain, places, exchange)
    elif op.kind == "collective" or (op.kind == "movement" and "mesh_dim" in attrs):
        (name,), (out,) = node.inputs, node.outputs
        for group in process_groups(mesh, mesh_dims(attrs["mesh_dim"])):
            given = [state[r].get(name) for r in group]
            if all(x is None for x in given):
                continue
            if exchange is None:
                results = op.meaning(domain, given, **attrs)
            else:
                results = exchange(node, given, group, attrs)
            for rank, value in zip(group, results, strict=True):
                if value is not None and contains(_place(places, out), coords[rank]):
                    state[rank][out] = value
    else:
        varying = any(isinstance(v, Affine) for v in attrs.values())
        region = _place(places, node.outputs[0])
        for local, where in zip(state, coords, strict=True):
            if not contains(region, where):
                continue
            if op.kind == "movement":
                local[node.outputs[0]] = next(local[v] for v in node.inputs if v in local)
                continue
            here = at(attrs, where) if varying else attrs
            value = op.meaning(domain, *(local[v] for v in node.inputs), **here)
            local[node.outputs[0]] = np.asarray(value)


def _place(places: Regions | None, value: str) -> Where:
    return places.values[value] if places is not None else EVERYWHERE


def _scan(
    node: Node,
    state: Ranks,
    mesh: Mesh,
    coords: Sequence[Mapping[str, int]],
    domain: Domain,
    places: Regions | None,
    exchange: Exchange | None,
) -> None:
    body = node.body
    assert body is not None
    length, carries = node.attrs["length"], node.attrs["carry"]
    assert isinstance(length, int)
    assert isinstance(carries, int)
    carry_part, xs_part, _ = scan_parts(node.attrs, len(node.inputs))
    inside = places.inside(node) if places else None
    items = body.inputs
    holds = [[contains(_place(inside, i.name), where) for i in items] for where in coords]
    carry = [
        {k: outer[v] for k, v in enumerate(node.inputs[carry_part]) if held[k]}
        for outer, held in zip(state, holds, strict=True)
    ]
    made: list[list[dict[int, Array]]] = [[{} for _ in node.outputs[carries:]] for _ in state]
    steps = range(length - 1, -1, -1) if node.attrs.get("reverse") else range(length)
    for step in steps:
        inner: Ranks = []
        for rank, outer in enumerate(state):
            local: Values = {}
            for k, (item, value) in enumerate(zip(items, node.inputs, strict=True)):
                if k < carries and k in carry[rank]:
                    local[item.name] = carry[rank][k]
                elif k >= carries and holds[rank][k]:
                    sliced = k in range(len(node.inputs))[xs_part]
                    local[item.name] = outer[value][step] if sliced else outer[value]
            inner.append(local)
        for child in body.nodes:
            run_node(child, inner, mesh, coords, domain, inside, exchange)
        for rank, local in enumerate(inner):
            carry[rank] = {k: local[body.outputs[k].value] for k in carry[rank]}
            for slot, result in zip(made[rank], body.outputs[carries:], strict=True):
                if result.value in local:
                    slot[step] = local[result.value]
    for rank, outer in enumerate(state):
        for k, name in enumerate(node.outputs[:carries]):
            if k in carry[rank]:
                outer[name] = carry[rank][k]
        for name, slot in zip(node.outputs[carries:], made[rank], strict=True):
            if len(slot) == length:
                outer[name] = np.stack([slot[i] for i in range(length)])
