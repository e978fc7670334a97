"""Right programs that look wrong are proved, at small and large extents; wrong ones are refuted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.right.programs import HERE, Spelling, spellings
from verifier.checker import Accepted, check
from verifier.ir.program import Program
from verifier.verdict import Counterexample, Proof
from verifier.verify import verify

FAULT = "fault.py"
"""What a wrong program names as the source of the op at fault."""
OPEN = {
    "paged_cache-right_rows_of_pages-large": "a row number made of a page and a place in it",
    "paged_cache-wrong_another_stride-large": "a number of rows in a page that no extent tells",
    "buckets-right-large": "parts of two ranks, one row each, as a sum over the rows",
    "window_ring-wrong_a_window_of_its_own_block-large": "a width that is no extent",
    "window_ring-wrong_positions_of_the_rank-large": "a width that is no extent",
}
"""Programs for which no proof is found yet, or no counterexample, and why."""
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
        if not isinstance(found, Counterexample):
            return "" if str(spelling) in OPEN else f"a wrong program is {found}"
        return "" if at_fault(given[1], found) else f"another op is blamed: {found.location}"
    if isinstance(found, Proof):
        replayed = check(found.certificate, *given)
        if str(spelling) in OPEN:
            return "proved: it is open no more"
        return "" if isinstance(replayed, Accepted) else f"the checker rejects it: {replayed}"
    if isinstance(found, Counterexample):
        return f"a right program is refuted: {found}"
    return "" if str(spelling) in OPEN else f"not proved: {found.reason}"


def at_fault(program: Program, found: Counterexample) -> bool:
    """Whether the op that is blamed is marked as the one at fault, where any op is marked."""
    marked = any(node.source.file == FAULT for node in program.nodes)
    return not marked or (found.location is not None and found.location.source.file == FAULT)
