"""A proof, what it is about, and the pass that the checker alone has for making one."""

from dataclasses import dataclass, field
from typing import Any

from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import NOWHERE, Source

SCOPE = (
    "equality over the reals, for all inputs and parameters on which the outputs of one device are "
    "defined; of gradients, where these are defined too"
)
"""Of which inputs a proof speaks."""
MASKED_SCOPE = SCOPE.replace(
    "for all inputs and parameters on which",
    "for inputs and parameters so small that every number beside a mask is below 10^29, on which",
)
"""Of which inputs a proof speaks that takes constants of -10^29 and below for minus infinity."""
NAMED = 6
"""Inputs whose extents a scope names; the programs hold them all."""


@dataclass(frozen=True)
class Relation:
    """How one value of the distributed program relates to the one-device program."""

    value: str
    op: str
    found: tuple[str, ...]
    """For example `%h as [2@tp, 4]`: which value it is a piece of, and which piece. Empty where
    no relation was found."""
    source: Source = NOWHERE


class Acceptance:
    """What the checker passes to make a proof, and nothing else does."""


@dataclass(frozen=True)
class Proof:
    """Every output of the distributed program is the one-device output, laid out as contracted.

    The checker makes it of a certificate that it accepts. Raises TypeError elsewhere.
    """

    scope: tuple[str, ...]
    """For which sizes and which mesh."""
    assumptions: tuple[str, ...]
    certificate: dict[str, Any]
    stats: dict[str, float] = field(default_factory=dict[str, float])
    relations: tuple[Relation, ...] = ()
    checked: str = ""
    """What the checker said when it made this."""
    claims: int = 0
    engine: str = ""
    """What the checker has to believe beside its rules: empty where it replayed steps."""
    by: type[Acceptance] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.by is not Acceptance:
            raise TypeError("a proof is made by the checker alone, of a certificate it accepts")


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
