"""What must hold of a gather to one rank and of a scatter from it."""

from collections.abc import Mapping
from typing import Any

from shardproof.verifier.checker import collectives
from shardproof.verifier.checker.claims import Claim, Row, need
from shardproof.verifier.checker.step import Step
from shardproof.verifier.kernel.instance import Piece
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.kernel.program.where import coordinates
from shardproof.verifier.terms import Ref, Terms


def rooted(
    op: str, attrs: Mapping[str, Any], row: Row, given: Claim, terms: Terms, mesh: Mesh
) -> Ref:
    """The value stays; it is laid out as the collective of all ranks would, on fewer ranks."""
    name, root = str(attrs["mesh_dim"]), int(attrs["index"])
    here, there = coordinates(given.where, mesh, name), coordinates(row.where, mesh, name)
    step = Step(op, dict(attrs), (Piece(given.layout),), row.layout, mesh)
    if op == "gather":
        need(len(here) == mesh[name], f"the ranks along {name} hold different values")
        need(there == (root,) or mesh[name] == 1, "the result is on the root alone")
        return collectives.all_gather(step).of([given.ref], terms)
    need(root in here, "the root holds another value")
    need(len(there) == mesh[name], "some ranks get nothing")
    return collectives.shard_slice(step).of([given.ref], terms)
