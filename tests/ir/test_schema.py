"""The published schema is the generated one, and documents agree with it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from benchmarks.program_schema import PUBLISHED, published, schema
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import KINDS
from shardproof.verifier.ops import REGISTRY
from shardproof.verifier.text.digest import to_json
from tests.ir.strategies import programs

SCHEMA = schema()
PYTHON: dict[str, type] = {"object": dict, "array": list, "string": str, "integer": int}
PYTHON |= {"boolean": bool, "null": type(None)}


def errors(
    value: Any, rule: dict[str, Any], path: str = "$", root: dict[str, Any] = SCHEMA
) -> list[str]:
    """What `value` breaks of `rule`, in keywords of JSON schema that ours uses."""
    if "$ref" in rule:
        target: Any = root
        for part in rule["$ref"].split("/")[1:]:
            target = target[part]
        return errors(value, target, path, root)
    found: list[str] = []
    if "const" in rule and value != rule["const"]:
        found.append(f"{path} is not {rule['const']!r}")
    if "enum" in rule and value not in rule["enum"]:
        found.append(f"{path} is none of {rule['enum']}")
    if "type" in rule:
        kind = PYTHON[rule["type"]]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            return [*found, f"{path} is no {rule['type']}"]
    if "pattern" in rule and not re.search(rule["pattern"], value):
        found.append(f"{path} does not match {rule['pattern']}")
    if "minimum" in rule and value < rule["minimum"]:
        found.append(f"{path} is below {rule['minimum']}")
    if isinstance(value, dict) and ("properties" in rule or "required" in rule):
        found += [f"{path} lacks {k}" for k in rule.get("required", ()) if k not in value]
        for key, item in value.items():
            if key in rule["properties"]:
                found += errors(item, rule["properties"][key], f"{path}.{key}", root)
            elif isinstance(rule.get("additionalProperties"), dict):
                found += errors(item, rule["additionalProperties"], f"{path}.{key}", root)
            elif rule.get("additionalProperties") is False:
                found.append(f"{path} has {key}")
    if isinstance(value, list):
        if not rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", len(value)):
            found.append(f"{path} has {len(value)} items")
        fixed = rule.get("prefixItems", [])
        for i, item in enumerate(value):
            child = fixed[i] if i < len(fixed) else rule.get("items", {})
            found += errors(item, child, f"{path}[{i}]", root)
    if "anyOf" in rule:
        tries = [errors(value, option, path, root) for option in rule["anyOf"]]
        if all(tries):
            found += min(tries, key=len)
    return found


def test_published_schema_is_current() -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == published(), (
        "run python -m benchmarks.program_schema"
    )


def test_every_attribute_has_a_kind() -> None:
    for op in REGISTRY.values():
        for name, default in op.attrs.items():
            assert name in KINDS, f"{op.name}: add {name} to verifier/kernel/program/types.py"
            assert repr(default) == "REQUIRED" or KINDS[name].holds(default)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs())
def test_written_programs_agree_with_the_schema(program: Program) -> None:
    assert errors(json.loads(json.dumps(to_json(program))), SCHEMA) == []


@pytest.mark.parametrize(
    ("key", "value"), [("mesh", [["tp", 0]]), ("format", "x"), ("nodes", {}), ("extra", 1)]
)
def test_schema_refuses(key: str, value: object) -> None:
    document = {"format": "shardproof.program/1", "name": "p", "mesh": [], "inputs": []}
    document |= {"nodes": [], "outputs": []}
    assert errors(document, SCHEMA) == []
    assert errors({**document, key: value}, SCHEMA)
