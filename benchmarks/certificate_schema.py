"""Builds the JSON schema of certificates; `schema.json` is its published copy.

`python -m benchmarks.certificate_schema` writes the copy anew; `docs/certificate.md` says what it
means.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.program_schema import COUNT, INT, RATIONAL, TEXT, list_of, object_of
from shardproof.verifier import checker
from shardproof.verifier.checker.certificate import ELEMENTWISE, VERSION
from shardproof.verifier.checker.identities import ENGINE as POLYNOMIALS
from shardproof.verifier.domains.axioms import DECIDED, ROOTS
from shardproof.verifier.kernel.layout import FOLDS

PUBLISHED = Path(checker.__file__).with_name("schema.json")

_DIGEST = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_NULL = {"type": "null"}


def _named(values: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {}, "additionalProperties": values}


def _tuple(*items: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "array",
        "prefixItems": [*items],
        "minItems": len(items),
        "maxItems": len(items),
    }


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def schema() -> dict[str, Any]:
    """JSON schema (2020-12) of a certificate."""
    claims = {"values": _named(list_of(_ref("claim"))), "bodies": _named(_ref("body"))}
    header = {
        "version": {"const": VERSION},
        "sequential": _ref("program"),
        "distributed": _ref("program"),
        "mesh": list_of(_tuple(TEXT, COUNT)),
        "contract": _ref("contract"),
        "order": list_of(object_of({"numbers": _ref("packed"), "paths": _ref("packed")})),
        "seal": _DIGEST,
    }
    by_relations = object_of(
        {
            **header,
            "layouts": list_of(_ref("layout")),
            "ranks": list_of(_ref("where")),
            "blocks": list_of(object_of(claims)),
            "claims": object_of(claims),
            "outputs": _named(COUNT),
        },
        {
            "peels": list_of(_tuple(TEXT, list_of(_tuple(COUNT, COUNT)))),
            "opened": _DIGEST,
        },
    )
    compared = {
        **header,
        "kind": {"const": ELEMENTWISE},
        "extents": _named(_tuple(TEXT, list_of(COUNT))),
        "indices": object_of({}),
        "cases": COUNT,
        "scope": list_of(TEXT),
    }
    by_polynomials = object_of(
        {
            **compared,
            "engine": {"const": POLYNOMIALS},
            "assumptions": list_of(TEXT),
            "outputs": _named(COUNT),
            "identities": list_of(_ref("identity")),
        }
    )
    exact = {"type": "string", "pattern": "^-?[0-9]+(/[1-9][0-9]*)?$"}
    polynomial = list_of(_tuple(exact, list_of(_tuple(COUNT, COUNT))))
    identity = {
        "atoms": list_of(_tuple(TEXT, list_of(polynomial))),
        "difference": polynomial,
        "steps": list_of(_tuple({"enum": sorted({*ROOTS, *DECIDED})}, COUNT)),
    }
    layout = {
        "dims": list_of(list_of(_tuple(COUNT, {"anyOf": [TEXT, _NULL]}))),
        "partial": list_of(_tuple(TEXT, {"enum": list(FOLDS)})),
    }
    contract = {
        "inputs": _named(_ref("layout")),
        "outputs": _named(_ref("layout")),
        "balanced": list_of(_tuple(TEXT, TEXT, TEXT)),
        "assumptions": list_of(TEXT),
    }
    places = {"held": _named(_ref("where")), "wanted": _named(_ref("where"))}
    claim = {
        "of": {"anyOf": [TEXT, _NULL]},
        "factor": {"anyOf": [RATIONAL, _NULL]},
        "layout": COUNT,
        "from": list_of({"type": "integer", "minimum": -1}),
        "rule": TEXT,
    }
    repeat = _tuple({"type": "integer", "minimum": 1}, COUNT)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "shardproof certificate",
        "anyOf": [by_relations, by_polynomials],
        "$defs": {
            "program": object_of({"name": TEXT, "digest": _DIGEST}),
            "layout": object_of(layout),
            "where": list_of(_tuple(TEXT, {**list_of(COUNT), "minItems": 1})),
            "contract": object_of(contract, places),
            "claim": object_of(claim, {"on": COUNT, "cut": list_of(COUNT)}),
            "body": object_of({"block": TEXT, "claims": COUNT}),
            "identity": object_of(identity),
            "packed": list_of({"anyOf": [INT, repeat]}),
        },
    }


def published() -> str:
    """The text of `schema.json`."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    PUBLISHED.write_text(published(), encoding="utf-8")
