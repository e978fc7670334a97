"""Every op, with the attributes of its samples, is read back from both written forms."""

from __future__ import annotations

from itertools import islice

import pytest

from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.ops import REGISTRY
from shardproof.verifier.text.digest import to_json
from shardproof.verifier.text.jsonio import from_json
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.text.printing import to_text
from tests.laws.samples import forms

MESH = Mesh.of(tp=2)
SAMPLED = sorted(n for n, op in REGISTRY.items() if op.kind != "control")


@pytest.mark.parametrize("name", SAMPLED)
def test_an_op_is_read_back(name: str) -> None:
    op = REGISTRY[name]
    for form in forms(op, MESH):
        for attrs in islice(form.attrs(form.shapes, MESH), 6):
            b = Builder(name, MESH)
            operands = [
                b.input(f"i{k}", TensorType(shape, dtype))
                for k, (shape, dtype) in enumerate(zip(form.shapes, form.dtypes, strict=True))
            ]
            for out in b.add_node(name, operands, {**op.with_defaults(attrs)}):
                b.output(out)
            made = b.build()
            assert parse_text(to_text(made)) == made
            assert from_json(to_json(made)) == made
