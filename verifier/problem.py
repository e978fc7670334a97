"""A question for the verifier, as one value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.program.program import Program


@dataclass(frozen=True)
class Problem:
    """Whether `distributed` computes `sequential`, laid out as `contract` says."""

    sequential: Program
    distributed: Program
    contract: Contract
    consts: Mapping[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    """Values of opaque constants, used when a program is run on numbers."""
