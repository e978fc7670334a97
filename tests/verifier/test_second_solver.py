"""A second solver is asked what Z3 was asked, and where it differs that is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import second_solver
from shardproof.verifier.smt import solver as smt
from shardproof.verifier.smt.solver import Obligation, obligations, read_smtlib


def asked() -> list[Obligation]:
    """A goal that holds, one that fails, one that the simplifier closes."""
    x, y = smt.real("x"), smt.real("y")
    f = smt.function("f", "real", "real")
    with obligations() as found:
        smt.prove(f(x) == f(y), [x == y])
        smt.prove(f(x) == f(y), [x <= y])
        smt.prove(f(x) == f(y), [x == y])
        assert smt.simplifies((x + y) * (x - y) == x * x - y * y)
        assert not smt.simplifies(x == y)
    return list(found.values())


def test_obligations_are_text_that_z3_reads_back() -> None:
    statuses = [one.status for one in asked()]
    assert statuses == ["unsat", "sat", "unsat"]
    assert [read_smtlib(one.text) for one in asked()] == statuses
    assert all("(set-logic QF_UFNIRA)" in one.text for one in asked())


def test_quantifiers_are_declared() -> None:
    x, f = smt.real("x"), smt.function("f", "real", "real")
    with obligations() as found:
        smt.prove(f(smt.real("a")) > 0, [smt.forall([x], f(x) > 0)])
    (one,) = found.values()
    assert "(set-logic UFNIRA)" in one.text
    assert read_smtlib(one.text) == one.status == "unsat"


def test_text_that_is_no_obligation_is_an_error() -> None:
    with pytest.raises(ValueError, match="no SMT-LIB text"):
        read_smtlib("(assert (= x 1))")


def test_cvc5_says_the_same() -> None:
    pytest.importorskip("cvc5")
    compared = second_solver.compare(asked())
    assert (compared.shown, compared.undecided, compared.disagreements) == (2, 0, ())


def test_a_disagreement_is_told() -> None:
    pytest.importorskip("cvc5")
    holds, fails, _ = asked()
    wrong = second_solver.compare([holds, replace(fails, status="unsat")])
    assert wrong.disagreements == (fails.text,)
    assert "disagreements: 1" in str(wrong)


def test_without_cvc5_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_solver, "find_spec", {}.get)
    compared = second_solver.compare(asked())
    assert compared.shown == 0
    assert str(compared) == second_solver.SKIPPED
