"""Right programs that look wrong are proved, at small and large extents; wrong ones are refuted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.right.programs import HERE, Spelling, spellings
from verifier.checker import Accepted, check
from verifier.verdict import Counterexample, Proof
from verifier.verify import verify

OPEN: dict[str, str] = {}
"""Right programs for which no proof is found yet, and why."""
PATHS = sorted(HERE.glob("*.txt"))


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_right_programs_are_proved_and_wrong_ones_are_refuted(path: Path, size: str) -> None:
    faults: list[str] = []
    for spelling in spellings(size):
        why = judged(spelling) if spelling.path == path else ""
        if why:
            faults.append(f"{spelling}: {why}")
    assert not faults, "\n".join(faults)


def judged(spelling: Spelling) -> str:
    """What is wrong with the verdict on a program; empty where nothing is."""
    given = spelling.programs()
    found = verify(*given)
    if not spelling.right:
        return "" if isinstance(found, Counterexample) else f"a wrong program is {found}"
    if isinstance(found, Proof):
        replayed = check(found.certificate, *given)
        if str(spelling) in OPEN:
            return "proved: it is open no more"
        return "" if isinstance(replayed, Accepted) else f"the checker rejects it: {replayed}"
    if isinstance(found, Counterexample):
        return f"a right program is refuted: {found}"
    return "" if str(spelling) in OPEN else f"not proved: {found.reason}"
