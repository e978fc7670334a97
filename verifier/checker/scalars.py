"""Certificates of element-wise proofs: what was compared, and digests of the forms it came to.

A replay does the whole comparison anew and trusts nothing in the document: the digests only show
that it is about these programs and came to these forms. The comparison is one engine for prover and
checker. Where both programs are rational functions, prime fields are asked too (`entries.py`).
"""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from shardproof.verifier.checker.certificate import (
    ELEMENTWISE,
    VERSION,
    Prepared,
    header,
    seal,
    sealed,
)
from shardproof.verifier.checker.entries import ReplayError, in_fields
from shardproof.verifier.checker.replay import Accepted, Rejected, Result
from shardproof.verifier.domains.algebra import Budget
from shardproof.verifier.domains.base import Array
from shardproof.verifier.kernel.contract import ContractError
from shardproof.verifier.provers.scalars.answers import Decision, Equal
from shardproof.verifier.provers.scalars.deciding import decide

KIND = ELEMENTWISE
ENGINE = "scalars, at these extents"
"""What an element-wise proof rests on."""


def certify(
    given: Prepared,
    indices: Mapping[str, Array] | None = None,
    *,
    budget: Budget | None = None,
    masks: bool = False,
) -> tuple[Decision, dict[str, Any] | None]:
    """A decision, with its certificate where it is `Equal`.

    Raises:
        ContractError: a contract that does not fit the programs.
    """
    p = given.problem
    found = decide(p.sequential, p.distributed, p.contract, indices, budget=budget, masks=masks)
    return found, document(given, found, indices or {}) if isinstance(found, Equal) else None


def document(given: Prepared, decision: Equal, indices: Mapping[str, Array]) -> dict[str, Any]:
    """The certificate of a decision."""
    body: dict[str, Any] = {
        "version": VERSION,
        "kind": KIND,
        "engine": ENGINE,
        **header(given),
        "extents": {
            i.name: [i.type.dtype, list(i.type.shape)] for i in given.problem.sequential.inputs
        },
        "indices": {name: np.asarray(a).tolist() for name, a in sorted(indices.items())},
        "cases": decision.cases,
        "scope": list(decision.scope),
        "assumptions": list(decision.assumptions),
        "outputs": dict(sorted(decision.forms.items())),
    }
    return sealed(body)


def replay(
    certificate: Mapping[str, Any],
    given: Prepared,
    evaluated: Decision | None = None,
    *,
    budget: Budget | None = None,
) -> Equal:
    """Compare again, and hold every entry of the certificate but `order` against what is found.

    `evaluated` is what the checker found of these programs just now.

    Raises:
        ReplayError: an entry that is missing, unknown or another; or programs not found equal.
    """
    if certificate.get("kind") != KIND or certificate.get("version") != VERSION:
        raise ReplayError(f"expected a certificate of kind {KIND}, version {VERSION}")
    named = certificate.get("indices")
    if not isinstance(named, dict):
        raise ReplayError("indices: expected the values of integer inputs by name")
    indices = {str(k): np.asarray(v) for k, v in cast(dict[str, Any], named).items()}
    try:
        masks = bool(certificate.get("assumptions"))
        decision = evaluated or certify(given, indices, budget=budget, masks=masks)[0]
    except (ContractError, ValueError, TypeError) as error:
        raise ReplayError(f"the comparison cannot be made: {error}") from error
    if not isinstance(decision, Equal):
        raise ReplayError(f"the programs are not found equal: {decision}")
    expected = document(given, decision, indices)
    expected |= {"order": certificate.get("order"), "seal": seal(certificate)}
    for key in sorted({*expected, *certificate}):
        if key not in expected or certificate.get(key) != expected[key]:
            want = expected.get(key, "no such entry")
            raise ReplayError(f"{key}: expected {want}, got {certificate.get(key)}")
    return decision


def again(
    certificate: Mapping[str, Any],
    given: Prepared,
    evaluated: Decision | None,
    assumed: tuple[str, ...],
    rests: tuple[str, ...],
) -> Result:
    """An element-wise proof has no steps: the comparison is made anew, for all integer inputs."""
    if certificate.get("indices") != {}:
        return Rejected("it is about some values of the integer inputs only", "indices")
    try:
        found = replay(certificate, given, evaluated)
        engine = ENGINE + in_fields(given)
    except ReplayError as error:
        return Rejected(str(error), "the comparison")
    assumed = (*assumed, *found.assumptions)
    return Accepted(len(found.forms), found.scope, assumed, engine=engine, rests=rests)
