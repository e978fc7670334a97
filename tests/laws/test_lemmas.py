"""The lemmas for all sizes: each is proved, and none from premises that cannot hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardproof.verifier.smt import solver as smt
from tests.laws.lemmas import LEMMAS


@pytest.mark.parametrize("name", LEMMAS)
def test_lemma_is_proved(name: str) -> None:
    assert LEMMAS[name].prove() == smt.Valid()


@pytest.mark.parametrize("name", LEMMAS)
def test_premises_of_the_lemma_have_a_model(name: str) -> None:
    assert LEMMAS[name].satisfiable() == smt.Valid()


def test_overlapping_windows_are_not_proved_apart() -> None:
    v, r, q, k = smt.integers("v r q k")
    inside = [v - r * k >= 0, v - r * k <= k, v - q * k >= 0, v - q * k <= k]
    assert isinstance(smt.prove(r == q, [k > 0, *inside]), smt.Invalid)


def test_unknown_is_no_proof() -> None:
    x, y, z = (smt.real(n) for n in "xyz")
    f = smt.function("f", "real", "real")
    hard = f(x * y * z) * f(x**3 + y**3) == f(z**3) * f(x + y * z)
    answer = smt.prove(smt.implies(x**5 + y**5 == z**5 + 1, hard), rlimit=100)
    assert isinstance(answer, smt.Undecided)


def test_contradictory_premises_are_seen() -> None:
    x = smt.real("x")
    solver = smt.Solver()
    solver.assume(x > 1, x < 0)
    assert solver.consistent() == smt.Invalid(())
    assert solver.stats.queries == 1


@pytest.mark.parametrize("name", LEMMAS)
def test_lemma_is_listed_in_the_docs(name: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "proofs.md"
    row = f"| {name} | {LEMMAS[name].says} | {LEMMAS[name].rests} |"
    assert row in page.read_text(encoding="utf-8")
