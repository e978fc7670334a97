"""A question for the verifier, as one value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.program.program import Program

SCOPE = (
    "equality over the reals, for all inputs and parameters on which the outputs of one device are "
    "defined; of gradients, where these are defined too"
)
"""Of which inputs a proof speaks."""
NAMED = 6
"""Inputs whose extents a scope names; the programs hold them all."""


@dataclass(frozen=True)
class Problem:
    """Whether `distributed` computes `sequential`, laid out as `contract` says."""

    sequential: Program
    distributed: Program
    contract: Contract
    consts: Mapping[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    """Values of opaque constants, used when a program is run on numbers."""


def scope_of(sequential: Program, distributed: Program) -> tuple[str, ...]:
    """What a proof by relations is about: the mesh, the extents of the inputs, and the inputs that
    equality holds for."""
    sizes = [f"{i.path} {i.type}" for i in sequential.inputs if i.role == "input"]
    more = [f"and {len(sizes) - NAMED} more"] if len(sizes) > NAMED else []
    return (
        f"mesh {distributed.mesh or 'of one device'}",
        f"at these input shapes: {', '.join([*sizes[:NAMED], *more])}",
        SCOPE,
    )
