"""What every rank holds, and what of it must equal what one device holds."""

from collections.abc import Iterator, Mapping

import numpy as np

from shardproof.verifier.domains.base import Array, Domain, UndefinedError
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.where import EVERYWHERE, members
from shardproof.verifier.refute.evaluate import Ranks, simulate
from shardproof.verifier.refute.scatter import copies, gather, piece, scatter


def all_ranks(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    wholes: Mapping[str, Array],
    domain: Domain,
) -> Ranks:
    """The values of every rank, from pieces of whole inputs."""
    mesh, rng = distributed.mesh, np.random.default_rng(0)
    names = [i.name for i in distributed.inputs]
    pieces = {n: scatter(wholes[n], contract.inputs[n], mesh, domain, rng) for n in names}
    return simulate(
        distributed, [{n: pieces[n][r] for n in names} for r in range(mesh.size)], domain
    )


def pairs(
    key: str, contract: Contract, distributed: Program, whole: Array, ranks: Ranks, domain: Domain
) -> Iterator[tuple[str, Array, Array]]:
    """What must be equal for one output: (where, on one device, on ranks)."""
    value = next(o.value for o in distributed.outputs if output_key(o) == key)
    layout, mesh = contract.outputs[key], distributed.mesh
    where = contract.wanted.get(key, EVERYWHERE)
    coords, asked = mesh.coords(), members(where, mesh)
    held = [local.get(value, np.zeros(0, dtype=object)) for local in ranks]
    for rank in asked:
        if value not in ranks[rank]:
            raise UndefinedError(f"{key} is asked for on rank {coords[rank]}, which has no value")
    if not layout.partial:
        for rank in asked:
            yield f"on rank {coords[rank]}", piece(whole, layout, coords[rank]), held[rank]
        return
    yield "summed up", whole, gather(held, layout, mesh, domain, where)
    for rank, origin in copies(layout, mesh, where):
        yield f"on rank {coords[rank]}", held[origin], held[rank]
