"""The training step on every rank of a mesh, and the contract that ties it to one device."""

from dataclasses import dataclass

from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.program.program import Program


class TrainingError(ValueError):
    """Sizes or degrees that do not fit: what, expected, got, what to try."""


@dataclass(frozen=True)
class Step:
    """A training step: one device, every rank, and how they belong together."""

    name: str
    sequential: Program
    distributed: Program
    contract: Contract

    def __str__(self) -> str:
        return self.name
