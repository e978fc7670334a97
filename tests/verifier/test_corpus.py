"""The corpus: wrong programs are refuted with a place, right ones proved, certificates replay."""

from __future__ import annotations

import pytest

from benchmarks.mutation_testing.cases import Case, judge
from benchmarks.mutation_testing.corpus import cases, replays
from shardproof.verifier.checker import Rejected, check
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Proof

CASES = list(cases())


@pytest.mark.parametrize(
    ("case", "side"),
    [(c, s) for c in CASES for s in c.sides],
    ids=[f"{c.path.stem}-{s}" for c in CASES for s in c.sides],
)
def test_case_is_judged_as_it_says(case: Case, side: str) -> None:
    judged = judge(case, side)
    assert judged.right, f"{judged.outcome}: {judged.message} {judged.where}"
    if side == "wrong":
        assert judged.where
        assert judged.witness
    assert replays(judged)
    if isinstance(judged.verdict, Proof):
        text = dict(judged.verdict.certificate)
        text["seal"] = "0" + str(text["seal"])[1:] if text["seal"][0] != "0" else "1"
        assert isinstance(check(text, Problem(*case.programs(side))), Rejected)


def test_every_case_says_what_it_is() -> None:
    assert len(CASES) > 10
    for case in CASES:
        assert case.sides
        assert {"id", "title"} <= set(case.about), case.path
