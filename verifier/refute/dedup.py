"""Runs programs on all ranks of a mesh, equal computations once.

Equal arrays are one array. An op on operands that it was run on before gives the result it gave
then, whichever rank, block or micro-batch that was. So what thousands of ranks do alike is done
once; the results are those of `evaluate.simulate` for itself.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.refute import evaluate
from shardproof.verifier.refute.evaluate import Ranks

BUDGET = 300_000
"""Unlike computations of one program in one run."""


class BudgetError(Exception):
    """More unlike computations than were allowed."""


class Arrays(evaluate.Work):
    """Arrays, and what each computation on them gave, in one run or in several.

    Args:
        domain: what the ops compute on.
        budget: how many unlike computations are done.
    """

    def __init__(self, domain: Domain, budget: int) -> None:
        super().__init__(domain)
        self.left = budget
        self.arrays: dict[Hashable, Array] = {}
        self.known: dict[Hashable, tuple[Any, object]] = {}
        """By key, with what the key names by its identity: here that stays alive."""

    def held(self, array: Array) -> Array:
        return self.arrays.setdefault((array.shape, array.dtype.str, array.tobytes()), array)

    def once(self, key: Hashable, make: Callable[[], Any], about: object = None) -> Any:
        """Raises BudgetError."""
        if key not in self.known:
            self.left -= 1
            if self.left < 0:
                raise BudgetError
            self.known[key] = make(), about
        return self.known[key][0]


def simulate(
    program: Program,
    ranks: Sequence[Mapping[str, Array]],
    known: Arrays,
    wanted: Collection[str] | None = None,
) -> Ranks:
    """The outputs of a program on all ranks of its mesh, by value.

    Args:
        known: what was computed before, in runs of programs on the same mesh.
        wanted: the values that are asked for, where not all outputs are.

    Raises:
        IRError: a node that some rank cannot run.
        BudgetError: more unlike computations than `known` has left.
    """
    ends = {o.value for o in program.outputs} if wanted is None else wanted
    return evaluate.simulate(program, ranks, wanted=ends, work=known)


def run_once(
    program: Program,
    ranks: Sequence[Mapping[str, Array]],
    domain: Domain,
    *,
    wanted: Collection[str],
) -> Ranks:
    """As `evaluate.simulate`.

    Raises:
        BudgetError: more unlike computations than `BUDGET`.
    """
    return simulate(program, ranks, Arrays(domain, BUDGET), wanted)
