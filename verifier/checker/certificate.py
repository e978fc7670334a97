"""Certificates: which question one answers, and its seal; `verifier/certify.py` writes them.

JSON-able. `claims` lists for each value of the distributed program its facts: the value of the
one-device program and the exact factor it is a multiple by (neither for a term of its own), the
layout, and which facts of the operands it came from.
What repeats is said once and named by its place: layouts, ranks, and in `blocks` the claims inside
repeated blocks. `laws` says of outputs whose term is another
one than asked for by which laws of tensor algebra, step by step, it is that one. `opened` says that
the claims are about the one-device program with its cross entropies opened up (`entropy.py`).
`order` shows that the events of the ranks are in order (`verifier/order/witness.py`); it is empty
where they run one after another. `seal` is a digest of the rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from verifier.checker.prepared import Prepared

VERSION = 3
ELEMENTWISE = "elementwise"
"""The kind of certificate that has no claims: the comparison is made anew."""


def header(given: Prepared) -> dict[str, Any]:
    """Which question a certificate answers."""
    p, (sequential, distributed) = given.problem, given.digests
    return {
        "sequential": {"name": p.sequential.name, "digest": sequential},
        "distributed": {"name": p.distributed.name, "digest": distributed},
        "mesh": [list(d) for d in p.distributed.mesh.dims],
        "contract": p.contract.to_json(),
    }


def sealed(document: Mapping[str, Any], order: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The certificate with its seal, and with what shows that events are in order."""
    body = {**{k: v for k, v in document.items() if k != "seal"}, "order": list(order)}
    return {**body, "seal": seal(body)}


def seal(document: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of a certificate but for its seal: it shows damage, the checker shows truth."""
    body = {k: v for k, v in document.items() if k != "seal"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
