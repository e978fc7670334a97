"""Programs that are small enough are run on numbers, whatever a certificate says of them."""

import math
from dataclasses import replace

import numpy as np

from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.compare import compare
from shardproof.verifier.refute.premises import Premises
from shardproof.verifier.refute.sampling import sample, sized
from shardproof.verifier.refute.scatter import gather, scatter
from shardproof.verifier.refute.search import elements_of, refute

SMALL = 200_000
"""Numbers that all ranks hold in programs that are run."""
ALONE = 6
"""Inputs each of which is below 0 somewhere where the others are not."""


def differ(problem: Problem) -> str:
    """An output of which one device and the ranks have other numbers, or an input whose pieces are
    not those of one tensor; nothing where none is found, or the programs are too large."""
    sequential, distributed, contract = problem.sequential, problem.distributed, problem.contract
    if elements_of(sequential, distributed) > SMALL:
        return ""
    found = refute(replace(problem, consts={}), simpler=False)
    mesh, rng, floats = distributed.mesh, np.random.default_rng(3), Floats()
    premises, every = Premises(sequential, contract, mesh), {i.name for i in sequential.inputs}
    for above in (set[str](), every, *(every - {name} for name in sorted(every)[:ALONE])):
        drawn = sized(sample(sequential, floats, rng, {}), 1.0, above, {})
        inputs = premises.met(drawn, floats, rng) if found is None else None
        if inputs is not None:
            with np.errstate(all="ignore"):
                found = compare(problem, inputs)
    for name, layout in contract.inputs.items():
        whole = np.arange(math.prod(layout.global_shape)).reshape(layout.global_shape)
        pieces = scatter(whole, layout, mesh, floats, rng)
        if not np.array_equal(gather(pieces, layout, mesh, floats), whole):
            return f"input {name}"
    return "" if found is None else f"output {found.witness.output}"
