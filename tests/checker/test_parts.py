"""A proof says which parts of the checker it rests on; the others are not even loaded."""

from __future__ import annotations

import ast
import json
import pickle
import subprocess
import sys
from collections.abc import Iterable

import pytest

from benchmarks.mutation_testing.corpus import cases
from benchmarks.trust import core, file_of, lines, parts
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.checker.replay import PARTS
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Proof
from shardproof.verifier.verification import verify

CORE = 6_000
"""Lines that every certificate needs, and an expert reads in a day."""
RESTS = {
    "all_reduce_twice": (),
    "SD-02": ("index notation",),
    "GS-17": ("values that change ranks", "order in time"),
    "DS-52": ("composite ops", "index notation", "cross entropies opened"),
    "SD-07": ("composite ops", "entries as polynomials"),
    "MG-10-square": ("composite ops", "entries as polynomials"),
}
ALONE = """
import json, pickle, sys
from shardproof.verifier.checker import check
found = check(*pickle.load(sys.stdin.buffer))
loaded = [n for n in sys.modules if n.startswith("shardproof.verifier.")]
print(json.dumps([[*found.rests], loaded]))
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
    rests, loaded = json.loads(done.stdout)
    assert rests == list(found.rests)
    added = parts()
    allowed = core().union(*(added[name] for name in rests))
    assert set(loaded) - allowed == set()
    assert all(room in loaded for name, room in PARTS.items() if name in rests)


def test_the_core_is_small_enough_to_be_read() -> None:
    """It imports numpy and itself: no search, no text, nothing that runs programs on numbers."""
    found = core()
    assert lines(found) <= CORE
    rooms = ("domains", "escalate", "explain", "ops", "order", "refute", "smt", "verification")
    assert not [m for m in found if m.split(".")[2] in rooms]
    assert outside(found) - sys.stdlib_module_names == {"numpy"}


def outside(modules: Iterable[str]) -> set[str]:
    """What modules import that is not of the verifier."""
    found: set[str] = set()
    for module in modules:
        for node in ast.walk(ast.parse(file_of(module).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add((node.module or "").split(".")[0])
    return found - {"shardproof"}
