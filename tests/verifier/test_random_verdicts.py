"""Relations alone decide random programs: what they prove agrees on every rank in float64."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given, settings, strategies as st

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier import verification as module
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.relate.rules import Rules, initial
from shardproof.verifier.provers.relate.walk import relate
from shardproof.verifier.provers.sequential import as_terms
from shardproof.verifier.refute.evaluate import evaluate, simulate
from shardproof.verifier.refute.scatter import copies, gather
from shardproof.verifier.verdict import Proof
from tests.verifier.meaning import FLOATS, close
from tests.verifier.random_programs import MESHES, Author, grow, inputs, pieces, values


def sequential(base: Program, rng: np.random.Generator) -> Program:
    b = Builder("one")
    for item in base.inputs:
        b.input(item.name, item.type)
    grow(Author(b, rng), 8)
    b.output(b.nodes[-1].outputs[0], path="y")
    return b.build()


def edited(one: Program, contract: Contract, mesh: Mesh, rng: np.random.Generator) -> Program:
    """The same ops on the pieces, with collectives and other operands here and there."""
    b = Builder("many", mesh)
    author = Author(b, rng)
    for item in one.inputs:
        b.input(item.name, TensorType(contract.inputs[item.name].local_shape, item.type.dtype))
    named = {item.name: item.name for item in one.inputs}
    for node in one.nodes:
        operands = [named[v] for v in node.inputs]
        if rng.random() < 0.1:
            kinds = [b.types[v].kind for v in operands]
            operands = [
                author.pick(k, b.types[v].shape) for k, v in zip(kinds, operands, strict=True)
            ]
        (out,) = b.add_node(node.op, operands, node.attrs)
        if rng.random() < 0.3:
            try:
                moved = author.collective()
            except IRError:
                moved = out
            if b.types[moved] == b.types[out] or b.types[moved].shape == one[node.outputs[0]].shape:
                out = moved if b.types[moved].dtype == b.types[out].dtype else out
        named[node.outputs[0]] = out
    b.output(named[one.outputs[0].value], path="y")
    return b.build()


def asked(one: Program, many: Program, contract: Contract) -> Contract:
    """The contract with a layout of the output that some fact has, so that proofs are found."""
    terms = as_terms(one)
    related = relate(terms, many, initial(contract, terms), contract, Rules(many.mesh))
    facts = related.facts[many.outputs[0].value]
    shape = one[one.outputs[0].value].shape
    fitting = [f.layout for f in facts if f.layout.global_shape == shape]
    return Contract(contract.inputs, {"output:y": [*fitting, Layout.replicate(shape)][0]})


def proved(seed: int) -> bool:
    """Whether the programs of a seed are proved equal; asserts that they are, where proved."""
    rng = np.random.default_rng(seed)
    mesh = MESHES[int(rng.integers(len(MESHES)))]
    base, contract = inputs(mesh, rng)
    one = sequential(base, rng)
    try:
        many = edited(one, contract, mesh, rng)
    except IRError:
        return False
    contract = asked(one, many, contract)
    if many[many.outputs[0].value].kind != one[one.outputs[0].value].kind:
        return False
    with patch.object(module, "MAX_ELEMENTS", 0):
        verdict = verify(Problem(one, many, contract))
    if not isinstance(verdict, Proof):
        return False
    assert isinstance(check(verdict.certificate, Problem(one, many, contract)), Accepted)
    whole = values(one, rng)
    with np.errstate(all="ignore"):
        want = evaluate(one, whole)[one.outputs[0].value]
        state = simulate(many, pieces(whole, contract, mesh, rng))
    parts = [local[many.outputs[0].value] for local in state]
    if not all(np.all(np.isfinite(a)) for local in state for a in local.values()):
        return False
    layout = contract.outputs["output:y"]
    assert close(gather(parts, layout, mesh, FLOATS), want), seed
    assert all(close(parts[r], parts[o]) for r, o in copies(layout, mesh)), seed
    return True


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_what_relations_prove_agrees_in_float64(seed: int) -> None:
    proved(seed)


def test_some_random_programs_are_proved() -> None:
    assert sum(proved(seed) for seed in range(60)) > 5
