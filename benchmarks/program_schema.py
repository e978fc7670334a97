"""Builds the JSON schema of programs; `schema.json` is its published copy.

`python -m benchmarks.program_schema` writes the copy anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shardproof.verifier.kernel.program.program import INPUT_ROLES, OUTPUT_ROLES
from shardproof.verifier.kernel.program.types import ACTIVATIONS, DTYPES, FORMATS, KINDS
from shardproof.verifier.text import jsonio
from shardproof.verifier.text.digest import FORMAT

PUBLISHED = Path(jsonio.__file__).with_name("schema.json")

INT = {"type": "integer"}
TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}
RATIONAL = {"type": "string", "pattern": "^-?[0-9]+/[1-9][0-9]*$"}
_TERM = {"type": "array", "prefixItems": [TEXT, INT], "minItems": 2, "maxItems": 2}


def object_of(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def list_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _kinds() -> dict[str, Any]:
    rational = object_of({"rational": RATIONAL})
    affine = object_of({"affine": INT, "terms": list_of(_TERM)})
    return {
        "count": COUNT,
        "counts": list_of(COUNT),
        "flag": {"type": "boolean"},
        "rational": {"anyOf": [INT, rational]},
        "offset": {"anyOf": [INT, affine]},
        "dtype": {"enum": list(DTYPES)},
        "fold": {"enum": ["sum", "avg", "max", "min"]},
        "integer": INT,
        "format": {"enum": list(FORMATS)},
        "activation": {"enum": list(ACTIVATIONS)},
        "mesh_dims": {"anyOf": [TEXT, {"type": "array", "items": TEXT, "minItems": 1}]},
    }


def schema() -> dict[str, Any]:
    """JSON schema (2020-12) of a program, with one rule per op."""
    from shardproof.verifier.kernel.ops import REQUIRED
    from shardproof.verifier.ops import REGISTRY

    rules: list[dict[str, Any]] = []
    for name, op in sorted(REGISTRY.items()):
        attrs = {key: {"$ref": f"#/$defs/{KINDS[key].name}"} for key in op.attrs}
        needed = [key for key, default in op.attrs.items() if default is REQUIRED]
        rule: dict[str, Any] = {
            "type": "object",
            "properties": attrs,
            "additionalProperties": False,
        }
        if needed:
            rule["required"] = needed
        rules.append({"properties": {"op": {"const": name}, "attrs": rule}})
    result = object_of({"name": TEXT, "type": {"$ref": "#/$defs/type"}})
    node = object_of(
        {
            "op": {"enum": sorted(REGISTRY)},
            "inputs": list_of(TEXT),
            "outputs": list_of(result),
            "attrs": {"type": "object"},
        },
        {
            "source": {"$ref": "#/$defs/source"},
            "body": {"$ref": "#"},
            "on": {"$ref": "#/$defs/where"},
            "timing": object_of({"async": {"type": "boolean"}, "stream": TEXT, "buffer": TEXT}),
        },
    )
    program = object_of(
        {
            "format": {"const": FORMAT},
            "name": TEXT,
            "mesh": list_of({**_TERM, "prefixItems": [TEXT, {"type": "integer", "minimum": 1}]}),
            "inputs": list_of(
                object_of(
                    {
                        "name": TEXT,
                        "type": {"$ref": "#/$defs/type"},
                        "role": {"enum": list(INPUT_ROLES)},
                        "path": TEXT,
                    },
                    {"on": {"$ref": "#/$defs/where"}},
                )
            ),
            "nodes": list_of({"$ref": "#/$defs/node"}),
            "outputs": list_of(
                object_of({"value": TEXT, "role": {"enum": list(OUTPUT_ROLES)}, "path": TEXT})
            ),
        }
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "shardproof program",
        **program,
        "$defs": {
            **_kinds(),
            "type": object_of({"dtype": {"enum": list(DTYPES)}, "shape": list_of(COUNT)}),
            "source": object_of(
                {"file": TEXT, "line": COUNT, "module": TEXT, "text": TEXT},
                {"calls": list_of({**_TERM, "prefixItems": [TEXT, COUNT]})},
            ),
            "where": list_of(
                {
                    "type": "array",
                    "prefixItems": [TEXT, {**list_of(COUNT), "minItems": 1}],
                    "minItems": 2,
                    "maxItems": 2,
                }
            ),
            "node": {**node, "anyOf": rules},
        },
    }


def published() -> str:
    """The text of `schema.json`."""
    return json.dumps(schema(), indent=2) + "\n"


if __name__ == "__main__":
    PUBLISHED.write_text(published(), encoding="utf-8")
