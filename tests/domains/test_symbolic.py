"""The symbolic domain: equalities for all values, and none that does not follow."""

from __future__ import annotations

import threading
from fractions import Fraction

import numpy as np
import pytest
import z3

from shardproof.verifier.domains.symbolic import Symbolic
from shardproof.verifier.ops import facets
from shardproof.verifier.smt import solver as smt
from shardproof.verifier.smt.pieces import equations
from tests.asking import Lawful


def answer(a: np.ndarray, b: np.ndarray, domain: Symbolic) -> smt.Answer:
    goals = equations(a, b)
    return smt.prove(smt.conj(*goals), domain.facts) if goals else smt.Valid()


def test_a_wrong_sum_has_a_model() -> None:
    domain = Symbolic()
    x = domain.symbols("x", (2, 2))
    assert isinstance(answer(domain.sum(x, (0,)), x[0], domain), smt.Invalid)


def test_shifted_softmax_needs_the_law_of_exp() -> None:
    def softmax(domain: Symbolic, x: np.ndarray, shift: np.ndarray) -> np.ndarray:
        e = domain.unary("exp", domain.sub(x, shift))
        return domain.div(e, domain.sum(e, (0,)))

    for domain, proved in ((Symbolic(), False), (Lawful(), True)):
        x, c = domain.symbols("x", (2,)), domain.symbols("c", ())
        zero = domain.const(Fraction(0))
        same = answer(softmax(domain, x, c), softmax(domain, x, zero), domain)
        assert (same == smt.Valid()) == proved


def test_a_maximum_is_the_set_of_its_operands() -> None:
    domain = Symbolic()
    x, y, z = (domain.symbols(n, ()) for n in "xyz")
    left = domain.maximum(domain.maximum(x, y), domain.maximum(z, x))
    right = domain.maximum(z, domain.maximum(y, x))
    assert answer(left, right, domain) == smt.Valid()
    two = domain.maximum(domain.const(Fraction(1)), domain.const(Fraction(2)))
    assert two[()] == 2


def test_truth_values_of_terms_are_not_guessed() -> None:
    domain = Symbolic()
    x, y = domain.symbols("x", (2,)), domain.symbols("y", (2,))
    below = domain.logical("not", domain.compare("lt", x, y))
    assert answer(below, domain.compare("ge", x, y), domain) == smt.Valid()
    chosen = domain.where(below, x, y)
    flipped = domain.where(domain.compare("lt", x, y), y, x)
    assert answer(chosen, flipped, domain) == smt.Valid()


def test_laws_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="no laws of 'tan'"):
        Symbolic(("tan",))


def test_an_interrupt_without_a_query_cancels_nothing_later() -> None:
    x = smt.integer("x")
    smt.interrupt()
    assert isinstance(smt.prove(x + 1 > x), smt.Valid)


def test_interrupts_during_and_after_a_query_end_that_query_alone() -> None:
    a, b, c, n = smt.integers("a b c n")
    hard = smt.implies(
        smt.conj(a > 0, b > 0, c > 0, n > 2), a * a * a * n + b * b * b * n != c * c * c * n
    )
    stop = threading.Event()

    def nag() -> None:
        while not stop.wait(0.002):
            smt.interrupt()

    nagging = threading.Thread(target=nag)
    nagging.start()
    try:
        for _ in range(20):
            assert isinstance(smt.prove(hard), smt.Undecided | smt.Valid)
    finally:
        stop.set()
        nagging.join()
    for _ in range(3):
        assert isinstance(smt.prove(a + 1 > a), smt.Valid)


def test_bytes_of_one_number_are_one_and_of_another_are_not_known() -> None:
    domain = Symbolic()
    cast = facets("cast").meaning
    x, y = domain.symbols("x", (2,)), domain.symbols("y", (2,))
    first, again, other = (cast(domain, v, dtype="u8") for v in (x, x, y))
    assert isinstance(answer(first, again, domain), smt.Valid)
    assert isinstance(answer(first, other, domain), smt.Invalid)
    assert cast(domain, np.array([300, -1]), dtype="u8").tolist() == [44, 255]
    whole = cast(domain, domain.full((1,), Fraction(300)), dtype="u8")
    assert isinstance(whole[0], z3.ExprRef)
