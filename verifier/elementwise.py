"""The third decider: every rank run on terms, every element of every output compared by Z3.

It knows no placement rule. It proves the extents at hand only and is slow beyond small ones, so
it stands beside the relations, on the programs where the deciders are held against each other.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from verifier import smt
from verifier.contract import Contract, output_key
from verifier.domains.base import Array
from verifier.domains.symbolic import Symbolic, equations
from verifier.evaluate import evaluate, simulate
from verifier.ir.program import Program
from verifier.scatter import copies, gather, scatter
from verifier.smt import Answer


def elementwise(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    indices: dict[str, Array] | None = None,
    solver: smt.Solver | None = None,
) -> dict[str, Answer]:
    """For each output key: whether it is equal for all float inputs, functions uninterpreted.

    `Invalid` only says that congruence and arithmetic do not give the equality.

    Args:
        indices: values of the integer inputs, which stay concrete.
    """
    domain, rng, mesh = Symbolic(), np.random.default_rng(0), distributed.mesh
    given = indices or {}
    wholes = {
        i.name: given[i.name] if i.name in given else domain.symbols(i.name, i.type.shape)
        for i in sequential.inputs
    }
    pieces = {
        i.name: scatter(wholes[i.name], contract.inputs[i.name], mesh, domain, rng)
        for i in distributed.inputs
    }
    one = evaluate(sequential, wholes, domain)
    ranks = simulate(
        distributed, [{n: p[r] for n, p in pieces.items()} for r in range(mesh.size)], domain
    )
    solver = solver or smt.Solver()
    values = {output_key(o): one[o.value] for o in sequential.outputs}
    answers: dict[str, Answer] = {}
    for out in distributed.outputs:
        key = output_key(out)
        layout, parts = contract.outputs[key], [local[out.value] for local in ranks]
        pairs = [(parts[r], parts[o]) for r, o in copies(layout, mesh)]
        pairs.append((gather(parts, layout, mesh, domain), values[key]))
        answers[key] = _all(solver.prove(goal) for a, b in pairs for goal in equations(a, b))
    return answers


def _all(answers: Iterator[Answer]) -> Answer:
    return next((a for a in answers if not isinstance(a, smt.Valid)), smt.Valid())
