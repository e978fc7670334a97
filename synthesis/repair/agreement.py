"""Whether edited programs agree with one device on floats, on inputs that showed a difference."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from time import process_time

import numpy as np

from shardproof.synthesis.repair.attempts import UNFIT, first
from shardproof.synthesis.repair.edits import Edit, apply
from shardproof.synthesis.repair.near import averaged, skipped
from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.program.program import Program, leading_to
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.compare import compare
from shardproof.verifier.refute.evaluate import Ranks, Values, simulate
from shardproof.verifier.refute.premises import Premises
from shardproof.verifier.refute.roots import under_roots
from shardproof.verifier.refute.sampling import rooted, sample, sized
from shardproof.verifier.refute.scatter import piece
from shardproof.verifier.refute.search import DRAWS, too_large

NEAR = 1e-9
"""Relative difference of numbers that are taken for one."""
SECONDS = 2.0
"""Of the processor, that may be spent on lines of one program."""


@dataclass(frozen=True)
class Differing:
    """A run of both programs that shows a difference."""

    whole: Values
    ranks: Ranks
    outputs: tuple[str, ...]
    """Keys of those that are wrong."""
    inputs: Mapping[str, Array]


def differing(problem: Problem) -> Differing | None:
    """Every value of both programs on plain random inputs that show the difference; none where
    the programs are too large to be run."""
    if too_large(problem.sequential, problem.distributed):
        return None
    sequential, consts = problem.sequential, problem.consts
    rng = np.random.default_rng(0)
    seen: list[Ranks] = []

    def run(
        program: Program,
        ranks: Sequence[Mapping[str, Array]],
        domain: Domain,
        *,
        wanted: Collection[str],
    ) -> Ranks:
        seen.append(simulate(program, ranks, domain))
        return seen[-1]

    premises = Premises(sequential, problem.contract, problem.distributed.mesh, consts)
    plain = (
        sized(sample(sequential, Floats(), rng, consts, special), size, positive, consts)
        for size, special, positive in DRAWS
    )
    first = rooted(sequential, consts, 0) if under_roots(sequential) else ()
    for drawn in chain(first, plain):
        inputs = premises.met(drawn, Floats(), rng)
        if inputs is None:
            continue
        seen.clear()
        with np.errstate(all="ignore"):
            difference = compare(problem, inputs, run)
        if difference is not None:
            (whole,), ranks = seen[:2]
            return Differing(whole, ranks, difference.outputs, inputs)
    return None


def spared(problem: Problem, found: Differing) -> tuple[int, ...]:
    """The ranks whose pieces of the wrong outputs are right; of gradients, where only these are
    wrong."""
    program, contract = problem.distributed, problem.contract
    one = {output_key(o): found.whole[o.value] for o in problem.sequential.outputs}
    held = {output_key(o): o.value for o in program.outputs}

    def right(rank: int, at: Mapping[str, int], key: str) -> bool:
        layout, have = contract.outputs[key], found.ranks[rank].get(held[key])
        if have is None or layout.partial or have.shape != layout.local_shape:
            return False
        return np.allclose(have, piece(one[key], layout, at), NEAR, NEAR)

    ends = [k for k in found.outputs if not k.startswith("grad:")] or found.outputs
    every = enumerate(program.mesh.coords())
    return tuple(r for r, at in every if all(right(r, at, key) for key in ends))


def agreement(problem: Problem, inputs: Mapping[str, Array]) -> Callable[[Program], bool]:
    """Says whether all outputs of a program are right, on these inputs and on others; one that
    cannot run is not."""
    rng = np.random.default_rng(1)
    others = sample(problem.sequential, Floats(), rng, {}, True)
    premises = Premises(problem.sequential, problem.contract, problem.distributed.mesh)
    again = premises.met({n: others.get(n, a) for n, a in inputs.items()}, Floats(), rng) or inputs

    def agrees(edited: Program) -> bool:
        tried = replace(problem, distributed=edited)
        try:
            with np.errstate(all="ignore"):
                return compare(tried, inputs) is None and compare(tried, again) is None
        except UNFIT:
            return False

    return agrees


def needless(problem: Problem, found: Differing, dims: Collection[str] = ()) -> Edit | None:
    """The first line of source without which all numbers are right; else the first whose
    reductions over these mesh dims are right as means, or as sums."""
    program, end = problem.distributed, process_time() + SECONDS
    agrees = agreement(problem, found.inputs)
    wrong = {o.value for o in program.outputs if output_key(o) in found.outputs}
    among = leading_to(wrong, program.nodes)
    return first(
        chain(skipped(program, among), averaged(among, dims)),
        lambda edit: edit if agrees(apply(program, edit)) else None,
        lambda: process_time() > end,
    )
