"""Builds the JSON schema of programs; `schema.json` is its published copy.

`python -m benchmarks.program_schema` writes the copy anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from verifier.kernel.program.attrs import ACTIVATIONS, FORMATS, KINDS
from verifier.kernel.program.program import INPUT_ROLES, OUTPUT_ROLES
from verifier.kernel.program.types import DTYPES
from verifier.text import jsonio
from verifier.text.jsonio import FORMAT

PUBLISHED = Path(jsonio.__file__).with_name("schema.json")

_INT = {"type": "integer"}
_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_RATIONAL = {"type": "string", "pattern": "^-?[0-9]+/[1-9][0-9]*$"}
_TERM = {"type": "array", "prefixItems": [_TEXT, _INT], "minItems": 2, "maxItems": 2}


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _kinds() -> dict[str, Any]:
    rational = _object({"rational": _RATIONAL})
    affine = _object({"affine": _INT, "terms": _list(_TERM)})
    return {
        "count": _COUNT,
        "counts": _list(_COUNT),
        "flag": {"type": "boolean"},
        "rational": {"anyOf": [_INT, rational]},
        "offset": {"anyOf": [_INT, affine]},
        "dtype": {"enum": list(DTYPES)},
        "fold": {"enum": ["sum", "avg", "max", "min"]},
        "integer": _INT,
        "format": {"enum": list(FORMATS)},
        "activation": {"enum": list(ACTIVATIONS)},
        "mesh_dims": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]},
    }


def schema() -> dict[str, Any]:
    """JSON schema (2020-12) of a program, with one rule per op."""
    from verifier.kernel.ops import REGISTRY, REQUIRED

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
    result = _object({"name": _TEXT, "type": {"$ref": "#/$defs/type"}})
    node = _object(
        {
            "op": {"enum": sorted(REGISTRY)},
            "inputs": _list(_TEXT),
            "outputs": _list(result),
            "attrs": {"type": "object"},
        },
        {
            "source": {"$ref": "#/$defs/source"},
            "body": {"$ref": "#"},
            "on": {"$ref": "#/$defs/where"},
            "timing": _object({"async": {"type": "boolean"}, "stream": _TEXT, "buffer": _TEXT}),
        },
    )
    program = _object(
        {
            "format": {"const": FORMAT},
            "name": _TEXT,
            "mesh": _list({**_TERM, "prefixItems": [_TEXT, {"type": "integer", "minimum": 1}]}),
            "inputs": _list(
                _object(
                    {
                        "name": _TEXT,
                        "type": {"$ref": "#/$defs/type"},
                        "role": {"enum": list(INPUT_ROLES)},
                        "path": _TEXT,
                    },
                    {"on": {"$ref": "#/$defs/where"}},
                )
            ),
            "nodes": _list({"$ref": "#/$defs/node"}),
            "outputs": _list(
                _object({"value": _TEXT, "role": {"enum": list(OUTPUT_ROLES)}, "path": _TEXT})
            ),
        }
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "shardproof program",
        **program,
        "$defs": {
            **_kinds(),
            "type": _object({"dtype": {"enum": list(DTYPES)}, "shape": _list(_COUNT)}),
            "source": _object({"file": _TEXT, "line": _COUNT, "module": _TEXT, "text": _TEXT}),
            "where": _list(
                {
                    "type": "array",
                    "prefixItems": [_TEXT, {**_list(_COUNT), "minItems": 1}],
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
