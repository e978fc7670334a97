"""Whether a plan and the programs that are said to carry it out speak of the same thing."""

from __future__ import annotations

import math
import re

from synthesis.plan import Plan
from verifier.contract import Contract
from verifier.ir.program import Program
from verifier.layout import Layout, bound

_SPLIT = re.compile(r"S\((-?\d+)\)(?: in (\d+) parts)?")


def disagreement(plan: Plan, sequential: Program, distributed: Program, contract: Contract) -> str:
    """Where a plan says otherwise than the programs and their contract; empty if nowhere.

    A plan speaks of one layer; the program stacks the layers of a repeated block in leading dims.
    """
    if plan.mesh.dims != distributed.mesh.dims:
        return f"it is for the mesh {plan.mesh}, distributed.json for {distributed.mesh}"
    for name in (plan.tp, plan.dp):
        if name is not None and name not in plan.mesh:
            return f"it splits over {name}, which its mesh {plan.mesh} has not"
    params = {item.path: item for item in sequential.inputs if item.role == "param"}
    unnamed, unknown = (
        sorted(set(params) - set(plan.params)),
        sorted(set(plan.params) - set(params)),
    )
    if unnamed:
        return f"it does not place {unnamed[0]}, a parameter of program.json"
    if unknown:
        return f"it places {unknown[0]}, which is no parameter of program.json"
    for path, item in params.items():
        stacked = sum(part == "*" or part.startswith("[") for part in path.split("."))
        layout = contract.inputs[item.name]
        layout = Layout(layout.dims[stacked:], layout.partial)
        placed = plan.params[path]
        if set(placed) != set(plan.mesh.names):
            return (
                f"it places {path} over {', '.join(placed) or 'nothing'}, its mesh is {plan.mesh}"
            )
        for name in plan.mesh.names:
            stated = _stated(plan, path, placed[name], len(layout.dims))
            if stated != _found(layout, name):
                return f"it lays {path} out over {name} as {placed[name]}, contract.json does not"
    return ""


def _stated(plan: Plan, path: str, placement: str, rank: int) -> tuple[int, int] | None:
    """(dim, parts) that a placement splits: each of `parts` equal blocks of the dim by itself; None
    for `R`. Raises ValueError."""
    if placement == "R":
        return None
    found = _SPLIT.fullmatch(placement)
    if found is None or not rank:
        raise ValueError(f"a parameter of {rank} dims cannot be placed {placement!r}")
    owner, _, own = path.rpartition(".")
    module = plan.module(owner)
    parts = {name: n for name, _, n in module.splits} if module is not None else {}
    return int(found[1]) % rank, int(found[2] or parts.get(own, 1))


def _found(layout: Layout, mesh_dim: str) -> tuple[int, int] | None:
    for index, dim in enumerate(layout.dims):
        if mesh_dim in bound(dim):
            at = next(i for i, atom in enumerate(dim) if atom.mesh_dim == mesh_dim)
            return index, math.prod(a.size for a in dim[:at] if a.mesh_dim is None)
    return None
