"""Makes proofs, of certificates that the checker accepts: nothing else in the project does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shardproof.verifier.checker.certificate import Prepared
from shardproof.verifier.checker.replay import Rejected, check
from shardproof.verifier.proof import Acceptance, Proof

if TYPE_CHECKING:
    from shardproof.verifier.smt.answers import Answers


def prove(
    certificate: Mapping[str, Any], given: Prepared, discharge: Answers | None = None
) -> Proof | Rejected:
    """What a certificate shows, in the words of the checker, where it accepts it."""
    found = check(certificate, given, discharge)
    if isinstance(found, Rejected):
        return found
    return Proof(
        found.scope,
        found.assumptions,
        dict(certificate),
        checked=str(found),
        claims=found.claims,
        engine=found.engine,
        by=Acceptance,
    )
