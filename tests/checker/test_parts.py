"""A proof says which parts of the checker it rests on; the others are not even loaded."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pytest

from benchmarks.mutation_testing.corpus import cases
from verifier.checker import Accepted, check
from verifier.problem import Problem
from verifier.verdict import Proof
from verifier.verification import verify

RESTS = {
    "all_reduce_twice": (),
    "SD-02": ("laws of terms",),
    "GS-17": ("order in time",),
    "DS-52": ("laws of terms", "cross entropies opened"),
    "DR-05": ("single elements",),
}
ALONE = """
import json, pickle, sys
from verifier.checker import check
from verifier.checker.replay import PARTS
found = check(*pickle.load(sys.stdin.buffer))
print(json.dumps([[*found.rests], [n for n, room in PARTS.items() if room in sys.modules]]))
"""


@pytest.mark.parametrize("name", RESTS)
def test_a_part_is_loaded_where_a_certificate_asks_for_it(name: str) -> None:
    case = next(case for case in cases() if case.path.stem == name)
    problem = Problem(*case.programs("right"))
    verdict = verify(problem)
    assert isinstance(verdict, Proof)
    found = check(verdict.certificate, problem)
    assert isinstance(found, Accepted)
    assert found.rests == RESTS[name]
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        input=pickle.dumps((verdict.certificate, problem)),
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout) == [list(found.rests), list(found.rests)]
