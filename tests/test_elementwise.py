"""The deciders that know no placement rule agree with the relations and with float64."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from benchmarks.mutation_testing.author import Base
from benchmarks.mutation_testing.mutants import mutations
from benchmarks.mutation_testing.truth import draw, equal
from benchmarks.mutation_testing.zoo import bases
from shardproof.verifier.checker import Accepted, Rejected, check, prepare
from shardproof.verifier.checker.identities import MASKED, certify
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program, live
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.scalars.answers import Undecided
from shardproof.verifier.provers.scalars.cases import cases
from shardproof.verifier.provers.scalars.closing import close
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


def compared(pair: Pair, masks: bool = False) -> Any:
    """The certificate of a pair, or why there is none."""
    return certify(prepare(Problem(*_programs(pair))), close, masks)


@pytest.mark.parametrize("make", SPELLINGS, ids=lambda make: str(make()))
def test_another_spelling_is_equal(make: Callable[[], Pair]) -> None:
    assert isinstance(compared(make()), dict)


@pytest.mark.parametrize(
    "pair", [products("product over a sum"), cross_entropy("one-hot"), variance()], ids=str
)
def test_z3_and_floats_agree_with_the_forms(pair: Pair) -> None:
    assert isinstance(compared(pair), dict)
    one, many = live(inline(pair.sequential)), live(inline(pair.distributed))
    assert refute(Problem(one, many, pair.contract)) is None
    tried = cases(one, many, {}, 256)
    assert not isinstance(tried, Undecided)
    for case in tried:  # raises where Z3 has a model in which an element differs
        confirm(one, many, pair.contract, case, 2.0 / len(tried))


@pytest.mark.parametrize("pair", [ring_attention(wrong=True), variance(wrong=True)], ids=str)
def test_a_wrong_spelling_differs_on_numbers(pair: Pair) -> None:
    found = compared(pair)
    assert isinstance(found, Undecided)
    assert found.case is not None
    one, many = live(inline(pair.sequential)), live(inline(pair.distributed))
    differs = refute(Problem(one, many, pair.contract, found.case))
    assert differs is not None
    assert differs.witness.expected != differs.witness.got


def test_another_mask_is_equal_under_a_stated_assumption() -> None:
    pair = ring_attention(2, causal=True, low=Fraction(-(10**35)))
    assert isinstance(compared(pair), Undecided)
    found = compared(pair, masks=True)
    assert found["assumptions"] == [MASKED]
    accepted = check({**found, "assumptions": []}, Problem(*_programs(pair)))
    assert isinstance(accepted, Rejected)
    accepted = check(found, Problem(*_programs(pair)))
    assert isinstance(accepted, Accepted)
    assert accepted.assumptions == (MASKED,)
    assert not compared(variance(), masks=True)["assumptions"]


def test_clipping_by_the_norm_of_one_rank_is_not_proved() -> None:
    assert isinstance(compared(adamw_step(2, wrong=True)), Undecided)


def test_all_values_of_labels_are_tried() -> None:
    found = compared(cross_entropy("one-hot"))
    assert found["cases"] == 16
    assert "%labels in [0, 4)" in " ".join(found["scope"])


def twice(sequential: str, distributed: str) -> bool:
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
    given = Problem(program(sequential, None), program(distributed, mesh), contract)
    return isinstance(certify(prepare(given), close), dict)


@pytest.mark.parametrize(
    ("sequential", "distributed", "same"),
    [
        ("neg neg", "mul div", False),
        ("mul div", "neg neg", True),
        ("abs", "log exp abs", False),
        ("log exp", "abs", False),  # right, and not seen to be
        ("exp log", "neg neg", True),
        ("neg neg", "exp log", True),
        ("abs", "sqrt abs mul", False),
    ],
)
def test_a_rank_may_not_be_undefined_where_one_device_is_defined(
    sequential: str, distributed: str, same: bool
) -> None:
    assert twice(sequential, distributed) == same


@pytest.mark.parametrize("pair", [ring_attention(2), variance(), products("x")], ids=str)
def test_no_mutant_of_a_spelling_that_differs_is_proved(pair: Pair) -> None:
    rng, tried = np.random.default_rng(0), 0
    found = list(mutations(pair.distributed))
    for at in rng.permutation(len(found))[:12]:
        program = found[at].edit()
        if program is None or not differs(pair, program):
            continue
        tried += 1
        answer = certify(prepare(Problem(pair.sequential, program, pair.contract)), close)
        assert isinstance(answer, Undecided), found[at].text
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
