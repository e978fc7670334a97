"""Certificates of element-wise proofs: what was compared, and digests of the forms it came to.

A replay does the whole comparison anew and trusts nothing in the document: the digests only show
that it is about these programs and came to these forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from verifier.checker.certificate import ELEMENTWISE, VERSION, seal, sealed
from verifier.domains.algebra import Budget
from verifier.domains.base import Array
from verifier.kernel.contract import ContractError
from verifier.problem import Problem
from verifier.provers.scalars import Decision, Equal, decide
from verifier.text.jsonio import digest

KIND = ELEMENTWISE


class ReplayError(ValueError):
    """A certificate that does not stand: what, expected, got."""


def certify(
    problem: Problem,
    indices: Mapping[str, Array] | None = None,
    *,
    budget: Budget | None = None,
    masks: bool = False,
) -> tuple[Decision, dict[str, Any] | None]:
    """A decision, with its certificate where it is `Equal`.

    Raises:
        ContractError: a contract that does not fit the programs.
    """
    decision = decide(
        problem.sequential,
        problem.distributed,
        problem.contract,
        indices,
        budget=budget,
        masks=masks,
    )
    if not isinstance(decision, Equal):
        return decision, None
    return decision, document(problem, decision, indices or {})


def document(problem: Problem, decision: Equal, indices: Mapping[str, Array]) -> dict[str, Any]:
    """The certificate of a decision."""
    sequential, distributed = problem.sequential, problem.distributed
    body: dict[str, Any] = {
        "version": VERSION,
        "kind": KIND,
        "sequential": {"name": sequential.name, "digest": digest(sequential)},
        "distributed": {"name": distributed.name, "digest": digest(distributed)},
        "mesh": [list(d) for d in distributed.mesh.dims],
        "contract": problem.contract.to_json(),
        "extents": {i.name: [i.type.dtype, list(i.type.shape)] for i in sequential.inputs},
        "indices": {name: np.asarray(a).tolist() for name, a in sorted(indices.items())},
        "cases": decision.cases,
        "scope": list(decision.scope),
        "assumptions": list(decision.assumptions),
        "outputs": dict(sorted(decision.forms.items())),
    }
    return sealed(body)


def replay(
    certificate: Mapping[str, Any], problem: Problem, *, budget: Budget | None = None
) -> Equal:
    """Compare again, and hold every entry of the certificate but `order` against what is found.

    Raises:
        ReplayError: an entry that is missing, unknown or another; or programs not found equal.
    """
    if certificate.get("kind") != KIND or certificate.get("version") != VERSION:
        raise ReplayError(f"expected a certificate of kind {KIND}, version {VERSION}")
    given = certificate.get("indices")
    if not isinstance(given, dict):
        raise ReplayError("indices: expected the values of integer inputs by name")
    indices = {str(k): np.asarray(v) for k, v in cast(dict[str, Any], given).items()}
    try:
        masks = bool(certificate.get("assumptions"))
        p = problem
        decision = decide(
            p.sequential, p.distributed, p.contract, indices, budget=budget, masks=masks
        )
    except (ContractError, ValueError, TypeError) as error:
        raise ReplayError(f"the comparison cannot be made: {error}") from error
    if not isinstance(decision, Equal):
        raise ReplayError(f"the programs are not found equal: {decision}")
    expected = document(problem, decision, indices)
    expected |= {"order": certificate.get("order"), "seal": seal(certificate)}
    for key in sorted({*expected, *certificate}):
        if key not in expected or certificate.get(key) != expected[key]:
            want = expected.get(key, "no such entry")
            raise ReplayError(f"{key}: expected {want}, got {certificate.get(key)}")
    return decision
