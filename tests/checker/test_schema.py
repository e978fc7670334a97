"""The published schema of certificates is the generated one, and certificates agree with it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.certificate_schema import PUBLISHED, published, schema
from shardproof.verifier.verdict import Proof
from tests.checker.edits import NAMES, certified
from tests.ir.test_schema import errors
from tests.training.steps import judged, step_of

SCHEMA = schema()
PAGE = Path(__file__).parents[2] / "docs" / "certificate.md"
STEPS = ("repeated layers in stages", "pipeline 1f1b", "zero 3 in repeated micro-batches")


def test_published_schema_is_current() -> None:
    told = "run python -m benchmarks.certificate_schema"
    assert PUBLISHED.read_text(encoding="utf-8") == published(), told


def test_certificates_of_the_corpus_agree_with_the_schema() -> None:
    for name in NAMES:
        assert errors(certified(name)[1], SCHEMA, root=SCHEMA) == [], name


@pytest.mark.parametrize("name", STEPS)
def test_certificates_of_training_steps_agree_with_the_schema(name: str) -> None:
    proof = judged(step_of(name))
    assert isinstance(proof, Proof)
    document = json.loads(json.dumps(proof.certificate))
    assert errors(document, SCHEMA, root=SCHEMA) == []


@pytest.mark.parametrize(
    "change",
    [
        {"version": 1},
        {"seal": "x"},
        {"more": 1},
        {"outputs": {"output:y": -1}},
        {"claims": {"values": {"y": [{"of": "y"}]}, "bodies": {}}},
        {"claims": {"values": {}}},
        {"order": [{"numbers": [0, [1]], "paths": []}]},
        {"peels": [["h", [[0]]]]},
    ],
    ids=str,
)
def test_schema_refuses(change: dict[str, Any]) -> None:
    document = certified("mlp")[1]
    assert errors(document, SCHEMA, root=SCHEMA) == []
    assert errors({**document, **change}, SCHEMA, root=SCHEMA)


def test_example_of_the_page_is_of_the_certificate_it_names() -> None:
    (text,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    shown, document = json.loads(text), certified("MC-01")[1]
    values = shown.pop("claims")["values"]
    assert values.items() <= document["claims"]["values"].items()
    assert shown.items() <= document.items()


def test_page_names_every_entry() -> None:
    page = PAGE.read_text(encoding="utf-8")
    kinds = [*SCHEMA["anyOf"], SCHEMA["$defs"]["claim"], SCHEMA["$defs"]["body"]]
    for name in {name for kind in kinds for name in kind["properties"]}:
        assert f"`{name}`" in page, name
