"""Whether a plan and the programs that are said to carry it out speak of the same thing."""

import json
import math
import re

from shardproof.synthesis.emit.styles import classes_of, every_style
from shardproof.synthesis.frontends.torch.rolling.paths import covers, stacked
from shardproof.synthesis.planner.plan import Plan
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout, bound
from shardproof.verifier.kernel.program.program import Program

_SPLIT = re.compile(r"S\((-?\d+)\)(?: in (\d+) parts)?")


def disagreement(plan: Plan, sequential: Program, distributed: Program, contract: Contract) -> str:
    """Where a plan says otherwise than the programs and their contract; empty if nowhere.

    A plan speaks of one layer for all that are alike; the program names each layer, or stacks those
    of a repeated block in leading dims.
    """
    if plan.mesh.dims != distributed.mesh.dims:
        return f"it is for the mesh {plan.mesh}, distributed.json for {distributed.mesh}"
    for name in (plan.tp, plan.dp, plan.cp, plan.replicate):
        if name is not None and name not in plan.mesh:
            return f"it splits over {name}, which its mesh {plan.mesh} has not"
    params = {item.path: item for item in sequential.inputs if item.role == "param"}
    named = {path: [p for p in plan.params if p == path or covers(p, path)] for path in params}
    unnamed = next((path for path, by in named.items() if not by), "")
    if unnamed:
        return f"it does not place {unnamed}, a parameter of program.json"
    unknown = sorted(set(plan.params) - {p for by in named.values() for p in by})
    if unknown:
        return f"it places {unknown[0]}, which is not a parameter of program.json"
    for path, item, said in ((path, params[path], p) for path, by in named.items() for p in by):
        layout = contract.inputs[item.name]
        layout = Layout(layout.dims[stacked(path) :], layout.partial)
        placed = plan.params[said]
        if set(placed) != set(plan.mesh.names):
            return (
                f"it places {path} over {', '.join(placed) or 'nothing'}, its mesh is {plan.mesh}"
            )
        for name in plan.mesh.names:
            stated = _stated(plan, said, placed[name], len(layout.dims))
            if stated != _found(layout, name):
                return f"it lays {path} out over {name} as {placed[name]}, contract.json does not"
    return _misnamed(plan)


def _misnamed(plan: Plan) -> str:
    """Where a style says otherwise than the placements of its module's own parameters."""
    if plan.tp is None:
        return ""
    for module in plan.modules:
        prefix = module.path + "." if module.path else ""
        own = {
            path.removeprefix(prefix): placed.get(plan.tp, "R")
            for path, placed in plan.params.items()
            if path.startswith(prefix) and "." not in path.removeprefix(prefix)
        }
        split = {name: placement for name, placement in own.items() if placement != "R"}
        found = ", ".join(f"{name} {placement}" for name, placement in own.items())
        said = f"it says that {module.path} is {module.style} over {plan.tp}"
        if split and module.style in WHOLE:
            return f"{said}, and splits its parameters: {found}"
        if own and not split and module.style in SPLIT:
            return f"{said}, and splits none of its parameters: {found}"
        dim = LINEAR.get(module.style) if module.kind == "Linear" else None
        if dim is not None and "weight" in own and own["weight"].split(" in ")[0] not in dim:
            return f"{said}, and its parameters are {found}"
    return ""


def unchecked(plan: Plan) -> tuple[str, ...]:
    """What a plan holds that nothing in its directory can show, as sentences."""
    if not plan.estimates:
        return ()
    listed = ", ".join(f"{name}={value:g}" for name, value in sorted(plan.estimates.items()))
    return (f"The estimates of plan.json are what the run wrote: {listed}.",)


WHOLE = ("replicate", "sequence")
SPLIT = ("column", "row", "fused_column", "vocab", "experts", "inner", "product")
LINEAR = {"column": ("S(0)", "S(-2)"), "row": ("S(1)", "S(-1)")}
"""Placements of the weight that a style of `Linear` means."""


_ENTRY = re.compile(r'^\+\s+"([^"]+)": (\w+)\(', re.MULTILINE)
_MESH = re.compile(r"^\+.*\bproved_mesh\(model, mesh, (\{[^}]*\})", re.MULTILINE)


def unlike_patch(plan: Plan, diff: str) -> str:
    """Where a plan says otherwise than the patch that is said to carry it out; empty if nowhere.

    Compared are the mesh, the style of each module that the patch names, and `fully_shard`.
    """
    known = {style: classes_of(style) for style in every_style()}
    classes = frozenset[str]().union(*known.values())
    for path, name in _ENTRY.findall(diff):
        fitting = [m for m in plan.modules if m.path == path or m.path.endswith(f".{path}")]
        styles = list(dict.fromkeys(m.style for m in fitting)) or ["replicate"]
        if name in classes and not any(name in known.get(style, ()) for style in styles):
            return f"it says {', '.join(styles)} of {path}, which patch.diff makes {name}"
    meshes = [json.loads(found) for found in _MESH.findall(diff)]
    other = next((m for m in meshes if m != dict(plan.mesh.dims)), None)
    if other is not None:
        return f"it is for the mesh {plan.mesh}, patch.diff for {other}"
    sharded = "fully_shard(" in "".join(x for x in diff.splitlines() if x.startswith("+"))
    if meshes and sharded != (plan.data == "fsdp" and plan.data_size > 1):
        does = "calls" if sharded else "does not call"
        return f"it says data={plan.data}, and patch.diff {does} fully_shard"
    if sharded and ("reshard_after_forward=False" in diff) != (plan.zero == 2):
        return f"it says zero={plan.zero}, and patch.diff calls fully_shard for another stage"
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
