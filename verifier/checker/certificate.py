"""Which question a certificate answers, and its seal. `verifier/certify.py` writes certificates;
docs/certificate.md says what one holds.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from shardproof.verifier.checker.prepared import Prepared

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
