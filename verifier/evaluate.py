"""Runs programs on a domain: one device, or every rank of a mesh in lock step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from verifier.domains.base import Array, Domain
from verifier.domains.floats import Floats
from verifier.inline import inline
from verifier.ir.program import Node, Program
from verifier.ir.types import Affine, Mesh
from verifier.ops import lookup
from verifier.ops.collectives import mesh_dims
from verifier.ops.control import scan_parts

Values = dict[str, Array]
Ranks = list[Values]


def evaluate(program: Program, values: Mapping[str, Array], domain: Domain | None = None) -> Values:
    """Run a one-device program. `values` gives an array for each input; returns every value.

    Raises:
        KeyError: an input is missing.
        ValueError: an input has another shape than the program says.
    """
    return simulate(program, [values], domain)[0]


def simulate(
    program: Program, ranks: Sequence[Mapping[str, Array]], domain: Domain | None = None
) -> Ranks:
    """Run a program on all ranks of its mesh; `ranks[i]` holds the inputs of rank i.

    Returns every value of every rank, in rank order (last mesh dim fastest).
    """
    domain = domain or Floats()
    program = inline(program)
    coords = program.mesh.coords()
    if len(ranks) != len(coords):
        raise ValueError(f"{len(ranks)} sets of inputs for a mesh of {len(coords)} ranks")
    state: Ranks = []
    for given in ranks:
        local: Values = {}
        for item in program.inputs:
            array = np.asarray(given[item.name])
            if array.shape != item.type.shape:
                raise ValueError(f"%{item.name} is {item.type}, got shape {list(array.shape)}")
            local[item.name] = array
        state.append(local)
    for node in program.nodes:
        run_node(node, state, program.mesh, coords, domain)
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
    node: Node, state: Ranks, mesh: Mesh, coords: Sequence[Mapping[str, int]], domain: Domain
) -> None:
    """Run one node on all ranks, adding its results to `state`."""
    op = lookup(node.op)
    attrs = op.with_defaults(node.attrs)
    if op.kind == "control":
        _scan(node, state, mesh, coords, domain)
    elif op.kind == "collective":
        (out,) = node.outputs
        for group in process_groups(mesh, mesh_dims(attrs["mesh_dim"])):
            results = op.meaning(domain, [state[r][node.inputs[0]] for r in group], **attrs)
            for rank, value in zip(group, results, strict=True):
                state[rank][out] = value
    else:
        varying = any(isinstance(v, Affine) for v in attrs.values())
        for local, where in zip(state, coords, strict=True):
            here = at(attrs, where) if varying else attrs
            value = op.meaning(domain, *(local[v] for v in node.inputs), **here)
            local[node.outputs[0]] = np.asarray(value)


def _scan(
    node: Node, state: Ranks, mesh: Mesh, coords: Sequence[Mapping[str, int]], domain: Domain
) -> None:
    body = node.body
    assert body is not None
    length, carries = node.attrs["length"], node.attrs["carry"]
    assert isinstance(length, int)
    assert isinstance(carries, int)
    carry_part, xs_part, const_part = scan_parts(node.attrs, len(node.inputs))
    carry = [[s[v] for v in node.inputs[carry_part]] for s in state]
    collected: list[list[dict[int, Array]]] = [[{} for _ in node.outputs[carries:]] for _ in state]
    steps = range(length - 1, -1, -1) if node.attrs.get("reverse") else range(length)
    for step in steps:
        inner: Ranks = []
        for rank, outer in enumerate(state):
            passed = [
                *carry[rank],
                *(outer[v][step] for v in node.inputs[xs_part]),
                *(outer[v] for v in node.inputs[const_part]),
            ]
            inner.append({i.name: a for i, a in zip(body.inputs, passed, strict=True)})
        for child in body.nodes:
            run_node(child, inner, mesh, coords, domain)
        for rank, local in enumerate(inner):
            results = [local[o.value] for o in body.outputs]
            carry[rank] = results[:carries]
            for slot, value in zip(collected[rank], results[carries:], strict=True):
                slot[step] = value
    for rank, outer in enumerate(state):
        for name, value in zip(node.outputs[:carries], carry[rank], strict=True):
            outer[name] = value
        for name, slot in zip(node.outputs[carries:], collected[rank], strict=True):
            outer[name] = np.stack([slot[i] for i in range(length)])
