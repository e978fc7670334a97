"""Certificates: the facts a proof rests on, one derivation each, for the checker to replay.

JSON-able. `claims` lists for each value of the distributed program its facts: the exact factor,
the value of the one-device program it is a multiple of (or a term of its own), the layout, and
which facts of the operands it came from. Bodies of repeated blocks have claims of their own.
"""

from __future__ import annotations

from typing import Any

from verifier.contract import Contract, layout_to_json
from verifier.ir.program import Program
from verifier.relate import Related, Sequential

VERSION = 1


def certificate(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    one: Sequential,
    related: Related,
) -> dict[str, Any]:
    """The certificate of a proof."""
    return {
        "version": VERSION,
        "sequential": sequential.name,
        "distributed": distributed.name,
        "mesh": [list(d) for d in distributed.mesh.dims],
        "contract": contract.to_json(),
        "claims": _claims(distributed, one, related),
    }


def _claims(program: Program, one: Sequential, related: Related) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name in program.types:
        rows: list[Any] = []
        for fact in related.facts.get(name, []):
            term = one.known.get(fact.ref.id)
            rows.append(
                {
                    "factor": str(fact.ref.coef),
                    "of": term,
                    "layout": layout_to_json(fact.layout),
                    "from": list(fact.premises),
                    "rule": fact.rule,
                }
            )
        out[name] = rows
    bodies: dict[str, Any] = {}
    for node in program.nodes:
        found = related.bodies.get(node.outputs[0])
        if node.body is not None and found is not None:
            scan, inner = found
            claims = _claims(node.body, scan.inner, inner)
            bodies[node.outputs[0]] = {"block": scan.node.outputs[0], **claims}
    return {"values": out, "bodies": bodies}
