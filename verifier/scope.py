"""What a proof by relations is about, worked out from the two programs."""

from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import SCOPE

NAMED = 6
"""Inputs whose extents a scope names; the programs hold them all."""


def scope_of(sequential: Program, distributed: Program) -> tuple[str, ...]:
    """The mesh, the extents of the inputs, and the inputs that equality holds for."""
    sizes = [f"{i.path} {i.type}" for i in sequential.inputs if i.role == "input"]
    more = [f"and {len(sizes) - NAMED} more"] if len(sizes) > NAMED else []
    return (
        f"mesh {distributed.mesh or 'of one device'}",
        f"at these input shapes: {', '.join([*sizes[:NAMED], *more])}",
        SCOPE,
    )
