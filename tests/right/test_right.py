"""Right programs that look wrong are proved, at small and large extents; wrong ones are refuted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.checker.certificate import seal
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof
from tests.right.programs import HERE, Spelling, spellings

FAULT = "fault.py"
"""What a wrong program names as the source of the op at fault."""
OPEN = {
    "paged_cache-right_rows_of_pages-large": "a row number made of a page and a place in it",
    "paged_cache-wrong_another_stride-large": "a number of rows in a page that no extent tells",
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
    found = verify(Problem(*given))
    if not spelling.right:
        if not isinstance(found, Counterexample):
            return "" if str(spelling) in OPEN else f"a wrong program is {found}"
        return "" if at_fault(given[1], found) else f"another op is blamed: {found.location}"
    if isinstance(found, Proof):
        replayed = check(found.certificate, Problem(*given))
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


def test_copies_are_spread_along_dims_of_one_entry_only() -> None:
    """A claim that says another dim, or another mesh dim, is not accepted."""
    (spelling,) = [s for s in spellings("large") if str(s) == "grouped_kv-right-large"]
    given = spelling.programs()
    found = verify(Problem(*given))
    assert isinstance(found, Proof)
    text = json.dumps(found.certificate)
    assert "joined:spread:kv:0" in text
    for other in ("joined:spread:kv:1", "joined:spread:rep:0", "joined:spread:kv:9"):
        changed = json.loads(text.replace("joined:spread:kv:0", other))
        changed["seal"] = seal(changed)
        assert not isinstance(check(changed, Problem(*given)), Accepted), other
