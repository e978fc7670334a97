"""The deciders that know no placement rule agree with the relations and with float64."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from unittest.mock import ANY

import numpy as np
import pytest

from benchmarks.mutation_testing.author import Base
from benchmarks.mutation_testing.mutants import mutations
from benchmarks.mutation_testing.truth import draw, equal
from benchmarks.mutation_testing.zoo import bases
from shardproof.verifier.checker import prepare
from shardproof.verifier.checker.scalars import ReplayError, certify, replay
from shardproof.verifier.domains.algebra import Budget
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program, live
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.scalars.answers import Decision, Equal, Undecided
from shardproof.verifier.provers.scalars.cases import cases
from shardproof.verifier.provers.scalars.deciding import decide as compare
from shardproof.verifier.refute.compare import run_both
from shardproof.verifier.refute.scatter import piece
from shardproof.verifier.refute.search import refute
from shardproof.verifier.smt import solver as smt
from tests.asking import confirm, elementwise
from tests.domains.spellings import (
    SPELLINGS,
    Pair,
    adamw_step,
    cross_entropy,
    products,
    ring_attention,
    variance,
)

SLOW = {"ulysses", "layers"}
BASES = [b for b in bases() if b.name not in SLOW]


def decide(
    base: Base, distributed: Program, solver: smt.Solver | None = None
) -> dict[str, smt.Answer]:
    drawn = draw(base.sequential, np.random.default_rng(0))
    indices = {n: a for n, a in drawn.items() if a.dtype.kind == "i"}
    return elementwise(base.sequential, distributed, base.contract, indices, solver)


@pytest.mark.parametrize("base", BASES, ids=str)
def test_every_output_and_gradient_is_proved_element_by_element(base: Base) -> None:
    answers = decide(base, base.distributed)
    assert set(answers) == set(base.contract.outputs)
    assert set(answers.values()) == {smt.Valid()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "base", [b for b in BASES if str(b) in ("mlp[tp=2]", "gated[tp=2]")], ids=str
)
def test_no_mutant_that_differs_is_proved_element_by_element(base: Base) -> None:
    rng = np.random.default_rng(0)
    found = list(mutations(base.distributed))
    tried = 0
    for at in rng.permutation(len(found))[:4]:
        program = found[at].edit()
        if program is None or equal(base, program):
            continue
        tried += 1
        solver = smt.Solver(rlimit=20_000, timeout_ms=100)
        assert set(decide(base, program, solver).values()) != {smt.Valid()}, found[at].text
    assert tried


def forms(pair: Pair) -> Decision:
    return compare(pair.sequential, pair.distributed, pair.contract)


LONG = {"layers", "gated", "ulysses", "attention"}
MARKED = [
    pytest.param(b, marks=pytest.mark.slow, id=str(b))
    if b.name in LONG or b.distributed.mesh.size > 2
    else pytest.param(b, id=str(b))
    for b in bases()
]


@pytest.mark.parametrize("base", MARKED)
def test_every_output_and_gradient_has_the_forms_of_one_device(base: Base) -> None:
    drawn = draw(base.sequential, np.random.default_rng(0))
    indices = {n: a for n, a in drawn.items() if a.dtype.kind == "i"}
    found = compare(base.sequential, base.distributed, base.contract, indices)
    assert isinstance(found, Equal), found
    assert set(found.forms) == set(base.contract.outputs)


@pytest.mark.parametrize("make", SPELLINGS, ids=lambda make: str(make()))
def test_another_spelling_is_equal(make: Callable[[], Pair]) -> None:
    assert isinstance(forms(make()), Equal)


@pytest.mark.parametrize(
    "pair", [products("product over a sum"), cross_entropy("one-hot"), variance()], ids=str
)
def test_z3_and_floats_agree_with_the_forms(pair: Pair) -> None:
    assert isinstance(forms(pair), Equal)
    one, many = live(inline(pair.sequential)), live(inline(pair.distributed))
    assert refute(Problem(one, many, pair.contract)) is None
    tried = cases(one, many, {}, 256)
    assert not isinstance(tried, Undecided)
    for case in tried:  # raises where Z3 has a model in which an element differs
        confirm(one, many, pair.contract, case, 2.0 / len(tried))


@pytest.mark.parametrize("pair", [ring_attention(wrong=True), variance(wrong=True)], ids=str)
def test_a_wrong_spelling_differs_on_numbers(pair: Pair) -> None:
    found = forms(pair)
    assert isinstance(found, Undecided)
    assert found.case is not None
    one, many = live(inline(pair.sequential)), live(inline(pair.distributed))
    differs = refute(Problem(one, many, pair.contract, found.case))
    assert differs is not None
    assert differs.witness.expected != differs.witness.got


def test_another_mask_is_equal_under_a_stated_assumption() -> None:
    pair = ring_attention(2, causal=True, low=Fraction(-(10**35)))
    assert isinstance(forms(pair), Undecided)
    found, made = certify(prepare(Problem(*_programs(pair))), masks=True)
    assert isinstance(found, Equal)
    assert "weight 0" in found.assumptions[0]
    assert made is not None
    assert replay(made, prepare(Problem(*_programs(pair)))) == replace(found, stats=ANY)
    same, _ = certify(prepare(Problem(*_programs(variance()))), masks=True)
    assert isinstance(same, Equal)
    assert not same.assumptions


def test_clipping_by_the_norm_of_one_rank_is_not_proved() -> None:
    assert not isinstance(forms(adamw_step(2, wrong=True)), Equal)


def test_all_values_of_labels_are_tried_or_none() -> None:
    pair = cross_entropy("one-hot")
    found = forms(pair)
    assert isinstance(found, Equal)
    assert found.cases == 16
    assert "%labels in [0, 4)" in " ".join(found.scope)
    few = compare(pair.sequential, pair.distributed, pair.contract, max_cases=15)
    assert isinstance(few, Undecided)
    assert "16 values" in few.reason


def test_a_budget_gives_no_answer() -> None:
    pair = ring_attention()
    found = compare(pair.sequential, pair.distributed, pair.contract, budget=Budget(terms=100))
    assert isinstance(found, Undecided)
    assert "100 terms" in found.reason


def twice(sequential: str, distributed: str) -> Decision:
    """One input x; programs of one unary op, or of several with blanks between."""

    def program(ops: str, mesh: Mesh | None) -> Program:
        b = Builder("p", mesh) if mesh else Builder("p")
        value = x = b.input("x", TensorType((2,)))
        for op in ops.split():
            value = b.add(op, value, x) if op in ("mul", "div") else b.add(op, value)
        b.output(value, "output", "y")
        return b.build()

    mesh = Mesh.of(tp=2)
    layout = from_placements((2,), [("tp", 2, "R")])
    contract = Contract({"x": layout}, {"output:y": layout})
    return compare(program(sequential, None), program(distributed, mesh), contract)


@pytest.mark.parametrize(
    ("sequential", "distributed", "same"),
    [
        ("neg neg", "mul div", False),
        ("mul div", "neg neg", True),
        ("abs", "log exp abs", False),
        ("log exp", "abs", True),
        ("exp log", "neg neg", True),
        ("neg neg", "exp log", True),
        ("abs", "sqrt abs mul", False),
    ],
)
def test_a_rank_may_not_be_undefined_where_one_device_is_defined(
    sequential: str, distributed: str, same: bool
) -> None:
    assert isinstance(twice(sequential, distributed), Equal) == same


def test_a_certificate_is_replayed_and_a_changed_one_is_refused() -> None:
    pair = cross_entropy("no maximum")
    given = prepare(Problem(pair.sequential, pair.distributed, pair.contract))
    found, made = certify(given)
    assert isinstance(found, Equal)
    assert made is not None
    text = json.dumps(made)
    assert replay(json.loads(text), given).forms == found.forms
    with pytest.raises(ReplayError, match="cases: expected 1, got 16"):
        replay(json.loads(text), prepare(Problem(*_programs(variance()))))
    for at in range(0, len(text), 97):
        changed = text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :]
        try:
            document = json.loads(changed)
        except ValueError:
            continue
        if document == json.loads(text):
            continue
        with pytest.raises(ReplayError):
            replay(document, given)


@pytest.mark.parametrize("pair", [ring_attention(2), variance(), products("x")], ids=str)
def test_no_mutant_of_a_spelling_that_differs_is_proved(pair: Pair) -> None:
    rng, tried = np.random.default_rng(0), 0
    found = list(mutations(pair.distributed))
    for at in rng.permutation(len(found))[:12]:
        program = found[at].edit()
        if program is None or not differs(pair, program):
            continue
        tried += 1
        answer = compare(pair.sequential, program, pair.contract, budget=Budget(seconds=3))
        assert not isinstance(answer, Equal), found[at].text
    assert tried


def differs(pair: Pair, program: Program) -> bool:
    """Whether a rank gives another value in float64, at random inputs."""
    rng, floats = np.random.default_rng(1), Floats()
    inputs = draw(pair.sequential, rng, 4)
    one, many = inline(pair.sequential), inline(program)
    values = run_both(Problem(one, many, pair.contract), inputs, floats, rng)
    for key, (whole, parts) in values.items():
        layout, coords = pair.contract.outputs[key], program.mesh.coords()
        for where, part in zip(coords, parts, strict=True):
            want = piece(whole, layout, where)
            if part is None or want.shape != part.shape or not np.allclose(want, part):
                return True
    return False


def _programs(pair: Pair) -> tuple[Program, Program, Contract]:
    return pair.sequential, pair.distributed, pair.contract
