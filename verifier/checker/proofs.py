"""Makes proofs, of certificates that the checker accepts: nothing else in the project does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shardproof.verifier.checker.certificate import Prepared, sealed
from shardproof.verifier.checker.replay import Rejected, Result, check
from shardproof.verifier.proof import Acceptance, Proof

if TYPE_CHECKING:
    from shardproof.verifier.provers.scalars.answers import Decision
    from shardproof.verifier.smt.answers import Answers


def prove(
    certificate: Mapping[str, Any], given: Prepared, discharge: Answers | None = None
) -> Proof | Rejected:
    """What a certificate shows, in the words of the checker, where it accepts it."""
    return _made(certificate, check(certificate, given, discharge))


def prove_by_elements(
    given: Prepared, order: Sequence[Mapping[str, Any]], masks: bool, timed: bool = True
) -> Proof | Rejected | Decision:
    """Compare element by element, and check all else that such a proof needs.

    `order` is what shows that events are in order. Where that is not known, and so not `timed`,
    the decision alone is returned.
    """
    from shardproof.verifier.checker import identities
    from shardproof.verifier.provers.scalars.closing import steps

    if timed and not masks:
        said = identities.certify(
            given, lambda gap, _: steps(gap.bank, gap.terms, gap.allowed, gap.atoms)
        )
        if said is not None:
            certificate = sealed(said, order)
            return _made(certificate, check(certificate, given))
    from shardproof.verifier.checker.scalars import certify

    found, document = certify(given, masks=masks)
    if document is None or not timed:
        return found
    certificate = sealed(document, order)
    return _made(certificate, check(certificate, given, evaluated=found))


def _made(certificate: Mapping[str, Any], found: Result) -> Proof | Rejected:
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
