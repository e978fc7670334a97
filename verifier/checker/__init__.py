"""A second, smaller opinion on proofs: replays a certificate claim by claim.

How provers pass placements through ops (`provers/placement`) it does not know: each claim is
checked against rules written here anew. It searches for nothing: terms that are written otherwise
are compared in index notation (`provers/canonical`), and entries as polynomials, by the steps of
the certificate (`identities.py`). Shared with the verifier are the IR with its type rules, the
inlining of composites, layouts as data, the normal form of terms, the contract's own check, and
what the events of a program are and which of them conflict (`order.py`). What most certificates do
not need is loaded where one asks for it (`PARTS` in `replay.py`), and what is accepted says so.

Its tables of ops (`LINEAR`, `MONOTONE`, `RISING`, `FOLDS` in `rules.py`) say again what the
declarations say, on purpose: a wrong trait is caught where the other table has it right. An op that
has no rule here is held to that of its kind, which asks for whole lines and nothing pending. One
field of a declaration is written for this room, `checked`, and no rule of placement reads it. Terms
and the signs in them are shared, and read traits: `tests/laws/test_traits.py` tries these.
"""

from shardproof.verifier.checker.certificate import Prepared as Prepared, prepare as prepare
from shardproof.verifier.checker.proofs import prove as prove
from shardproof.verifier.checker.replay import (
    Accepted as Accepted,
    Rejected as Rejected,
    Result as Result,
    check as check,
)
