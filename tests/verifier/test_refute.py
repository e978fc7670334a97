"""Counterexamples are differences that rounding does not explain."""

from __future__ import annotations

import math
from collections.abc import Collection
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.domains.base import Domain
from shardproof.verifier.domains.field import apart
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.compare import NUDGES, compare
from shardproof.verifier.refute.evaluate import Ranks, simulate
from shardproof.verifier.refute.sampling import index_bounds, sample
from shardproof.verifier.refute.search import DRAWS, Tried, refute
from shardproof.verifier.text.contract import read_contract
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof
from tests.verifier.pieces import pair, typed


def nothing(b: Builder, x: str, flipped: bool) -> str:
    """`log(exp(x)) - x`: 0 over the reals, rounding in float64."""
    pair = b.add("log", b.add("exp", x)), x
    return b.add("sub", *(pair[::-1] if flipped else pair))


def test_difference_that_is_all_rounding_is_no_counterexample() -> None:
    programs = pair(
        lambda b, x: nothing(b, x, False), lambda b, x: nothing(b, x, True), typed(4, 8)
    )
    assert refute(Problem(*programs)) is None
    assert isinstance(verify(Problem(*programs)), Proof)


@pytest.mark.parametrize("last", [0.0, 1e-5 + 1e-10])
def test_a_difference_that_some_small_changes_of_the_inputs_take_away_is_rounding(
    last: float,
) -> None:
    one, many, contract = pair(lambda b, x: x, lambda b, x: x, typed(4))
    gaps = iter([1e-5, 1e-5 + 1e-10, *[last] * NUDGES])

    def run(program: Program, ranks: Any, domain: Domain, *, wanted: Collection[str]) -> Ranks:
        out = simulate(program, ranks, domain, wanted=wanted)
        gap = next(gaps) if program is one else 0.0
        return [{name: value + gap for name, value in local.items()} for local in out]

    found = compare(Problem(one, many, contract), {"x0": np.ones(4)}, run)
    assert (found is None) == (last == 0.0)


def guarded(b: Builder, x: str, limit: int) -> str:
    """`where(x == limit, limit, log(exp(x)))`: its numbers are looked at near the edge."""
    edge = b.add("full", shape=b.types[x].shape, value=Fraction(limit), dtype="f32")
    return b.add("where", b.add("eq", x, edge), edge, b.add("log", b.add("exp", x)))


def test_what_is_related_is_run_on_fewer_samples() -> None:
    same = Problem(*pair(lambda b, x: guarded(b, x, 7), lambda b, x: guarded(b, x, 7), typed(4)))
    proved = verify(same)
    assert isinstance(proved, Proof)
    assert 2 < proved.stats["refuter_samples"] <= 2 + len(DRAWS)
    tried = Tried()
    assert refute(same, tried=tried) is None
    assert tried.samples > 2 + len(DRAWS)


def test_small_but_real_difference_is_a_counterexample() -> None:
    programs = pair(
        lambda b, x: x, lambda b, x: b.add("mul_scalar", x, value=Fraction(10001, 10000)), typed(4)
    )
    assert isinstance(verify(Problem(*programs)), Counterexample)


def test_lookup_in_no_rows_has_an_index_to_try() -> None:
    one, many, contract = pair(
        lambda b, x, i: b.add("take", x, i),
        lambda b, x, i: b.add("take", x, i),
        typed(0, 2),
        typed(3, dtype="i64"),
    )
    assert index_bounds(one) == {"x1": 0}
    assert sample(one, Floats(), np.random.default_rng(0), {})["x1"].shape == (3,)
    assert isinstance(verify(Problem(one, many, contract)), Proof)


LARGE = 2**31 - 1
NEXT = 2**31 - 19
SAME = {
    "a factor of 0 in a field": (f"%m = mul_scalar %x {{value={LARGE}}} %y = add %x, %m", "%x"),
    "a factor of 0 in two": (
        f"%m = mul_scalar %x {{value={LARGE * NEXT}}} %y = add %x, %m",
        "%x",
    ),
    "a factor of 1": (f"%y = mul_scalar %x {{value={LARGE + 1}}}", "%x"),
    "a factor of -1": (f"%m = mul_scalar %x {{value={LARGE - 1}}} %y = add %x, %m", "%z"),
    "one over 0": (f"%m = mul_scalar %x {{value=1/{LARGE}}} %y = add %z, %m", "%z"),
    "one over 1": (f"%y = mul_scalar %x {{value=1/{LARGE + 1}}}", "%x"),
    "two alike": (f"%y = add_scalar %x {{value={LARGE + 7}}}", "%seven"),
    "a product of 1": (
        "%m = mul_scalar %x {value=65536} %y = mul_scalar %m {value=32768}",
        "%x",
    ),
}


@pytest.mark.parametrize("what", SAME)
def test_constants_that_a_field_cannot_tell_apart_are_told_apart(what: str) -> None:
    body, other = SAME[what]
    head = "input %x: f32[2] %z = mul_scalar %x {value=0} %seven = add_scalar %x {value=7}"
    wrong = parse_text(
        f'program many mesh(tp=2) {head} %k = mul_scalar {other} {{value=1}} return %k "y"'
    )
    one = parse_text(f"program one {head} {body} return %y")
    right = parse_text(f"program many mesh(tp=2) {head} {body} return %y")
    contract = read_contract("", one, right).contract
    assert isinstance(verify(Problem(one, wrong, contract)), Counterexample)
    assert isinstance(verify(Problem(one, right, contract)), Proof)


def test_ordinary_constants_leave_the_largest_primes() -> None:
    assert apart([Fraction(1, 3), Fraction(1e-5), Fraction(-1), Fraction(2)], 2) == (LARGE, NEXT)
    assert apart([Fraction(LARGE)], 1) == (NEXT,)
    every = apart([], 100)
    assert len(set(apart([Fraction(math.prod(every))], 3)) - set(every)) == 3
