"""Certificates that both checkers accept, and edited ones, which are rejected or still true."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from shardproof.verifier.checker import Accepted, Rejected, check
from shardproof.verifier.checker.certificate import seal
from tests.checker.edits import NAMES, certified, judged, made_out, wrong
from tests.checker.second import FalseError, Second

SOME = NAMES[::10]
EDITS = 8
"""Of each certificate, in each run."""
REST = [pytest.param(name, marks=pytest.mark.campaign) for name in NAMES if name not in SOME]


@pytest.mark.parametrize("name", [*SOME, *REST])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_right_certificate_is_accepted_by_both(name: str) -> None:
    problem, document = certified(name)
    assert isinstance(check(document, problem), Accepted)
    Second(problem).check(document)


@pytest.mark.parametrize("name", [*SOME, *REST])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_certificate_made_out_to_a_wrong_program_is_accepted_by_neither(name: str) -> None:
    problem = wrong(name)
    if problem is None:
        return
    second = Second(problem)
    document = made_out(certified(name)[1], second)
    document["seal"] = seal(document)
    assert isinstance(check(document, problem), Rejected)
    with pytest.raises((FalseError, ValueError)):
        second.check(document)


@pytest.mark.parametrize("name", [*SOME, *REST])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_edited_certificate_is_rejected_or_true(name: str) -> None:
    with np.errstate(all="ignore"):
        said = Counter(answer for _, answer in judged(name, EDITS, 1))
    assert said.keys() <= {"rejected", "accepted, true"}
    assert said["rejected"]
