"""Sharding in groups (HSDP): the ranks of a group shard what other groups hold alike.

A search knows one mesh dim, `dp`, of all ranks that share the batch. On the mesh of the plan these
are `dp_replicate` groups of `dp_shard` ranks.
"""

from collections.abc import Mapping
from dataclasses import replace

from shardproof.synthesis.planner.assign import PlanError
from shardproof.synthesis.planner.plan import Plan
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Atom, Layout, normal
from shardproof.verifier.kernel.program.types import Mesh

REPLICATE, SHARD = "dp_replicate", "dp_shard"


def merged(mesh: Mesh) -> Mesh:
    """The mesh with one dim, `dp`, for both of groups.

    Raises:
        PlanError: one of the two without the other, in another order, or beside `dp` or `cp`.
    """
    sizes = dict(mesh.dims)
    found = [name for name in mesh.names if name in (REPLICATE, SHARD)]
    if not found:
        return mesh
    wrong = "cp" if sizes.get("cp", 1) > 1 else "dp" if "dp" in sizes else ""
    if found != [REPLICATE, SHARD] or wrong or min(sizes[n] for n in found) == 1:
        said = f"stand with {wrong}" if wrong else "are two dims of several ranks, in this order"
        raise PlanError(
            f"mesh {mesh}: {REPLICATE} and {SHARD} {'do not ' * bool(wrong)}{said}; "
            f"try --mesh {REPLICATE}=2,{SHARD}=2,tp=2, or dp for one group"
        )
    ranks = sizes[REPLICATE] * sizes[SHARD]
    dims = (("dp", ranks) if n == SHARD else (n, k) for n, k in mesh.dims if n != REPLICATE)
    return Mesh(tuple(dims))


def in_groups(plan: Plan, mesh: Mesh) -> Plan:
    """A plan over `dp`, on a mesh that has groups of its ranks; any other as it is."""
    if REPLICATE not in mesh:
        return plan
    return replace(plan, mesh=mesh, dp=SHARD, replicate=REPLICATE)


def sharded(plan: Plan, shapes: Mapping[str, tuple[int, ...]]) -> Plan:
    """The plan with its parameters as `fully_shard` places them over all ranks of a group."""
    params = {path: _placed(plan, shapes[path], placed) for path, placed in plan.params.items()}
    return replace(plan, params=params)


def _placed(plan: Plan, shape: tuple[int, ...], placed: Mapping[str, str]) -> dict[str, str]:
    """`fully_shard` splits the first dim that divides over all ranks that shard and is not split
    part by part."""
    over = placed.get(plan.tp or "", "R")
    dim = int(over[2 : over.index(")")]) if over != "R" else None
    local = [n // plan.tp_size if d == dim else n for d, n in enumerate(shape)]
    free = (d for d, n in enumerate(local) if n % plan.shard_size == 0)
    at = next((d for d in free if d != dim or " in " not in over), None)
    data = "R" if at is None else f"S({at})"
    return {
        n: over if n == plan.tp else data if n in plan.shard_dims else "R" for n in plan.mesh.names
    }


def split_groups(contract: Contract, plan: Plan) -> Contract:
    """The contract of a plan over `dp`, with its ranks in groups: those of a group are next to each
    other."""
    if plan.replicate is None or plan.dp is None:
        return contract
    inner = {"dp": [Atom(plan.mesh[name], name) for name in (plan.replicate, plan.dp)]}

    def split(layout: Layout) -> Layout:
        dims = (
            normal([a for atom in dim for a in inner.get(atom.mesh_dim or "", [atom])])
            for dim in layout.dims
        )
        return replace(layout, dims=tuple(dims))

    over = ",".join(plan.batch_dims)
    balanced = (replace(b, mesh_dim=over) if b.mesh_dim == "dp" else b for b in contract.balanced)
    return replace(
        contract,
        inputs={name: split(layout) for name, layout in contract.inputs.items()},
        outputs={key: split(layout) for key, layout in contract.outputs.items()},
        balanced=tuple(balanced),
    )
